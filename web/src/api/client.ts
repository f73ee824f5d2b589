// The page's only way to the server, which is always the one it came from.
import { asArray, asNumber, asObject, asString, parseJson, type Json } from '../json';
import { errorMessage, readItem, type StreamEvent } from './chunks';
import { SseParser } from './sse';

/** status 0: no answer at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(message);
  }
}

export interface Props {
  contextTokens: number | null;
  hasVision: boolean;
  defaults: Json;
}

export interface Load {
  waiting: number; // requests that have no slot yet
  busy: number;
  slots: number;
}

export function readProps(body: unknown): Props {
  const props = asObject(body) ?? {};
  return {
    contextTokens: asNumber(props['context_size']) ?? asNumber(props['n_ctx']),
    hasVision: props['has_vision'] === true,
    defaults: asObject(props['defaults']) ?? {},
  };
}

/** Takes {"queue": N or {"waiting": N}, "slots": [{"state": "idle" | ...}]}. */
export function readLoad(body: unknown): Load {
  const root = asObject(body) ?? {};
  const slots = asArray(root['slots']);
  return {
    waiting: asNumber(root['queue']) ?? asNumber(asObject(root['queue'])?.['waiting']) ?? 0,
    busy: slots.filter((slot) => (asString(asObject(slot)?.['state']) ?? 'idle') !== 'idle').length,
    slots: slots.length,
  };
}

async function failure(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '');
  const message = errorMessage(parseJson(text)) ?? `${response.status} ${response.statusText}`.trim();
  const seconds = Number(response.headers.get('retry-after') ?? NaN);
  return new ApiError(response.status, message, Number.isFinite(seconds) ? seconds : null);
}

export class Client {
  constructor(
    private readonly base: string,
    public key = '',
  ) {}

  async props(): Promise<Props> {
    return readProps(await this.get('props'));
  }

  async models(): Promise<string[]> {
    const list = asArray(asObject(await this.get('v1/models'))?.['data']);
    return list.map((model) => asString(asObject(model)?.['id'])).filter((id): id is string => id !== null);
  }

  async load(): Promise<Load> {
    return readLoad(await this.get('slots'));
  }

  async cancel(id: string): Promise<void> {
    await this.request(`v1/cancel/${encodeURIComponent(id)}`, { method: 'POST' });
  }

  /** Returns when the stream has ended, however it did; throws ApiError if none began or the network broke it. */
  async chat(body: Json, signal: AbortSignal, onEvent: (event: StreamEvent) => void): Promise<void> {
    const response = await this.request('v1/chat/completions', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
      signal,
    });
    if (response.body === null) return;
    const parser = new SseParser();
    const reader = response.body.getReader();
    for (;;) {
      const part = await reader.read().catch((error: unknown) => {
        throw signal.aborted ? error : new ApiError(0, 'the connection broke');
      });
      if (part.done) return;
      for (const item of parser.push(part.value)) readItem(item).forEach(onEvent);
    }
  }

  private async get(path: string): Promise<unknown> {
    return (await this.request(path, { method: 'GET', cache: 'no-store' })).json();
  }

  private async request(path: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    if (this.key !== '') headers.set('authorization', `Bearer ${this.key}`);
    const response = await fetch(new URL(path, this.base), { ...init, headers, credentials: 'omit' }).catch(
      (error: unknown) => {
        throw init.signal?.aborted ? error : new ApiError(0, 'the server does not answer');
      },
    );
    if (!response.ok) throw await failure(response);
    return response;
  }
}
