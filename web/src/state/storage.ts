// Conversations in the browser's database; settings, which are small and needed at once, beside it.
import { asObject, asString, parseJson } from '../json';
import { defaultSampling, type Conversation, type Sampling } from '../model';
import { readSampling } from './transfer';

const databaseName = 'fathom';
const table = 'conversations';

function finished<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error('the database failed'));
  });
}

export class ConversationStorage {
  private constructor(private readonly database: IDBDatabase) {}

  /** Fails where the browser keeps nothing, as in some private windows. */
  static async open(): Promise<ConversationStorage> {
    const request = indexedDB.open(databaseName, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(table, { keyPath: 'id' });
    return new ConversationStorage(await finished(request));
  }

  async all(): Promise<Conversation[]> {
    const store = this.database.transaction(table, 'readonly').objectStore(table);
    return (await finished(store.getAll())) as Conversation[];
  }

  async get(id: string): Promise<Conversation | null> {
    const store = this.database.transaction(table, 'readonly').objectStore(table);
    return ((await finished(store.get(id))) as Conversation | undefined) ?? null;
  }

  async put(conversation: Conversation): Promise<void> {
    await this.write((store) => store.put(conversation));
  }

  async remove(id: string): Promise<void> {
    await this.write((store) => store.delete(id));
  }

  private write(change: (store: IDBObjectStore) => void): Promise<void> {
    return new Promise((resolve, reject) => {
      const transaction = this.database.transaction(table, 'readwrite');
      transaction.oncomplete = () => resolve();
      transaction.onerror = () => reject(transaction.error ?? new Error('the database failed'));
      transaction.onabort = transaction.onerror;
      change(transaction.objectStore(table));
      transaction.commit();
    });
  }
}

export type Theme = 'system' | 'light' | 'dark';
export type Language = 'system' | 'en' | 'ko';

export interface Preferences {
  theme: Theme;
  language: Language;
  /** What a new conversation begins with: the last settings used. */
  sampling: Sampling;
}

const preferencesKey = 'fathom.preferences';
const apiKeyKey = 'fathom.key';

export function loadPreferences(): Preferences {
  const from = asObject(parseJson(readItem(localStorage, preferencesKey))) ?? {};
  const theme = asString(from['theme']);
  const language = asString(from['language']);
  return {
    theme: theme === 'light' || theme === 'dark' ? theme : 'system',
    language: language === 'en' || language === 'ko' ? language : 'system',
    sampling: from['sampling'] === undefined ? defaultSampling : readSampling(from['sampling']),
  };
}

export function savePreferences(preferences: Preferences): void {
  writeItem(localStorage, preferencesKey, JSON.stringify(preferences));
}

/** The key lives as long as the tab. */
export function loadApiKey(): string {
  return readItem(sessionStorage, apiKeyKey);
}

export function saveApiKey(key: string): void {
  writeItem(sessionStorage, apiKeyKey, key);
}

function readItem(storage: Storage, name: string): string {
  try {
    return storage.getItem(name) ?? '';
  } catch {
    return '';
  }
}

function writeItem(storage: Storage, name: string, value: string): void {
  try {
    storage.setItem(name, value);
  } catch {
    // Full or forbidden: the setting then lasts until the page goes.
  }
}
