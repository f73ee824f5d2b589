import { describe, expect, it } from 'vitest';
import type { StreamEvent } from '../api/chunks';
import { applyEvent, canContinue, endAnswer, newAnswer, reopen, wholeCalls } from './answer';
import { advance } from './answers';
import type { Live } from './app';

function play(events: StreamEvent[], stepMs = 100): ReturnType<typeof newAnswer> {
  let answer = newAnswer(null, 'm', 0);
  let live: Live = {
    answerId: answer.id,
    requestId: null,
    stopping: false,
    prefill: null,
    beganAt: 0,
    thinkingSince: null,
    firstTokenAt: null,
    pieces: 0,
  };
  let now = 0;
  for (const event of events) {
    now += stepMs;
    live = advance(live, event, now);
    answer = applyEvent(answer, event, live.thinkingSince, now);
  }
  return endAnswer(answer, false, live.thinkingSince, now + stepMs);
}

const done: StreamEvent = { kind: 'finish', reason: 'stop', details: null };

describe('an answer', () => {
  it('gathers thinking and text, and times the thinking', () => {
    const answer = play([
      { kind: 'id', id: 'x', model: 'other' },
      { kind: 'thinking', text: 'a' },
      { kind: 'thinking', text: 'b' },
      { kind: 'text', text: 'c' },
      { kind: 'text', text: 'd' },
      done,
    ]);
    expect(answer).toMatchObject({
      model: 'other',
      thinking: 'ab',
      thinkingMs: 200,
      text: 'cd',
      status: 'complete',
    });
  });

  it('has no time of thinking without thoughts, and ends it with the stream', () => {
    expect(play([{ kind: 'text', text: 'c' }, done]).thinkingMs).toBeNull();
    expect(play([{ kind: 'thinking', text: 'a' }]).thinkingMs).toBe(100);
  });

  it('puts calls together by their index', () => {
    const answer = play([
      { kind: 'tool', index: 0, id: 'p', name: 'f', arguments: '{"a"' },
      { kind: 'tool', index: 1, id: 'q', name: 'g', arguments: '' },
      { kind: 'tool', index: 0, id: null, name: '', arguments: ':1}' },
      { kind: 'finish', reason: 'tool_calls', details: null },
    ]);
    expect(answer.toolCalls).toEqual([
      { id: 'p', name: 'f', arguments: '{"a":1}' },
      { id: 'q', name: 'g', arguments: '' },
    ]);
  });

  it('does not grow without bound by a wild index', () => {
    expect(
      play([{ kind: 'tool', index: 1e9, id: 'p', name: 'f', arguments: '' }]).toolCalls.length,
    ).toBeLessThanOrEqual(256);
  });

  it('is cut without a finish, failed with an error, stopped by the user', () => {
    expect(play([{ kind: 'text', text: 'c' }]).status).toBe('cut');
    expect(
      play([
        { kind: 'text', text: 'c' },
        { kind: 'error', message: 'no' },
      ]),
    ).toMatchObject({ status: 'failed', error: 'no' });
    expect(endAnswer(newAnswer(null, 'm', 0), true, null, 0).status).toBe('stopped');
  });

  it('has whole calls only where it waits for them, and of these the ones that are JSON', () => {
    const tool = (index: number, text: string): StreamEvent => ({
      kind: 'tool',
      index,
      id: `${index}`,
      name: 'f',
      arguments: text,
    });
    const calls = [tool(0, '{"a": 1}'), tool(1, '{"b": '), tool(3, '[]')];
    const waits: StreamEvent = { kind: 'finish', reason: 'tool_calls', details: null };
    expect(wholeCalls(play([...calls, waits])).map((call) => call.id)).toEqual(['0']);
    expect(wholeCalls(play([...calls, { ...waits, reason: 'length' }]))).toEqual([]);
    expect(wholeCalls(play(calls))).toEqual([]);
  });

  it('may go on after it was cut or ran out of length, not after its end, a loop or a call', () => {
    const cut = play([{ kind: 'text', text: 'c' }]);
    expect(canContinue(cut)).toBe(true);
    expect(
      canContinue(
        play([
          { kind: 'text', text: 'c' },
          { kind: 'finish', reason: 'length', details: null },
        ]),
      ),
    ).toBe(true);
    expect(canContinue(play([{ kind: 'text', text: 'c' }, done]))).toBe(false);
    expect(canContinue(play([{ kind: 'thinking', text: 'c' }]))).toBe(false);
    const loop = { type: 'loop', period: 1, repeats: 9, firstToken: 0 };
    expect(
      canContinue(
        play([
          { kind: 'text', text: 'c' },
          { kind: 'finish', reason: 'length', details: loop },
        ]),
      ),
    ).toBe(false);
    const full = { type: 'context_full', period: null, repeats: null, firstToken: null };
    expect(
      canContinue(
        play([
          { kind: 'text', text: 'c' },
          { kind: 'finish', reason: 'length', details: full },
        ]),
      ),
    ).toBe(false);
    expect(canContinue({ ...cut, toolCalls: [{ id: '', name: 'f', arguments: '' }] })).toBe(false);
    expect(reopen(cut)).toMatchObject({ status: 'streaming', text: 'c', finishReason: null });
  });
});
