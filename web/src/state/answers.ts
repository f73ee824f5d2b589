// Asking, stopping, retrying, editing, going on: all that makes the server write.
import { ApiError } from '../api/client';
import type { StreamEvent } from '../api/chunks';
import type { AnswerNode, ChatNode, Conversation } from '../model';
import type { App, Live, Prefill } from './app';
import { applyEvent, endAnswer, newAnswer, reopen } from './answer';
import { eachFrame } from './frames';
import type { Library } from './library';
import { buildRequest } from './request';
import { newId, pathTo, withAnswer, withNode } from './tree';

/** After a cancel the server ends the stream itself, with exact figures; the page waits no longer than this. */
const stopPatienceMs = 5000;

/** Frames may be seconds apart, in a hidden tab or on a busy machine: times are those of arrival. */
interface Arrived {
  event: StreamEvent;
  at: number; // performance.now()
}

export class Answers {
  private readonly aborts = new Map<string, AbortController>();
  private waitingForKey: { conversationId: string; answerId: string } | null = null;

  constructor(
    private readonly app: App,
    private readonly library: Library,
    private readonly onBegin: () => void,
    private readonly onTrouble: () => void,
  ) {}

  send(text: string, images: string[]): void {
    const conversation = this.library.currentOrNew();
    this.ask(conversation, { text, images, parent: conversation.leaf });
  }

  /** The question as it was stays: the new one begins another branch beside it. */
  edit(conversation: Conversation, nodeId: string, text: string, images: string[]): void {
    const node = conversation.nodes[nodeId];
    if (node?.kind === 'user') this.ask(conversation, { text, images, parent: node.parent });
  }

  retry(conversation: Conversation, answerId: string): void {
    const node = conversation.nodes[answerId];
    if (node?.kind === 'answer') this.begin(conversation, node.parent);
  }

  goOn(conversation: Conversation, answerId: string): void {
    if (conversation.id in this.app.state.live) return;
    this.library.update(conversation.id, (item) => withAnswer(item, answerId, reopen));
    void this.run(conversation.id, answerId, true);
  }

  giveResults(conversation: Conversation, answerId: string, results: { callId: string; text: string }[]): void {
    if (conversation.id in this.app.state.live) return;
    const node: ChatNode = { kind: 'tool', id: newId(), parent: answerId, createdAt: Date.now(), results };
    this.library.update(conversation.id, (item) => withNode(item, node));
    this.begin(conversation, node.id);
  }

  stop(conversationId: string): void {
    const live = this.app.state.live[conversationId];
    const abort = this.aborts.get(conversationId);
    if (live === undefined || abort === undefined || live.stopping) return;
    this.app.setLive(conversationId, { ...live, stopping: true });
    if (live.requestId === null) return abort.abort();
    this.app.client.cancel(live.requestId).catch(() => abort.abort());
    setTimeout(() => abort.abort(), stopPatienceMs);
  }

  /** A key has been given: asks again what was refused for want of it. */
  resume(): void {
    const waiting = this.waitingForKey;
    this.waitingForKey = null;
    if (waiting === null) return;
    this.library.update(waiting.conversationId, (item) => withAnswer(item, waiting.answerId, reopen));
    void this.run(waiting.conversationId, waiting.answerId, false);
  }

  private ask(
    conversation: Conversation,
    question: { text: string; images: string[]; parent: string | null },
  ): void {
    if (conversation.id in this.app.state.live) return;
    const node: ChatNode = { kind: 'user', id: newId(), createdAt: Date.now(), ...question };
    this.library.update(conversation.id, (item) => withNode(item, node));
    this.begin(conversation, node.id);
  }

  private begin(conversation: Conversation, parent: string | null): void {
    if (conversation.id in this.app.state.live) return;
    const answer = newAnswer(parent, this.app.state.server.model, Date.now());
    this.library.update(conversation.id, (item) => withNode(item, answer));
    void this.run(conversation.id, answer.id, false);
  }

  private async run(conversationId: string, answerId: string, goingOn: boolean): Promise<void> {
    const conversation = this.app.state.conversations[conversationId];
    const answer = conversation?.nodes[answerId];
    if (conversation === undefined || answer?.kind !== 'answer') return;
    const path = pathTo(conversation, goingOn ? answerId : answer.parent);
    const body = buildRequest(path, conversation.sampling, this.app.state.server.model);
    const abort = new AbortController();
    this.aborts.set(conversationId, abort);
    this.app.setLive(conversationId, newLive(answerId));
    this.onBegin();
    const stream = eachFrame<Arrived>((events) => this.take(conversationId, events));
    let refusal: string | null = null;
    try {
      await this.app.client.chat(body, abort.signal, (event) => stream.add({ event, at: performance.now() }));
    } catch (error) {
      refusal = this.explain(error, conversationId, answerId);
    }
    stream.flush();
    this.end(conversationId, refusal);
  }

  /** What to tell of a stream that did not end well; null where "cut" or "stopped" says it all. */
  private explain(error: unknown, conversationId: string, answerId: string): string | null {
    if (!(error instanceof ApiError)) return null;
    if (error.status === 0) return null;
    if (error.status === 401) {
      this.waitingForKey = { conversationId, answerId };
      this.app.setServer({ needsKey: true });
    }
    return error.message;
  }

  private take(conversationId: string, events: Arrived[]): void {
    let live = this.app.state.live[conversationId];
    if (live === undefined) return;
    const steps: [Arrived, number | null][] = [];
    for (const arrived of events) {
      live = advance(live, arrived.event, arrived.at);
      steps.push([arrived, live.thinkingSince]);
    }
    const { answerId } = live;
    this.app.setLive(conversationId, live);
    this.library.update(conversationId, (item) =>
      withAnswer(item, answerId, (answer) =>
        steps.reduce((grown, [{ event, at }, since]) => applyEvent(grown, event, since, at), answer),
      ),
    );
  }

  private end(conversationId: string, refusal: string | null): void {
    const live = this.app.state.live[conversationId];
    this.aborts.delete(conversationId);
    if (live === undefined) return;
    let ended: AnswerNode | null = null;
    this.library.update(conversationId, (item) => ({
      ...withAnswer(item, live.answerId, (answer) => {
        const told = refusal === null ? answer : { ...answer, error: refusal };
        ended = endAnswer(told, live.stopping, live.thinkingSince, performance.now());
        return ended;
      }),
      updatedAt: Date.now(),
    }));
    this.app.setLive(conversationId, null);
    if ((ended as AnswerNode | null)?.status === 'cut') this.onTrouble();
  }
}

function newLive(answerId: string): Live {
  return {
    answerId,
    requestId: null,
    stopping: false,
    prefill: null,
    beganAt: performance.now(),
    thinkingSince: null,
    firstTokenAt: null,
    pieces: 0,
  };
}

export function advance(live: Live, event: StreamEvent, now: number): Live {
  switch (event.kind) {
    case 'id':
      return live.requestId === event.id ? live : { ...live, requestId: event.id };
    case 'prefill':
      return { ...live, prefill: readOn(live.prefill, event.done, event.total, now) };
    case 'thinking':
      return { ...counted(live, now), thinkingSince: live.thinkingSince ?? now };
    case 'text':
    case 'tool':
      return counted(live, now);
    default:
      return live;
  }
}

function readOn(before: Prefill | null, done: number, total: number, now: number): Prefill {
  const { doneAtFirst, firstAt } = before ?? { doneAtFirst: done, firstAt: now };
  return { done, total, doneAtFirst, firstAt, lastAt: now };
}

function counted(live: Live, now: number): Live {
  return { ...live, pieces: live.pieces + 1, firstTokenAt: live.firstTokenAt ?? now };
}
