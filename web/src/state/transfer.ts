// Conversations as a file, and back. A file may come from anywhere: nothing in it is believed unread.
import { asArray, asNumber, asObject, asString, parseJson, type Json } from '../json';
import {
  defaultSampling,
  type AnswerNode,
  type ChatNode,
  type Conversation,
  type Effort,
  type Figures,
  type FinishDetails,
  type LoopGuard,
  type Sampling,
} from '../model';
import { newId } from './tree';

const format = 'fathom-conversations';
const version = 1;
const imageAddress = /^data:image\/(png|jpeg|webp);base64,[A-Za-z0-9+/=]+$/;

export function exportText(conversations: Conversation[]): string {
  return `${JSON.stringify({ format, version, conversations }, null, 1)}\n`;
}

/** The conversations of a file, under new ids; null if it is no such file. */
export function importText(text: string): Conversation[] | null {
  const root = asObject(parseJson(text));
  if (root === null || root['format'] !== format || root['version'] !== version) return null;
  const conversations = asArray(root['conversations']).map(readConversation);
  return conversations.every((item) => item !== null) ? conversations : null;
}

function oneOf<T extends string>(value: unknown, choices: readonly T[]): T | null {
  return choices.find((choice) => choice === value) ?? null;
}

export function readSampling(value: unknown): Sampling {
  const from = asObject(value) ?? {};
  return {
    systemPrompt: asString(from['systemPrompt']) ?? defaultSampling.systemPrompt,
    temperature: asNumber(from['temperature']),
    topP: asNumber(from['topP']),
    topK: asNumber(from['topK']),
    minP: asNumber(from['minP']),
    seed: asNumber(from['seed']),
    maxTokens: asNumber(from['maxTokens']),
    effort: oneOf<Effort>(from['effort'], ['off', 'low', 'high', 'max']),
    loopGuard: oneOf<LoopGuard>(from['loopGuard'], ['off', 'observe', 'stop']),
    stop: asArray(from['stop']).filter((item): item is string => typeof item === 'string'),
    tools: asString(from['tools']) ?? '',
  };
}

function readFigures(value: unknown): Figures | null {
  const from = asObject(value);
  if (from === null) return null;
  return {
    promptTokens: asNumber(from['promptTokens']) ?? 0,
    completionTokens: asNumber(from['completionTokens']) ?? 0,
    cachedTokens: asNumber(from['cachedTokens']),
    queueMs: asNumber(from['queueMs']),
    prefillMs: asNumber(from['prefillMs']),
    prefillRate: asNumber(from['prefillRate']),
    decodeMs: asNumber(from['decodeMs']),
    decodeRate: asNumber(from['decodeRate']),
  };
}

function readDetails(value: unknown): FinishDetails | null {
  const from = asObject(value);
  if (from === null) return null;
  return {
    type: asString(from['type']),
    period: asNumber(from['period']),
    repeats: asNumber(from['repeats']),
    firstToken: asNumber(from['firstToken']),
  };
}

function readAnswer(from: Json): Omit<AnswerNode, 'id' | 'parent' | 'createdAt'> {
  const status = oneOf(from['status'], ['complete', 'stopped', 'cut', 'failed'] as const);
  return {
    kind: 'answer',
    status: status ?? 'cut',
    model: asString(from['model']) ?? '',
    thinking: asString(from['thinking']) ?? '',
    thinkingMs: asNumber(from['thinkingMs']),
    text: asString(from['text']) ?? '',
    toolCalls: asArray(from['toolCalls']).map((item) => {
      const call = asObject(item) ?? {};
      return {
        id: asString(call['id']) ?? '',
        name: asString(call['name']) ?? '',
        arguments: asString(call['arguments']) ?? '',
      };
    }),
    finishReason: asString(from['finishReason']),
    finishDetails: readDetails(from['finishDetails']),
    error: asString(from['error']),
    figures: readFigures(from['figures']),
  };
}

function readNode(value: unknown): ChatNode | null {
  const from = asObject(value);
  const id = asString(from?.['id']);
  if (from === null || id === null) return null;
  const base = { id, parent: asString(from['parent']), createdAt: asNumber(from['createdAt']) ?? 0 };
  if (from['kind'] === 'answer') return { ...base, ...readAnswer(from) };
  if (from['kind'] === 'user') {
    const images = asArray(from['images']).filter((url): url is string => imageAddress.test(asString(url) ?? ''));
    return { ...base, kind: 'user', text: asString(from['text']) ?? '', images };
  }
  if (from['kind'] !== 'tool') return null;
  const results = asArray(from['results']).map((item) => {
    const result = asObject(item) ?? {};
    return { callId: asString(result['callId']) ?? '', text: asString(result['text']) ?? '' };
  });
  return { ...base, kind: 'tool', results };
}

/** Every node but the first ones must hang below another, and none below itself. */
function isForest(nodes: Map<string, ChatNode>): boolean {
  const rooted = new Set<string>();
  for (const start of nodes.values()) {
    const trail = new Set<string>();
    for (let node: ChatNode | undefined = start; !rooted.has(node.id);) {
      if (trail.has(node.id)) return false;
      trail.add(node.id);
      if (node.parent === null) break;
      const parent = nodes.get(node.parent);
      if (parent === undefined) return false;
      node = parent;
    }
    trail.forEach((id) => rooted.add(id));
  }
  return true;
}

function readConversation(value: unknown): Conversation | null {
  const from = asObject(value);
  const list = from === null ? null : asObject(from['nodes']);
  if (from === null || list === null) return null;
  const nodes = new Map<string, ChatNode>();
  for (const item of Object.values(list)) {
    const node = readNode(item);
    if (node === null) return null;
    nodes.set(node.id, node);
  }
  if (!isForest(nodes)) return null;
  const leaf = asString(from['leaf']);
  return {
    id: newId(),
    title: asString(from['title']) ?? '',
    createdAt: asNumber(from['createdAt']) ?? 0,
    updatedAt: asNumber(from['updatedAt']) ?? 0,
    nodes: Object.fromEntries(nodes),
    leaf: leaf !== null && nodes.has(leaf) ? leaf : null,
    sampling: readSampling(from['sampling']),
  };
}
