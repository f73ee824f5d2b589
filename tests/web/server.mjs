// A fathom server that plays a script (docs/testing_serve.md).
//   FATHOM_BINARY  the program
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What the model says when it thinks, and then answers. Every prompt with thinking on ends in <think>. */
export function answer(text, more = {}) {
  const { thinking = '', ...rest } = more;
  return { text: `${thinking}</think>${text}`, ...rest };
}

/** The text of the model's calls. Arguments are strings. */
export function calls(...list) {
  const parameter = ([key, value]) =>
    `<｜DSML｜ parameter name="${key}" string="true">${value}</｜DSML｜ parameter>\n`;
  const invokes = list.map(
    ([name, values]) =>
      `<｜DSML｜ invoke name="${name}">\n${Object.entries(values).map(parameter).join('')}</｜DSML｜ invoke>\n`,
  );
  return `\n\n<｜DSML｜ calls>\n${invokes.join('')}</｜DSML｜ calls>`;
}

/** A server process that can be killed and started again on the same port. */
export class Server {
  port = 0;
  folder = mkdtempSync(join(tmpdir(), 'fathom-web-'));

  /** `scenario`: the script's members, and `options` of the command line. */
  static async start(scenario) {
    const server = new Server();
    await server.run(scenario);
    return server;
  }

  async run({ options = [], ...script }) {
    const file = join(this.folder, 'script.json');
    writeFileSync(file, JSON.stringify({ context_tokens: 131072, ...script }));
    const line = ['serve', '--scripted', file, '--port', this.port, '--served-name', 'DeepSeek-V4.1-Flash'];
    this.process = spawn(process.env.FATHOM_BINARY, [...line, ...options].map(String), {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    // A test run that is ended leaves no servers behind.
    const child = this.process;
    const kill = () => child.kill('SIGKILL');
    process.on('exit', kill);
    child.once('exit', () => process.off('exit', kill));
    let said = '';
    this.process.stderr.on('data', (data) => (said += data));
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.url = await new Promise((resolve, reject) => {
      let line = '';
      this.process.once('error', reject);
      this.process.once('exit', (code) => reject(new Error(`the server ended with ${code}: ${said}`)));
      this.process.stdout.on('data', (data) => {
        const address = / served at (http:\S+) /.exec((line += data));
        if (address !== null) resolve(`${address[1]}/`);
      });
    });
    this.port = new URL(this.url).port;
  }

  /** The first of these signals lets answers finish for as long as --grace says. */
  async end(signal) {
    this.process.kill(signal);
    await this.ended;
  }

  async stop() {
    await this.end('SIGKILL');
    rmSync(this.folder, { recursive: true, force: true });
  }

  async ask(path, body) {
    const response = await fetch(this.url + path, { method: 'POST', body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  /** How many tokens a text is, or the prompt of a conversation. */
  async tokensOf(text) {
    const body = typeof text === 'string' ? { content: text, parse_special: true } : { messages: text };
    return (await this.ask('tokenize', body)).count;
  }

  async load() {
    const { slots, queue } = await (await fetch(`${this.url}slots`)).json();
    return { busy: slots.filter((slot) => slot.is_processing).length, queue };
  }

  /** Waits until so many requests run and wait. */
  async until({ busy, queue = 0 }) {
    for (;;) {
      const load = await this.load();
      if (load.busy === busy && load.queue === queue) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Another client, whose request lasts until the function that is returned is called. */
  crowd(text) {
    const abort = new AbortController();
    const messages = [{ role: 'user', content: text }];
    fetch(`${this.url}v1/chat/completions`, {
      method: 'POST',
      body: JSON.stringify({ messages, stream: true }),
      signal: abort.signal,
    })
      .then((response) => response.text())
      .catch(() => {});
    return () => abort.abort();
  }
}
