// What a key does. Pure, so that the rules for input methods can be tested without one.

export interface Key {
  key: string;
  code: string;
  keyCode: number;
  isComposing: boolean;
  shiftKey: boolean;
  ctrlKey: boolean;
  altKey: boolean;
  metaKey: boolean;
}

/**
 * The Enter that ends a Korean, Japanese or Chinese composition belongs to the input method. Chromium and Firefox
 * set isComposing on it; Safari has ended the composition by then and leaves only the key code 229.
 */
export function belongsToInputMethod(event: Pick<Key, 'isComposing' | 'keyCode'>): boolean {
  return event.isComposing || event.keyCode === 229;
}

export type ComposerAction = 'send' | 'newline' | 'edit-last' | 'none';

/** `touch`: an on-screen keyboard, whose Enter makes a new line because it has no Shift+Enter. */
export function composerAction(event: Key, empty: boolean, touch: boolean): ComposerAction {
  if (belongsToInputMethod(event)) return 'none';
  if (event.key === 'Enter') {
    if (event.ctrlKey || event.metaKey) return 'send';
    return event.shiftKey || event.altKey || touch ? 'newline' : 'send';
  }
  const plain = !event.shiftKey && !event.ctrlKey && !event.altKey && !event.metaKey;
  return event.key === 'ArrowUp' && empty && plain ? 'edit-last' : 'none';
}

export type Shortcut = 'stop' | 'new' | 'list' | 'settings' | 'help' | 'write' | 'copy';

const letters: Record<string, Shortcut> = {
  KeyN: 'new',
  KeyB: 'list',
  KeyS: 'settings',
  KeyK: 'help',
  KeyI: 'write',
  KeyC: 'copy',
};

/** Letters are taken by their place on the keyboard: with Alt they write other characters on some systems. */
export function shortcutOf(event: Key): Shortcut | null {
  if (belongsToInputMethod(event)) return null;
  if (event.key === 'Escape') return 'stop';
  if (!event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return null;
  return letters[event.code] ?? null;
}
