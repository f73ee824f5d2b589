import { describe, expect, it } from 'vitest';
import * as format from './format';

const cell = { n: 3, mean: 1455.123, deviation: 1.4567, variation: 0.001, ratio: 1.0893, ratioLow: 1.0712, ratioHigh: 1.1075 };

describe('numbers', () => {
  it('keep four digits that count, at most three after the point', () => {
    for (const [value, digits] of [[1455.1, 0], [999.9, 1], [37.03, 2], [9.999, 3], [0.0123, 3], [0, 0], [-37, 2], [NaN, 0]] as const)
      expect(format.decimals(value), String(value)).toBe(digits);
  });
  it('share the digits of the largest, and unknown ones do not count', () => {
    expect(format.sharedDecimals([37.03, 1455, NaN])).toBe(0);
    expect(format.sharedDecimals([6.11, 22.52])).toBe(2);
    expect(format.sharedDecimals([])).toBe(0);
  });
  it('are grouped and have a real minus', () => {
    expect(format.number(1234567.891, 2)).toBe('1\u2009234\u2009567.89');
    expect(format.number(9999.5, 0)).toBe('10\u2009000');
    expect(format.number(999.5, 0)).toBe('1000');
    expect(format.number(-0.5, 1)).toBe('\u22120.5');
    expect(format.number(-0.001, 1)).toBe('0.0');
  });
  it('of shares are per cent', () => {
    expect(format.percent(0.0037)).toBe('0.37 %');
    expect(format.percent(0.123)).toBe('12.3 %');
    expect(format.percent(0)).toBe('0.0 %');
  });
});

describe('cells', () => {
  it('have mean, spread and ratio', () => {
    expect(format.figure(cell, 0)).toBe('1455');
    expect(format.spread(cell, 0)).toBe('± 1.5 · 0.10 % · n 3');
    expect(format.ratio(cell)).toBe('× 1.089 [1.071, 1.107]');
    expect(format.ratio({ n: 3, ratio: 2.2, ratioLow: 1.5067, ratioHigh: 3.6516 })).toBe('× 2.20 [1.51, 3.65]');
    expect(format.ratio({ n: 3, ratio: 0.77, ratioLow: 0.7688, ratioHigh: 0.7712 })).toBe('× 0.770 [0.769, 0.771]');
  });
  it('of one run have no spread, of a publication neither', () => {
    expect(format.spread({ n: 1, mean: 5 }, 1)).toBe('n 1');
    expect(format.spread({ n: 0, mean: 5 }, 1)).toBe('published');
    expect(format.ratio({ n: 0, mean: 5, ratio: 2 })).toBe('× 2.00');
    expect(format.ratio({ n: 0, mean: 5 })).toBe('');
  });
  it('of a range show both ends', () => {
    expect(format.figure({ n: 0, publishedLow: 61, publishedHigh: 64 }, 0)).toBe('61–64');
    expect(format.figure({ n: 0 }, 0)).toBe('');
  });
  it('are better or worse only where the interval leaves out 1', () => {
    expect(format.verdict(cell, true)).toBe('better');
    expect(format.verdict(cell, false)).toBe('worse');
    expect(format.verdict({ n: 3, ratioLow: 0.9, ratioHigh: 0.95 }, true)).toBe('worse');
    expect(format.verdict({ n: 3, ratioLow: 0.9, ratioHigh: 1.1 }, true)).toBe('');
    expect(format.verdict({ n: 3, ratio: 3 }, true)).toBe('');
  });
});

describe('agreement', () => {
  const one = { source: 'novel', stage: '8K', result: 0, withFirst: false, pairs: 3, equal: 3, otherPrompts: 0 };
  it('counts pairs and tells where they part, from 1', () => {
    expect(format.agreement(one)).toBe('all 3 pairs equal');
    expect(format.agreement({ ...one, pairs: 1, equal: 1 })).toBe('equal');
    expect(format.agreement({ ...one, equal: 1, divergence: 41 })).toBe('1 of 3 pairs equal, part at token 42');
    expect(format.agreement({ ...one, pairs: 1, equal: 0, otherPrompts: 2 })).toBe('0 of 1 pair equal; 2 with other prompts');
    expect(format.agreement({ ...one, pairs: 0, equal: 0, otherPrompts: 3 })).toBe('other prompts');
  });
});

describe('texts', () => {
  it('of contexts are short', () => {
    expect(format.context(131072)).toBe('128K');
    expect(format.context(2000)).toBe('2000');
    expect(format.context(512)).toBe('512');
  });
  it('of times lose their seconds, strange ones stay', () => {
    expect(format.time('2026-11-30T12:34:56Z')).toBe('2026-11-30 12:34 UTC');
    expect(format.time('yesterday')).toBe('yesterday');
  });
  it('of variants are sentences, unknown ones stay', () => {
    expect(format.variant('http_ids_exact')).toBe('HTTP with ids, exact continuation');
    expect(format.variant('carrier pigeon')).toBe('carrier pigeon');
  });
  it('become links only where they are addresses of the web', () => {
    expect(format.linkPieces('see https://example.org/a?b=c. Or javascript:alert(1)')).toEqual([
      { text: 'see ' },
      { text: 'https://example.org/a?b=c', href: 'https://example.org/a?b=c' },
      { text: '. Or javascript:alert(1)' },
    ]);
    expect(format.linkPieces('plain')).toEqual([{ text: 'plain' }]);
    expect(format.linkPieces('(https://a.b/c)')[1]).toEqual({ text: 'https://a.b/c', href: 'https://a.b/c' });
  });
});
