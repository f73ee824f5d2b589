// Knows whether the server is there, what it offers, and how busy it is.
import { ApiError } from '../api/client';
import type { App } from './app';

const retryMs = 2000;
const busyMs = 1000;
const quietMs = 15000;

export class ServerWatch {
  private timer: ReturnType<typeof setTimeout> | null = null;
  private offersLoad = true;

  constructor(private readonly app: App) {
    document.addEventListener('visibilitychange', () => !document.hidden && this.look());
  }

  /** Asks now, and from then on as often as is useful. */
  look = (): void => {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
    void this.ask().then((waitMs) => {
      if (this.timer !== null) clearTimeout(this.timer);
      this.timer = setTimeout(this.look, waitMs);
    });
  };

  private async ask(): Promise<number> {
    const { server } = this.app.state;
    if (server.needsKey) return retryMs;
    if (document.hidden && server.reachable === true) return quietMs;
    try {
      if (server.reachable !== true) await this.greet();
      if (this.offersLoad) this.app.setServer({ load: await this.app.client.load(), reachable: true });
    } catch (error) {
      return this.fail(error);
    }
    return Object.keys(this.app.state.live).length > 0 ? busyMs : quietMs;
  }

  private async greet(): Promise<void> {
    const [props, models] = await Promise.all([this.app.client.props(), this.app.client.models()]);
    const { model } = this.app.state.server;
    const chosen = models.includes(model) ? model : (models[0] ?? '');
    this.app.setServer({ reachable: true, props, models, model: chosen });
  }

  private fail(error: unknown): number {
    const status = error instanceof ApiError ? error.status : 0;
    if (status === 401) {
      this.app.setServer({ needsKey: true, reachable: null });
    } else if (status === 403 || status === 404 || status === 501) {
      this.offersLoad = false;
      this.app.setServer({ load: null });
    } else {
      this.app.setServer({ reachable: false, load: null });
    }
    return retryMs;
  }
}
