import { describe, expect, it } from 'vitest';
import { definitionsIn, mended, splitBlocks, withoutDoubtfulLine, type Split } from './blocks';

const text = [
  '# Title',
  '',
  'A paragraph',
  'of two lines with **bold** and `code`.',
  '',
  '- one',
  '- two',
  '',
  '  more of two',
  '- three',
  '',
  '1. first',
  '2. second',
  '',
  '```cpp',
  'int main() {',
  '',
  '  return 0;',
  '}',
  '```',
  '',
  '> quoted',
  'lazily',
  '',
  '| a | b |',
  '|---|---|',
  '| 1 | 2 |',
  '',
  '    indented',
  '',
  '    code',
  '',
  'Under',
  '=====',
  '',
  '---',
  '* a',
  '+ b',
  '<details>',
  'x',
  '</details>',
  '',
  '[ref]: https://example.org',
  '',
  'See [ref].',
  '',
  '~~~',
  'open fence',
  '',
  'to the end',
].join('\n');

function grown(source: string, step: (at: number) => number): Split {
  let split: Split | null = null;
  for (let at = 0; at < source.length;) {
    at = Math.min(source.length, at + step(at));
    split = splitBlocks(split, source.slice(0, at));
  }
  return split ?? { source: '', blocks: [] };
}

describe('splitBlocks', () => {
  it('finds the blocks, which add up to the source', () => {
    const { blocks } = splitBlocks(null, text);
    expect(blocks.map((block) => block.raw).join('')).toBe(text);
    const code = blocks.filter((block) => block.kind === 'code');
    expect(code.map(({ language, text: body }) => [language, body])).toEqual([
      ['cpp', 'int main() {\n\n  return 0;\n}'],
      ['', 'indented\n\ncode'],
      ['', 'open fence\n\nto the end'],
    ]);
  });

  it.each([1, 2, 3, 7, 19])('finds the same when text comes in pieces of %i', (size) => {
    expect(grown(text, () => size).blocks).toEqual(splitBlocks(null, text).blocks);
  });

  it('finds the same for pieces of any size, from any beginning', () => {
    let state = 7;
    const random = (): number => (state = (state * 48271) % 2147483647);
    for (let round = 0; round < 60; round++) {
      const from = random() % text.length;
      const source = text.slice(from) + text.slice(0, from);
      expect(grown(source, () => 1 + (random() % 23)).blocks).toEqual(splitBlocks(null, source).blocks);
    }
  });

  it('keeps finished blocks as they are', () => {
    const first = splitBlocks(null, 'one\n\ntwo\n\nthree\n\nfo');
    const second = splitBlocks(first, 'one\n\ntwo\n\nthree\n\nfour');
    expect(second.blocks[0]).toBe(first.blocks[0]);
    expect(second.blocks[1]).toBe(first.blocks[1]);
    expect(second.blocks.at(-1)?.raw).toBe('four');
  });

  it('begins anew when the text is another one', () => {
    const first = splitBlocks(null, 'one\n\ntwo');
    expect(splitBlocks(first, 'two').blocks).toEqual([{ kind: 'markdown', raw: 'two' }]);
  });

  it('reads ends of lines of other systems', () => {
    expect(splitBlocks(null, 'a\r\n\r\n```\r\nb\r\n```').blocks.at(-1)).toMatchObject({ kind: 'code', text: 'b' });
  });
});

describe('the growing end', () => {
  it('holds back a line that may become anything', () => {
    expect(withoutDoubtfulLine('Items:\n-')).toBe('Items:\n');
    expect(withoutDoubtfulLine('Items:\n12.')).toBe('Items:\n');
    expect(withoutDoubtfulLine('a\n``')).toBe('a\n');
    expect(withoutDoubtfulLine('Items:\n- x')).toBe('Items:\n- x');
    expect(withoutDoubtfulLine('in 1984')).toBe('in 1984');
  });

  it('closes what is open', () => {
    expect(mended('some **bold')).toBe('some **bold**');
    expect(mended('some **bold*')).toBe('some **bold**');
    expect(mended('some `code **')).toBe('some `code `');
    expect(mended('some **')).toBe('some ');
    expect(mended('a [link](https://exa')).toBe('a link');
    expect(mended('a **b** `c`')).toBe('a **b** `c`');
  });

  it('collects link definitions', () => {
    expect(definitionsIn(splitBlocks(null, text).blocks)).toBe('[ref]: https://example.org');
  });
});
