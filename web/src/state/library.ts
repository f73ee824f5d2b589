// Conversations: kept, listed, renamed, removed, exported, imported. Other tabs of the same browser see the
// same ones.
import type { Conversation, Sampling } from '../model';
import type { App } from './app';
import { ConversationStorage } from './storage';
import { createConversation, markCut, merged, newestLeaf } from './tree';
import { exportText, importText } from './transfer';

type News = { kind: 'saved' | 'removed'; id: string };

export class Library {
  private storage: ConversationStorage | null = null;
  private readonly unsaved = new Set<string>();
  private timer: ReturnType<typeof setTimeout> | null = null;
  private readonly channel = new BroadcastChannel('fathom');

  constructor(private readonly app: App) {
    this.channel.onmessage = (event: MessageEvent<News>) => void this.hear(event.data);
    // What has arrived since the last save would be lost with the page.
    addEventListener('pagehide', () => this.flush());
    document.addEventListener('visibilitychange', () => document.hidden && this.flush());
    addEventListener('hashchange', () => this.select(idOfAddress()));
  }

  async load(): Promise<void> {
    let stored: Conversation[] = [];
    try {
      this.storage = await ConversationStorage.open();
      stored = await this.storage.all();
    } catch {
      this.storage = null;
    }
    const conversations = Object.fromEntries(stored.map((item) => [item.id, markCut(item)]));
    const id = idOfAddress();
    this.app.store.update((state) => ({
      ...state,
      loaded: true,
      keepsNothing: this.storage === null,
      conversations: { ...conversations, ...state.conversations },
      currentId: id !== null && id in conversations ? id : null,
    }));
  }

  select(id: string | null): void {
    const known = id !== null && id in this.app.state.conversations ? id : null;
    this.app.store.update((state) => ({ ...state, currentId: known }));
    if (idOfAddress() !== known) history.pushState(null, '', known === null ? location.pathname : `#${known}`);
  }

  /** The shown conversation, or a new one, which is then shown. */
  currentOrNew(): Conversation {
    const current = this.app.current();
    if (current !== null) return current;
    const conversation = createConversation(Date.now(), this.app.sampling());
    this.app.putConversation(conversation);
    this.select(conversation.id);
    return conversation;
  }

  update(id: string, change: (conversation: Conversation) => Conversation): void {
    const conversation = this.app.state.conversations[id];
    if (conversation === undefined) return;
    this.app.putConversation(change(conversation));
    this.saveSoon(id);
  }

  rename(id: string, title: string): void {
    this.update(id, (conversation) => ({ ...conversation, title: title.trim() || conversation.title }));
  }

  setSampling(sampling: Sampling): void {
    const { currentId } = this.app.state;
    if (currentId !== null) this.update(currentId, (conversation) => ({ ...conversation, sampling }));
    this.app.setPreferences({ sampling });
  }

  showVersion(id: string, nodeId: string): void {
    this.update(id, (conversation) => ({ ...conversation, leaf: newestLeaf(conversation, nodeId) }));
  }

  remove(id: string): void {
    this.forget(id);
    void this.storage?.remove(id).then(() => this.tell({ kind: 'removed', id }));
  }

  /** One conversation, or all. */
  export(id: string | null): string {
    const all = Object.values(this.app.state.conversations);
    return exportText(all.filter((conversation) => id === null || conversation.id === id).map(markCut));
  }

  /** How many came in; null for a file that is none of ours. */
  import(text: string): number | null {
    const conversations = importText(text);
    if (conversations === null) return null;
    for (const conversation of conversations) {
      this.app.putConversation(conversation);
      this.saveSoon(conversation.id);
    }
    const last = conversations.at(-1);
    if (last !== undefined) this.select(last.id);
    return conversations.length;
  }

  private forget(id: string): void {
    this.unsaved.delete(id);
    this.app.store.update((state) => {
      const { [id]: _, ...conversations } = state.conversations;
      return { ...state, conversations };
    });
    if (this.app.state.currentId === id) this.select(null);
  }

  private saveSoon(id: string): void {
    this.unsaved.add(id);
    // A growing answer is written whole each time, with all the images of its conversation.
    this.timer ??= setTimeout(() => this.flush(), id in this.app.state.live ? 1000 : 100);
  }

  private flush(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    for (const id of this.unsaved) {
      const conversation = this.app.state.conversations[id];
      if (conversation === undefined) continue;
      this.storage?.put(conversation).then(
        () => this.tell({ kind: 'saved', id }),
        () => this.app.store.update((state) => ({ ...state, keepsNothing: true })),
      );
    }
    this.unsaved.clear();
  }

  private tell(news: News): void {
    this.channel.postMessage(news);
  }

  private async hear(news: News): Promise<void> {
    if (news.kind === 'removed') return this.forget(news.id);
    const theirs = await this.storage?.get(news.id);
    if (!theirs) return;
    // What this tab is writing itself is newer than what it hears.
    const ours = this.app.state.conversations[news.id] ?? theirs;
    const writing = news.id in this.app.state.live || this.unsaved.has(news.id);
    this.app.putConversation(writing ? merged(ours, theirs) : merged(theirs, ours));
  }
}

function idOfAddress(): string | null {
  const id = location.hash.slice(1);
  return id === '' ? null : id;
}
