// Splits Markdown into top-level blocks, cheaply while it grows: a block that is over is never looked at again.
import { Marked, type Tokens } from 'marked';

export type Block =
  { kind: 'markdown'; raw: string } | { kind: 'code'; raw: string; language: string; text: string };

export interface Split {
  source: string;
  blocks: Block[];
}

const lexer = new Marked({ gfm: true });

/** Blocks at the end that more text may still change: the last one, and the one it may turn out to belong to. */
const openBlocks = 2;

export function splitBlocks(previous: Split | null, text: string): Split {
  const source = text.replace(/\r\n?/g, '\n');
  if (previous === null || !source.startsWith(previous.source)) return { source, blocks: lexBlocks(source) };
  if (source === previous.source) return previous;
  const kept = previous.blocks.slice(0, Math.max(0, previous.blocks.length - openBlocks));
  const start = kept.reduce((sum, block) => sum + block.raw.length, 0);
  return { source, blocks: [...kept, ...lexBlocks(source.slice(start))] };
}

function lexBlocks(source: string): Block[] {
  const blocks: Block[] = [];
  for (const token of lexer.lexer(source)) {
    const last = blocks.at(-1);
    if (token.type === 'space' && last !== undefined) {
      // Blank lines belong to the block above them, so that blocks add up to the source.
      blocks[blocks.length - 1] = { ...last, raw: last.raw + token.raw };
    } else if (token.type === 'code') {
      const code = token as Tokens.Code;
      blocks.push({ kind: 'code', raw: code.raw, language: languageOf(code), text: code.text });
    } else {
      blocks.push({ kind: 'markdown', raw: token.raw });
    }
  }
  return blocks;
}

export function languageOf(code: { lang?: string | undefined }): string {
  return /^[\w+#.-]+/.exec(code.lang ?? '')?.[0] ?? '';
}

/** Link definitions, which other blocks may use. */
export function definitionsIn(blocks: Block[]): string {
  const lines = blocks.filter((block) => block.kind === 'markdown' && /^ {0,3}\[[^\]]+\]:/.test(block.raw));
  return lines.map((block) => block.raw.trimEnd()).join('\n');
}

/** Holds back a last line that could still become anything: "-" is a list, a rule or a heading's underline. */
export function withoutDoubtfulLine(text: string): string {
  const begin = text.lastIndexOf('\n') + 1;
  return /^\s*([-=*+#>|`~_:]+|\d{1,9}[.)]?)\s*$/.test(text.slice(begin)) ? text.slice(0, begin) : text;
}

/** Closes what the end of a growing block leaves open, so that it looks now as it will look when closed. */
export function mended(raw: string): string {
  let text = raw.replace(/\[([^\]\n]*)\]\([^)\n]*$/, '$1').replace(/(^|\s)[*_`]+$/, '$1');
  if (count(text, /`/g) % 2 === 1) return `${text}\``;
  if (count(text, /\*\*/g) % 2 === 1) text = `${text.replace(/\*$/, '')}**`;
  return text;
}

function count(text: string, pattern: RegExp): number {
  return text.match(pattern)?.length ?? 0;
}
