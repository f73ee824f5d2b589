import { describe, expect, it } from 'vitest';
import { readChunk, readItem } from './chunks';

function chunk(value: object): string {
  return JSON.stringify({ id: 'chatcmpl-1', model: 'm', ...value });
}
const id = { kind: 'id', id: 'chatcmpl-1', model: 'm' };

describe('readChunk', () => {
  it('reads thinking, text and calls', () => {
    expect(readChunk(chunk({ choices: [{ delta: { role: 'assistant', content: '' } }] }))).toEqual([id]);
    expect(readChunk(chunk({ choices: [{ delta: { reasoning_content: 'hm', content: 'so' } }] }))).toEqual([
      id,
      { kind: 'thinking', text: 'hm' },
      { kind: 'text', text: 'so' },
    ]);
    const calls = [
      { index: 1, id: 'c', function: { name: 'f', arguments: '{' } },
      { index: 1, function: { arguments: '}' } },
    ];
    expect(readChunk(chunk({ choices: [{ delta: { tool_calls: calls } }] }))).toEqual([
      id,
      { kind: 'tool', index: 1, id: 'c', name: 'f', arguments: '{' },
      { kind: 'tool', index: 1, id: null, name: '', arguments: '}' },
    ]);
  });

  it('reads how an answer ended', () => {
    const details = { type: 'loop', period: 6, repeats: 9, first_token: 120 };
    const choice = { delta: {}, finish_reason: 'stop', finish_details: details };
    expect(readChunk(chunk({ choices: [choice] }))).toEqual([
      id,
      { kind: 'finish', reason: 'stop', details: { type: 'loop', period: 6, repeats: 9, firstToken: 120 } },
    ]);
  });

  it('reads a loop that was only observed', () => {
    const seen = { type: 'stop', loop_observed: { period: 6, repeats: 9, first_token: 120 } };
    const choice = { delta: {}, finish_reason: 'stop', finish_details: seen };
    expect(readChunk(chunk({ choices: [choice] }))[1]).toEqual({
      kind: 'finish',
      reason: 'stop',
      details: { type: 'stop', period: 6, repeats: 9, firstToken: 120 },
    });
  });

  it('reads the figures of a chunk without choices, and leaves out what is missing', () => {
    const usage = { prompt_tokens: 10, completion_tokens: 4, prompt_tokens_details: { cached_tokens: 8 } };
    const timings = {
      queue_ms: 1,
      prefill_ms: 2,
      prefill_tokens_per_second: 3,
      decode_ms: 4,
      decode_tokens_per_second: 5,
    };
    expect(readChunk(chunk({ choices: [], usage, timings }))[1]).toEqual({
      kind: 'figures',
      figures: {
        promptTokens: 10,
        completionTokens: 4,
        cachedTokens: 8,
        queueMs: 1,
        prefillMs: 2,
        prefillRate: 3,
        decodeMs: 4,
        decodeRate: 5,
      },
    });
    expect(readChunk(chunk({ choices: [], usage: null }))).toEqual([id]);
    expect(readChunk(chunk({ choices: [], usage: {} }))[1]).toMatchObject({
      figures: { cachedTokens: null, decodeRate: null },
    });
  });

  it('reads errors, the end, and nonsense', () => {
    expect(readChunk('{"error":{"message":"out of rows"}}')).toEqual([{ kind: 'error', message: 'out of rows' }]);
    expect(readChunk('[DONE]')).toEqual([{ kind: 'end' }]);
    expect(readChunk('{"id":')).toMatchObject([{ kind: 'error' }]);
    expect(readChunk('[]')).toMatchObject([{ kind: 'error' }]);
    expect(readChunk('{"choices":[{"delta":{"content":7,"tool_calls":"x"}}]}')).toEqual([]);
  });
});

describe('readItem', () => {
  it('reads the progress of a prefill, and no other comment', () => {
    expect(readItem({ kind: 'comment', text: 'prefill 1234/5678' })).toEqual([
      { kind: 'prefill', done: 1234, total: 5678 },
    ]);
    expect(readItem({ kind: 'comment', text: 'ping' })).toEqual([]);
    expect(readItem({ kind: 'comment', text: 'prefill x/5' })).toEqual([]);
  });
});
