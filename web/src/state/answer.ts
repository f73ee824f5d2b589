// How an answer grows: events of the stream in, the next state of the answer out.
import type { StreamEvent } from '../api/chunks';
import { asObject, parseJson } from '../json';
import type { AnswerNode, AnswerStatus, ToolCall } from '../model';
import { newId } from './tree';

export function newAnswer(parent: string | null, model: string, now: number): AnswerNode {
  return {
    kind: 'answer',
    id: newId(),
    parent,
    createdAt: now,
    status: 'streaming',
    model,
    thinking: '',
    thinkingMs: null,
    text: '',
    toolCalls: [],
    finishReason: null,
    finishDetails: null,
    error: null,
    figures: null,
  };
}

function withCall(answer: AnswerNode, event: Extract<StreamEvent, { kind: 'tool' }>): AnswerNode {
  const toolCalls = [...answer.toolCalls];
  while (toolCalls.length <= Math.min(event.index, 255)) toolCalls.push({ id: '', name: '', arguments: '' });
  const call = toolCalls[event.index];
  if (call === undefined) return answer;
  toolCalls[event.index] = {
    id: event.id ?? call.id,
    name: call.name + event.name,
    arguments: call.arguments + event.arguments,
  };
  return { ...answer, toolCalls };
}

/** `thinkingSince`: when its thinking began, null if it has not; the same clock as `now`. */
export function applyEvent(
  answer: AnswerNode,
  event: StreamEvent,
  thinkingSince: number | null,
  now: number,
): AnswerNode {
  const over = thinkingSince !== null && answer.thinkingMs === null;
  const thought = over ? { ...answer, thinkingMs: now - thinkingSince } : answer;
  switch (event.kind) {
    case 'id':
      return event.model === '' || event.model === answer.model ? answer : { ...answer, model: event.model };
    case 'thinking':
      return { ...answer, thinking: answer.thinking + event.text };
    case 'text':
      return { ...thought, text: thought.text + event.text };
    case 'tool':
      return withCall(thought, event);
    case 'finish':
      return { ...thought, finishReason: event.reason, finishDetails: event.details };
    case 'figures':
      return { ...answer, figures: event.figures };
    case 'error':
      return { ...thought, error: event.message };
    case 'prefill':
    case 'end':
      return answer;
  }
}

/** The stream is over. Without a finish reason it was cut, whatever had arrived by then. */
export function endAnswer(
  answer: AnswerNode,
  stoppedByUser: boolean,
  thinkingSince: number | null,
  now: number,
): AnswerNode {
  let status: AnswerStatus = 'complete';
  if (answer.error !== null) status = 'failed';
  else if (stoppedByUser) status = 'stopped';
  else if (answer.finishReason === null) status = 'cut';
  const thinkingMs = answer.thinkingMs ?? (thinkingSince === null ? null : now - thinkingSince);
  return { ...answer, status, thinkingMs };
}

/** Ready to receive the rest of an answer that was not finished. */
export function reopen(answer: AnswerNode): AnswerNode {
  return { ...answer, status: 'streaming', finishReason: null, finishDetails: null, error: null, figures: null };
}

/**
 * The calls that may be answered and handed back. Beside them an answer can have calls that were cut, or that the
 * server took back for their markup after it had announced them.
 */
export function wholeCalls(answer: AnswerNode): ToolCall[] {
  if (answer.status !== 'complete' || answer.finishReason !== 'tool_calls') return [];
  return answer.toolCalls.filter((call) => call.name !== '' && asObject(parseJson(call.arguments)) !== null);
}

/** Going on means to hand back the text so far; thinking that was not over cannot be handed back open. */
export function canContinue(answer: AnswerNode): boolean {
  const unfinished = answer.status === 'cut' || answer.status === 'stopped' || answer.status === 'failed';
  const hopeless = ['loop', 'context_full'].includes(answer.finishDetails?.type ?? '');
  const atLimit = answer.status === 'complete' && answer.finishReason === 'length' && !hopeless;
  return answer.text !== '' && answer.toolCalls.length === 0 && (unfinished || atLimit);
}
