// Images on their way to the model, as data: addresses.
import type { Strings } from '../strings';

const bytesMax = 16 << 20;
const sentAsTheyAre = ['image/png', 'image/jpeg', 'image/webp'];

export function imageFiles(data: DataTransfer | null): File[] {
  return [...(data?.files ?? [])].filter((file) => file.type.startsWith('image/'));
}

/** A data: address, or a sentence about why there is none. */
export async function readImage(file: File, strings: Strings): Promise<{ url: string } | { problem: string }> {
  if (file.size > bytesMax) return { problem: strings.imageTooLarge(file.name) };
  try {
    const blob = sentAsTheyAre.includes(file.type) ? file : await asPng(file);
    // Also proves that it is an image, before a server has to say that it is none.
    (await createImageBitmap(blob)).close();
    return { url: await dataUrl(blob) };
  } catch {
    return { problem: strings.notAnImage(file.name) };
  }
}

async function asPng(file: File): Promise<Blob> {
  const bitmap = await createImageBitmap(file);
  const canvas = document.createElement('canvas');
  canvas.width = bitmap.width;
  canvas.height = bitmap.height;
  canvas.getContext('2d')?.drawImage(bitmap, 0, 0);
  bitmap.close();
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob === null ? reject(new Error('no image')) : resolve(blob)), 'image/png');
  });
}

function dataUrl(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error('not readable'));
    reader.readAsDataURL(blob);
  });
}
