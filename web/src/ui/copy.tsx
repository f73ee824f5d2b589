// Copying, also on pages that came over plain HTTP from another machine, which have no clipboard interface.
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { useStrings } from './context';
import { Icon, IconButton } from './icons';

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyThroughField(text);
  }
}

function copyThroughField(text: string): boolean {
  const focused = document.activeElement;
  const field = document.createElement('textarea');
  field.value = text;
  field.className = 'unseen';
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return done;
}

function useCopied(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), 1600);
    return () => clearTimeout(timer);
  }, [copied]);
  return [copied, (text) => void copyText(text).then(setCopied)];
}

export function CopyButton({ text }: { text: string }): JSX.Element {
  const strings = useStrings();
  const [copied, copy] = useCopied();
  return (
    <IconButton
      icon={copied ? 'check' : 'copy'}
      label={copied ? strings.copied : strings.copy}
      onClick={() => copy(text)}
    />
  );
}

export function CopyCodeButton({ text }: { text: string }): JSX.Element {
  const strings = useStrings();
  const [copied, copy] = useCopied();
  return (
    <button type="button" class="copy-code" aria-label={strings.copyCode} onClick={() => copy(text)}>
      <Icon name={copied ? 'check' : 'copy'} />
      <span>{copied ? strings.copied : strings.copy}</span>
    </button>
  );
}
