// Numbers and times as they are shown.
import type { Agreement, Cell } from './data';

const thinSpace = '\u2009';
const minus = '\u2212';

/** Digits after the point with which `value` has four that count, at most three. */
export function decimals(value: number): number {
  if (!Number.isFinite(value) || value === 0) return 0;
  return Math.min(3, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value)))));
}

/** One number of digits for a column, so that its points stand below each other: that of its largest value. */
export function sharedDecimals(values: number[]): number {
  const known = values.filter(Number.isFinite);
  return known.length === 0 ? 0 : decimals(Math.max(...known.map(Math.abs)));
}

export function number(value: number, digits: number): string {
  const [whole = '', part] = Math.abs(value).toFixed(digits).split('.');
  const grouped = whole.length < 5 ? whole : whole.replace(/(\d)(?=(\d{3})+$)/g, `$1${thinSpace}`);
  const text = part === undefined ? grouped : `${grouped}.${part}`;
  return value < 0 && Number(text.replaceAll(thinSpace, '')) !== 0 ? minus + text : text;
}

export function percent(share: number): string {
  const value = share * 100;
  return `${number(value, value !== 0 && value < 10 ? 2 : 1)} %`;
}

/** The mean, or the range of a publication that tells no more. */
export function figure(cell: Cell, digits: number): string {
  if (cell.mean !== undefined) return number(cell.mean, digits);
  if (cell.publishedLow === undefined || cell.publishedHigh === undefined) return '';
  return `${number(cell.publishedLow, digits)}–${number(cell.publishedHigh, digits)}`;
}

/** Standard deviation, its share of the mean, and the number of runs. */
export function spread(cell: Cell, digits: number): string {
  if (cell.n === 0) return 'published';
  if (cell.deviation === undefined) return `n ${cell.n}`;
  const share = cell.variation === undefined ? '' : ` · ${percent(cell.variation)}`;
  return `± ${number(cell.deviation, Math.min(3, digits + 1))}${share} · n ${cell.n}`;
}

export function ratio(cell: Cell): string {
  if (cell.ratio === undefined) return '';
  // A per mille more or less is worth seeing near 1, and where the interval is that narrow.
  const width = (cell.ratioHigh ?? Infinity) - (cell.ratioLow ?? -Infinity);
  const digits = Math.abs(cell.ratio - 1) < 0.1 || width < 0.02 ? 3 : 2;
  const value = `× ${number(cell.ratio, digits)}`;
  if (cell.ratioLow === undefined || cell.ratioHigh === undefined) return value;
  return `${value} [${number(cell.ratioLow, digits)}, ${number(cell.ratioHigh, digits)}]`;
}

/** Whether the figure is better or worse than the first result's for certain: its interval leaves out 1. */
export function verdict(cell: Cell, moreIsBetter: boolean): 'better' | 'worse' | '' {
  if (cell.ratioLow === undefined || cell.ratioHigh === undefined) return '';
  if (cell.ratioLow <= 1 && cell.ratioHigh >= 1) return '';
  return cell.ratioLow > 1 === moreIsBetter ? 'better' : 'worse';
}

export function agreement(one: Agreement): string {
  if (one.pairs === 0) return 'other prompts';
  const pairs = one.pairs === 1 ? 'pair' : 'pairs';
  const equal = one.equal === one.pairs ? `all ${one.pairs} ${pairs} equal` : `${one.equal} of ${one.pairs} ${pairs} equal`;
  const all = one.equal === one.pairs && one.pairs === 1 ? 'equal' : equal;
  // People count from 1.
  const where = one.divergence === undefined ? '' : `, part at token ${number(one.divergence + 1, 0)}`;
  const others = one.otherPrompts === 0 ? '' : `; ${one.otherPrompts} with other prompts`;
  return all + where + others;
}

export function context(tokens: number): string {
  if (tokens >= 1024 && tokens % 1024 === 0) return `${tokens / 1024}K`;
  return number(tokens, 0);
}

/** "2026-11-30T12:00:00Z" as "2026-11-30 12:00 UTC"; anything else as it is. */
export function time(text: string): string {
  const match = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\d(?:\.\d+)?Z$/.exec(text);
  return match === null ? text : `${match[1]} ${match[2]} UTC`;
}

const variants: Record<string, string> = {
  session: 'inside of the process',
  http_ids_exact: 'HTTP with ids, exact continuation',
  http_ids_reprocessed: 'HTTP with ids, generated part reprocessed',
  http_ids_cold: 'HTTP with ids, nothing kept',
  http_text: 'HTTP with text',
  mixed: 'stages differ',
};

export function variant(name: string): string {
  return variants[name] ?? name;
}

/** Pieces of a text; those that are addresses of the web are links. */
export function linkPieces(text: string): { text: string; href?: string }[] {
  const pieces: { text: string; href?: string }[] = [];
  let from = 0;
  for (const match of text.matchAll(/https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]]/g)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index) });
    pieces.push({ text: match[0], href: match[0] });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from) });
  return pieces;
}
