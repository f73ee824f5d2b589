// Everything the page shows, in one store, and what may be done to it.
import { Client, type Load, type Props } from '../api/client';
import type { Conversation, Sampling } from '../model';
import { loadApiKey, loadPreferences, saveApiKey, savePreferences, type Preferences } from './storage';
import { Store } from './store';

/** How far the prompt has been read. What was known from earlier counts as done at the first report. */
export interface Prefill {
  done: number;
  total: number;
  doneAtFirst: number;
  firstAt: number;
  lastAt: number;
}

/** An answer that is arriving. Times are of performance.now(). */
export interface Live {
  answerId: string;
  requestId: string | null; // known from the first chunk on
  stopping: boolean;
  prefill: Prefill | null;
  beganAt: number;
  thinkingSince: number | null;
  firstTokenAt: number | null;
  pieces: number; // chunks with something to show; about one a token
}

export interface ServerState {
  reachable: boolean | null; // null: not asked yet
  needsKey: boolean;
  props: Props | null;
  models: string[];
  model: string;
  load: Load | null;
}

export interface AppState {
  loaded: boolean;
  keepsNothing: boolean; // the browser refuses to store conversations
  conversations: Record<string, Conversation>;
  currentId: string | null;
  live: Record<string, Live>; // by conversation
  preferences: Preferences;
  server: ServerState;
}

export class App {
  readonly store: Store<AppState>;
  readonly client: Client;

  constructor(base: string) {
    this.client = new Client(base, loadApiKey());
    this.store = new Store<AppState>({
      loaded: false,
      keepsNothing: false,
      conversations: {},
      currentId: null,
      live: {},
      preferences: loadPreferences(),
      server: { reachable: null, needsKey: false, props: null, models: [], model: '', load: null },
    });
  }

  get state(): AppState {
    return this.store.value;
  }

  current(): Conversation | null {
    const { conversations, currentId } = this.state;
    return currentId === null ? null : (conversations[currentId] ?? null);
  }

  setServer(change: Partial<ServerState>): void {
    this.store.update((state) => ({ ...state, server: { ...state.server, ...change } }));
  }

  setPreferences(change: Partial<Preferences>): void {
    this.store.update((state) => ({ ...state, preferences: { ...state.preferences, ...change } }));
    savePreferences(this.state.preferences);
  }

  setKey(key: string): void {
    this.client.key = key;
    saveApiKey(key);
    this.setServer({ needsKey: false });
  }

  putConversation(conversation: Conversation): void {
    this.store.update((state) => ({
      ...state,
      conversations: { ...state.conversations, [conversation.id]: conversation },
    }));
  }

  setLive(conversationId: string, live: Live | null): void {
    this.store.update((state) => {
      const { [conversationId]: _, ...others } = state.live;
      return { ...state, live: live === null ? others : { ...others, [conversationId]: live } };
    });
  }

  /** Settings in force: those of the shown conversation, or those the next one will begin with. */
  sampling(): Sampling {
    return this.current()?.sampling ?? this.state.preferences.sampling;
  }
}
