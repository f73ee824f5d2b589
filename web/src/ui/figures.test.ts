// @vitest-environment jsdom
import { describe, expect, it } from 'vitest';
import type { Live } from '../state/app';
import { newAnswer } from '../state/answer';
import { languageFor, languages } from '../strings';
import { endingOf } from './AnswerView';
import { liveFigures } from './FiguresLine';
import { readNumber } from './fields';
import { formatDuration, formatRate, formatTokens } from './format';

const live: Live = {
  answerId: '',
  requestId: null,
  stopping: false,
  prefill: { done: 3000, total: 5000, doneAtFirst: 1000, firstAt: 100, lastAt: 1100 },
  beganAt: 0,
  thinkingSince: null,
  firstTokenAt: null,
  pieces: 0,
};

describe('figures', () => {
  it('are estimated while an answer comes, and marked as estimates', () => {
    expect(liveFigures(live, null, 1000)).toEqual({
      prefill: '≈ 2,000',
      decode: null,
      cached: null,
      usedTokens: 5000,
    });
    const writing = { ...live, firstTokenAt: 1000, pieces: 50 };
    expect(liveFigures(writing, null, 3000)).toEqual({
      prefill: '≈ 2,000',
      decode: '≈ 25.0',
      cached: null,
      usedTokens: 5050,
    });
    expect(liveFigures({ ...writing, prefill: null }, null, 3000).usedTokens).toBeNull();
    expect(liveFigures({ ...writing, pieces: 1 }, null, 3000).decode).toBeNull();
  });

  it('are short', () => {
    expect([1455.1, 37.03, 0.456].map(formatRate)).toEqual(['1,455', '37.0', '0.46']);
    expect([812, 9999, 131072, 2097152].map(formatTokens)).toEqual(['812', '9,999', '128K', '2.0M']);
    expect(formatDuration(1840, languages.en)).toBe('1.8 s');
    expect(formatDuration(71900, languages.en)).toBe('1 min 11 s');
    expect(formatDuration(71900, languages.ko)).toBe('1분 11초');
  });
});

describe('endings', () => {
  const { en } = languages;
  const node = { ...newAnswer(null, 'm', 0), text: 'x', status: 'complete' as const, finishReason: 'stop' };
  const loop = { type: 'loop', period: 6, repeats: 9, firstToken: 12 };

  it('are silent only for an ordinary end', () => {
    expect(endingOf(node, en)).toBeNull();
    for (const finishReason of ['length', 'tool_calls', 'content_filter', 'never_heard_of']) {
      expect(endingOf({ ...node, finishReason }, en)).not.toBeNull();
    }
  });

  it('name a loop whatever the finish reason', () => {
    for (const finishReason of ['stop', 'length']) {
      expect(endingOf({ ...node, finishReason, finishDetails: loop }, en)?.text).toBe(
        'Stopped because it repeated itself. (6 tokens, 9 times)',
      );
    }
    expect(endingOf({ ...node, finishDetails: { ...loop, type: 'stop' } }, en)?.text).toMatch(/only observes/);
  });

  it('tell an answer that was cut from one that never came', () => {
    const why = (type: string): string | undefined =>
      endingOf(
        { ...node, finishReason: 'length', finishDetails: { type, period: null, repeats: null, firstToken: null } },
        en,
      )?.text;
    expect(['max_tokens', 'context_full', 'time_limit', 'shutdown', 'cancelled'].map(why)).toEqual([
      en.ended.length,
      en.ended.contextFull,
      en.ended.timeLimit,
      en.ended.shutdown,
      en.ended.cancelled,
    ]);
    expect(endingOf({ ...node, status: 'cut' }, en)?.text).toBe(en.ended.cut);
    expect(endingOf({ ...node, status: 'cut', text: '' }, en)?.text).toBe(en.ended.cutEmpty);
  });
});

describe('readNumber', () => {
  it('takes numbers in range, and a decimal comma', () => {
    expect(readNumber('0,7', 0, 2, false)).toBe(0.7);
    expect(readNumber(' ', 0, 2, false)).toBeNull();
    for (const text of ['-1', '3', 'NaN', 'Infinity', 'x', '1e999'])
      expect(readNumber(text, 0, 2, false)).toBeUndefined();
    expect(readNumber('1.5', 0, 2, true)).toBeUndefined();
  });
});

describe('languageFor', () => {
  it('takes what was chosen, or the first preferred one that is spoken', () => {
    expect(languageFor('ko', ['en'])).toBe('ko');
    expect(languageFor('system', ['fr-FR', 'ko-KR', 'en'])).toBe('ko');
    expect(languageFor('system', ['fr'])).toBe('en');
  });
});
