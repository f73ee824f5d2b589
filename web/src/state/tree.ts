// Conversations as trees: pure functions, each returns a new conversation.
import { defaultSampling, type AnswerNode, type ChatNode, type Conversation, type Sampling } from '../model';

/** Unlike crypto.randomUUID this exists on pages that came over plain HTTP from another machine. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export function createConversation(now: number, sampling: Sampling = defaultSampling): Conversation {
  return { id: newId(), title: '', createdAt: now, updatedAt: now, nodes: {}, leaf: null, sampling };
}

/** From the first message to `leaf`. */
export function pathTo(conversation: Conversation, leaf: string | null): ChatNode[] {
  const path: ChatNode[] = [];
  const seen = new Set<string>();
  for (let id = leaf; id !== null && !seen.has(id);) {
    const node = conversation.nodes[id];
    if (node === undefined) break;
    seen.add(id);
    path.push(node);
    id = node.parent;
  }
  return path.reverse();
}

/** Nodes with the same parent, oldest first: versions of one turn. */
export function versionsOf(conversation: Conversation, node: ChatNode): ChatNode[] {
  return childrenOf(conversation, node.parent);
}

function childrenOf(conversation: Conversation, parent: string | null): ChatNode[] {
  return Object.values(conversation.nodes)
    .filter((node) => node.parent === parent)
    .sort((a, b) => a.createdAt - b.createdAt || (a.id < b.id ? -1 : 1));
}

/** The newest end of the branch that begins with `id`. */
export function newestLeaf(conversation: Conversation, id: string): string {
  for (let at = id; ;) {
    const next = childrenOf(conversation, at).at(-1);
    if (next === undefined) return at;
    at = next.id;
  }
}

/** Adds a node and shows its branch. The first question names the conversation. */
export function withNode(conversation: Conversation, node: ChatNode): Conversation {
  const title = conversation.title === '' && node.kind === 'user' ? titleFrom(node.text) : conversation.title;
  return {
    ...conversation,
    title,
    nodes: { ...conversation.nodes, [node.id]: node },
    leaf: node.id,
    updatedAt: Math.max(conversation.updatedAt, node.createdAt),
  };
}

export function withAnswer(
  conversation: Conversation,
  id: string,
  change: (answer: AnswerNode) => AnswerNode,
): Conversation {
  const node = conversation.nodes[id];
  if (node?.kind !== 'answer') return conversation;
  return { ...conversation, nodes: { ...conversation.nodes, [id]: change(node) } };
}

export function titleFrom(text: string): string {
  const line = text.trim().split('\n', 1)[0]?.trim() ?? '';
  const characters = Array.from(line);
  return characters.length <= 60 ? line : `${characters.slice(0, 59).join('').trimEnd()}…`;
}

/** An answer that was arriving when the page went away will not go on arriving. */
export function markCut(conversation: Conversation): Conversation {
  if (!Object.values(conversation.nodes).some((node) => node.kind === 'answer' && node.status === 'streaming')) {
    return conversation;
  }
  const nodes = Object.entries(conversation.nodes).map(([id, node]): [string, ChatNode] => [
    id,
    node.kind === 'answer' && node.status === 'streaming' ? { ...node, status: 'cut' } : node,
  ]);
  return { ...conversation, nodes: Object.fromEntries(nodes) };
}

/** Two copies of one conversation that grew in different tabs: all turns of both, and where they differ the first's. */
export function merged(first: Conversation, second: Conversation): Conversation {
  return { ...first, nodes: { ...second.nodes, ...first.nodes } };
}

export function newestFirst(conversations: Conversation[]): Conversation[] {
  return [...conversations].sort((a, b) => b.updatedAt - a.updatedAt);
}
