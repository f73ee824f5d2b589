import { describe, expect, it } from 'vitest';
import { SseParser, type SseItem } from './sse';

const encoder = new TextEncoder();

function parseBy(text: string, size: number): SseItem[] {
  const parser = new SseParser();
  const bytes = encoder.encode(text);
  const items: SseItem[] = [];
  for (let at = 0; at < bytes.length; at += size) items.push(...parser.push(bytes.subarray(at, at + size)));
  return items;
}

const stream =
  ': prefill 1/3\n\ndata: {"a":"물고기 🐟"}\n\n: ping\n\ndata: first\ndata: second\r\n\r\n' +
  'event: x\rdata:tight\r\rdata: [DONE]\n\n';
const expected: SseItem[] = [
  { kind: 'comment', text: 'prefill 1/3' },
  { kind: 'data', data: '{"a":"물고기 🐟"}' },
  { kind: 'comment', text: 'ping' },
  { kind: 'data', data: 'first\nsecond' },
  { kind: 'data', data: 'tight' },
  { kind: 'data', data: '[DONE]' },
];

describe('SseParser', () => {
  it.each([1, 2, 3, 5, 7, 64, 4096])('reads the same from pieces of %i bytes', (size) => {
    expect(parseBy(stream, size)).toEqual(expected);
  });

  it('reports data when its event ends, not before', () => {
    const parser = new SseParser();
    expect(parser.push(encoder.encode('data: a\n'))).toEqual([]);
    expect(parser.push(encoder.encode('\n'))).toEqual([{ kind: 'data', data: 'a' }]);
  });

  it('drops an event that the end of the stream cuts', () => {
    expect(parseBy('data: whole\n\ndata: ha', 1)).toEqual([{ kind: 'data', data: 'whole' }]);
  });

  it('keeps empty data lines and a colon in the value', () => {
    expect(parseBy('data:\ndata: a: b\n\n', 1)).toEqual([{ kind: 'data', data: '\na: b' }]);
  });

  it('ignores blank events', () => {
    expect(parseBy('\n\n\n: x\n\n\n', 2)).toEqual([{ kind: 'comment', text: 'x' }]);
  });
});
