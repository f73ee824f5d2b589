import { describe, expect, it } from 'vitest';
import { belongsToInputMethod, composerAction, shortcutOf, type Key } from './keys';

function key(change: Partial<Key>): Key {
  return {
    key: 'Enter',
    code: 'Enter',
    keyCode: 13,
    isComposing: false,
    shiftKey: false,
    ctrlKey: false,
    altKey: false,
    metaKey: false,
    ...change,
  };
}

describe('composerAction', () => {
  it('sends with Enter, and makes a line with Shift+Enter', () => {
    expect(composerAction(key({}), false, false)).toBe('send');
    expect(composerAction(key({ shiftKey: true }), false, false)).toBe('newline');
  });

  it('leaves the Enter of a composition to the input method', () => {
    expect(composerAction(key({ isComposing: true }), false, false)).toBe('none');
    expect(composerAction(key({ keyCode: 229 }), false, false)).toBe('none');
    expect(composerAction(key({ key: 'Process', keyCode: 229, isComposing: true }), false, false)).toBe('none');
    expect(belongsToInputMethod({ isComposing: false, keyCode: 13 })).toBe(false);
  });

  it('makes a line on touch keyboards, where Ctrl+Enter still sends', () => {
    expect(composerAction(key({}), false, true)).toBe('newline');
    expect(composerAction(key({ ctrlKey: true }), false, true)).toBe('send');
  });

  it('edits the last question from an empty field only', () => {
    const up = key({ key: 'ArrowUp', code: 'ArrowUp', keyCode: 38 });
    expect(composerAction(up, true, false)).toBe('edit-last');
    expect(composerAction(up, false, false)).toBe('none');
    expect(composerAction({ ...up, shiftKey: true }, true, false)).toBe('none');
  });
});

describe('shortcutOf', () => {
  it('reads places of keys, not what Alt makes of them', () => {
    expect(shortcutOf(key({ key: '˜', code: 'KeyN', altKey: true }))).toBe('new');
    expect(shortcutOf(key({ key: 'n', code: 'KeyN' }))).toBeNull();
    expect(shortcutOf(key({ key: 'n', code: 'KeyN', altKey: true, ctrlKey: true }))).toBeNull();
  });

  it('leaves Escape to the input method while it composes', () => {
    expect(shortcutOf(key({ key: 'Escape', code: 'Escape', keyCode: 27 }))).toBe('stop');
    expect(shortcutOf(key({ key: 'Escape', code: 'Escape', keyCode: 229, isComposing: true }))).toBeNull();
  });
});
