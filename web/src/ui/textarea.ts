// Text fields that grow with what is written in them.

export function growToFit(field: HTMLTextAreaElement | null): void {
  if (field === null) return;
  field.style.height = 'auto';
  field.style.height = `${field.scrollHeight}px`;
}

/** Only an on-screen keyboard: a laptop with a touch screen also has a fine pointer. */
export function isTouch(): boolean {
  return matchMedia('(hover: none) and (pointer: coarse)').matches;
}
