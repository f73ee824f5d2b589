import { describe, expect, it } from 'vitest';
import { defaultSampling, type AnswerNode, type ChatNode, type UserNode } from '../model';
import { newAnswer } from './answer';
import { buildRequest, messagesFrom } from './request';

function question(text: string, images: string[] = []): UserNode {
  return { kind: 'user', id: text, parent: null, createdAt: 0, text, images };
}

function answer(change: Partial<AnswerNode>): AnswerNode {
  return { ...newAnswer(null, 'm', 0), status: 'complete', finishReason: 'stop', ...change };
}

const call = { id: 'c', name: 'f', arguments: '{}' };

describe('messagesFrom', () => {
  it('hands back what was said, without answers that say nothing', () => {
    const path: ChatNode[] = [
      question('a'),
      answer({ status: 'cut', finishReason: null }),
      question('b'),
      answer({ text: 'c', thinking: 't' }),
    ];
    expect(messagesFrom(path, ' ')).toEqual([
      { role: 'user', content: 'a' },
      { role: 'user', content: 'b' },
      { role: 'assistant', content: 'c', reasoning_content: 't' },
    ]);
  });

  it('hands back whole calls with their results, and no others', () => {
    const whole = answer({ finishReason: 'tool_calls', toolCalls: [call] });
    const result: ChatNode = {
      kind: 'tool',
      id: 'r',
      parent: null,
      createdAt: 0,
      results: [{ callId: 'c', text: '7' }],
    };
    expect(messagesFrom([whole, result], '')).toEqual([
      {
        role: 'assistant',
        content: '',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'c', content: '7' },
    ]);
    expect(messagesFrom([answer({ status: 'cut', finishReason: null, toolCalls: [call] })], '')).toEqual([]);
  });

  it('puts images before the text', () => {
    expect(messagesFrom([question('what?', ['data:image/png;base64,AA=='])], 'sys')).toEqual([
      { role: 'system', content: 'sys' },
      {
        role: 'user',
        content: [
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AA==' } },
          { type: 'text', text: 'what?' },
        ],
      },
    ]);
  });
});

describe('buildRequest', () => {
  it('leaves to the server what was not set, and keeps a zero that was', () => {
    const request = buildRequest([question('a')], { ...defaultSampling, temperature: 0, seed: 0 }, '');
    expect(Object.keys(request)).toEqual(['messages', 'stream', 'stream_options', 'temperature', 'seed']);
    expect(request).toMatchObject({ temperature: 0, seed: 0 });
  });

  it('goes on with an answer that is the last', () => {
    const request = buildRequest([question('a'), answer({ text: 'b', status: 'cut' })], defaultSampling, 'm');
    expect(request['messages']).toEqual([
      { role: 'user', content: 'a' },
      { role: 'assistant', content: 'b', prefix: true },
    ]);
  });
});
