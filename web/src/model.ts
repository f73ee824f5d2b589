// What the page keeps: conversations as trees, so that an edited question or a retried answer loses nothing.

export type Effort = 'off' | 'low' | 'high' | 'max';
export type LoopGuard = 'off' | 'observe' | 'stop';

/** `null` and '' leave a choice to the server. */
export interface Sampling {
  systemPrompt: string;
  temperature: number | null;
  topP: number | null;
  topK: number | null;
  minP: number | null;
  seed: number | null;
  maxTokens: number | null;
  effort: Effort | null;
  loopGuard: LoopGuard | null;
  stop: string[];
  /** JSON text: a list of tools in the shape of the OpenAI API, or ''. */
  tools: string;
}

export const defaultSampling: Sampling = {
  systemPrompt: '',
  temperature: null,
  topP: null,
  topK: null,
  minP: null,
  seed: null,
  maxTokens: null,
  effort: null,
  loopGuard: null,
  stop: [],
  tools: '',
};

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Figures {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number | null;
  queueMs: number | null;
  prefillMs: number | null;
  prefillRate: number | null; // tokens a second, as decodeRate
  decodeMs: number | null;
  decodeRate: number | null;
}

/** stopped: by the user; cut: the stream was over without an end; failed: the server said so. */
export type AnswerStatus = 'streaming' | 'complete' | 'stopped' | 'cut' | 'failed';

export interface FinishDetails {
  type: string | null;
  period: number | null;
  repeats: number | null;
  firstToken: number | null;
}

interface NodeBase {
  id: string;
  parent: string | null;
  createdAt: number; // milliseconds since 1970
}

export interface UserNode extends NodeBase {
  kind: 'user';
  text: string;
  images: string[]; // data: addresses
}

export interface AnswerNode extends NodeBase {
  kind: 'answer';
  status: AnswerStatus;
  model: string;
  thinking: string;
  thinkingMs: number | null; // null: not over, or none
  text: string;
  toolCalls: ToolCall[];
  finishReason: string | null;
  finishDetails: FinishDetails | null;
  error: string | null;
  figures: Figures | null;
}

export interface ToolNode extends NodeBase {
  kind: 'tool';
  results: { callId: string; text: string }[];
}

export type ChatNode = UserNode | AnswerNode | ToolNode;

export interface Conversation {
  id: string;
  title: string;
  createdAt: number;
  updatedAt: number;
  nodes: Record<string, ChatNode>;
  leaf: string | null; // the end of the branch that is shown
  sampling: Sampling;
}
