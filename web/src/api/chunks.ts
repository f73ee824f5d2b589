// One chunk of a streamed chat completion, as events that do not depend on how chunks were cut.
import { asArray, asNumber, asObject, asString, parseJson, type Json } from '../json';
import type { Figures, FinishDetails } from '../model';
import type { SseItem } from './sse';

export type StreamEvent =
  | { kind: 'id'; id: string; model: string }
  | { kind: 'thinking'; text: string }
  | { kind: 'text'; text: string }
  | { kind: 'tool'; index: number; id: string | null; name: string; arguments: string }
  | { kind: 'finish'; reason: string; details: FinishDetails | null }
  | { kind: 'figures'; figures: Figures }
  | { kind: 'prefill'; done: number; total: number }
  | { kind: 'error'; message: string }
  | { kind: 'end' };

/** Sentence of an error body in the shape of the OpenAI API, or null. */
export function errorMessage(body: unknown): string | null {
  const error = asObject(body)?.['error'];
  return asString(error) ?? asString(asObject(error)?.['message']);
}

function readFigures(chunk: Json): Figures | null {
  const usage = asObject(chunk['usage']);
  if (usage === null) return null;
  const timings = asObject(chunk['timings']) ?? asObject(usage['timings']) ?? {};
  const details = asObject(usage['prompt_tokens_details']);
  return {
    promptTokens: asNumber(usage['prompt_tokens']) ?? 0,
    completionTokens: asNumber(usage['completion_tokens']) ?? 0,
    cachedTokens: asNumber(details?.['cached_tokens']),
    queueMs: asNumber(timings['queue_ms']),
    prefillMs: asNumber(timings['prefill_ms']),
    prefillRate: asNumber(timings['prefill_tokens_per_second']),
    decodeMs: asNumber(timings['decode_ms']),
    decodeRate: asNumber(timings['decode_tokens_per_second']),
  };
}

function readDetails(choice: Json, chunk: Json): FinishDetails | null {
  const details = asObject(choice['finish_details']) ?? asObject(chunk['finish_details']);
  if (details === null) return null;
  // What ended the answer, or what the guard only saw.
  const loop = asObject(details['loop_observed']) ?? details;
  return {
    type: asString(details['type']),
    period: asNumber(loop['period']),
    repeats: asNumber(loop['repeats']),
    firstToken: asNumber(loop['first_token']),
  };
}

function readDelta(delta: Json, events: StreamEvent[]): void {
  const thinking = asString(delta['reasoning_content']);
  if (thinking) events.push({ kind: 'thinking', text: thinking });
  const text = asString(delta['content']);
  if (text) events.push({ kind: 'text', text });
  asArray(delta['tool_calls']).forEach((item, position) => {
    const call = asObject(item);
    const body = asObject(call?.['function']);
    if (call === null) return;
    events.push({
      kind: 'tool',
      index: asNumber(call['index']) ?? position,
      id: asString(call['id']),
      name: asString(body?.['name']) ?? '',
      arguments: asString(body?.['arguments']) ?? '',
    });
  });
}

export function readChunk(data: string): StreamEvent[] {
  if (data === '[DONE]') return [{ kind: 'end' }];
  const chunk = asObject(parseJson(data));
  if (chunk === null) return [{ kind: 'error', message: 'the server sent a chunk that is not JSON' }];
  if (chunk['error'] !== undefined && chunk['error'] !== null) {
    return [{ kind: 'error', message: errorMessage(chunk) ?? 'unknown error' }];
  }
  const events: StreamEvent[] = [];
  const id = asString(chunk['id']);
  if (id !== null) events.push({ kind: 'id', id, model: asString(chunk['model']) ?? '' });
  const choice = asObject(asArray(chunk['choices'])[0]);
  if (choice !== null) {
    readDelta(asObject(choice['delta']) ?? {}, events);
    const reason = asString(choice['finish_reason']);
    if (reason !== null) events.push({ kind: 'finish', reason, details: readDetails(choice, chunk) });
  }
  const figures = readFigures(chunk);
  if (figures !== null) events.push({ kind: 'figures', figures });
  return events;
}

export function readItem(item: SseItem): StreamEvent[] {
  if (item.kind === 'data') return readChunk(item.data);
  const match = /^prefill (\d+)\/(\d+)$/.exec(item.text);
  return match ? [{ kind: 'prefill', done: Number(match[1]), total: Number(match[2]) }] : [];
}
