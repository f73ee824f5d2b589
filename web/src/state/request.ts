// The request for one answer.
import { asArray, parseJson, type Json } from '../json';
import type { AnswerNode, ChatNode, Sampling, UserNode } from '../model';
import { wholeCalls } from './answer';

function userMessage(node: UserNode): Json {
  if (node.images.length === 0) return { role: 'user', content: node.text };
  const images = node.images.map((url) => ({ type: 'image_url', image_url: { url } }));
  const text = node.text === '' ? [] : [{ type: 'text', text: node.text }];
  return { role: 'user', content: [...images, ...text] };
}

/** Null for an answer that has nothing to hand back. Calls that were cut are left out: they are not calls. */
function answerMessage(node: AnswerNode): Json | null {
  const calls = wholeCalls(node);
  if (node.text === '' && calls.length === 0) return null;
  const message: Json = { role: 'assistant', content: node.text };
  if (node.thinking !== '') message['reasoning_content'] = node.thinking;
  if (calls.length > 0) {
    message['tool_calls'] = calls.map((call) => ({
      id: call.id,
      type: 'function',
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return message;
}

export function messagesFrom(path: ChatNode[], systemPrompt: string): Json[] {
  const messages: Json[] = systemPrompt.trim() === '' ? [] : [{ role: 'system', content: systemPrompt }];
  for (const node of path) {
    if (node.kind === 'user') messages.push(userMessage(node));
    if (node.kind === 'answer') {
      const message = answerMessage(node);
      if (message !== null) messages.push(message);
    }
    if (node.kind === 'tool') {
      for (const result of node.results)
        messages.push({ role: 'tool', tool_call_id: result.callId, content: result.text });
    }
  }
  return messages;
}

function samplingFields(sampling: Sampling): Json {
  const fields: Json = {
    temperature: sampling.temperature,
    top_p: sampling.topP,
    top_k: sampling.topK,
    min_p: sampling.minP,
    seed: sampling.seed,
    max_tokens: sampling.maxTokens,
    reasoning_effort: sampling.effort === 'off' ? 'none' : sampling.effort,
    loop_guard: sampling.loopGuard,
    stop: sampling.stop.length > 0 ? sampling.stop : null,
    tools: readTools(sampling.tools),
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

/** Null for none; the settings refuse other text, so that what is stored can be read. */
export function readTools(text: string): unknown[] | null {
  const tools = asArray(parseJson(text));
  return tools.length > 0 ? tools : null;
}

/** `path` ends with what is to be answered, or with the answer to be continued. */
export function buildRequest(path: ChatNode[], sampling: Sampling, model: string): Json {
  const messages = messagesFrom(path, sampling.systemPrompt);
  const last = messages.at(-1);
  if (path.at(-1)?.kind === 'answer' && last?.['role'] === 'assistant') last['prefix'] = true;
  return {
    ...(model === '' ? {} : { model }),
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...samplingFields(sampling),
  };
}
