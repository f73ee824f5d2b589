// Starts `fathom serve` for tests of clients, and writes the scripts that it plays (docs/testing_serve.md).
//   FATHOM  the program
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const program = process.env.FATHOM;
if (!program) throw new Error('FATHOM: expected the path of the program, found nothing');

// A test that is given up leaves no server behind.
const servers = new Set();
process.on('exit', () => servers.forEach((server) => server.process.kill('SIGKILL')));
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(1));

const DSML = '｜DSML｜';
const parameter = (name, value) => {
  const isText = typeof value === 'string';
  return `<${DSML} parameter name="${name}" string="${isText}">${isText ? value : JSON.stringify(value)}</${DSML} parameter>\n`;
};

/** What a model writes to call functions. calls: [[name, arguments], ...] */
export function calls(...list) {
  const invocations = list.map(([name, values]) => {
    const parameters = Object.entries(values).map(([key, value]) => parameter(key, value)).join('');
    return `<${DSML} invoke name="${name}">\n${parameters || '\n'}</${DSML} invoke>\n`;
  });
  return `\n\n<${DSML} calls>\n${invocations.join('')}</${DSML} calls>`;
}

/** A thinking model's answer: the prompt ended in <think>. */
export const thinks = (reasoning, answer) => `${reasoning}</think>${answer}`;

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for something that must come true; how long it takes depends on what else the machine does. */
export async function until(condition, what, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  while (Date.now() < end) {
    const value = await condition();
    if (value) return value;
    await sleep(10);
  }
  throw new Error(`waited ${seconds} s in vain for: ${what}`);
}

export class Server {
  /** script: what the model says; without one the embedded model is run. */
  static async start({ script = null, options = [] } = {}) {
    const server = new Server();
    server.folder = mkdtempSync(join(tmpdir(), 'fathom-clients-'));
    const words = ['serve', '--port', '0', ...options];
    if (script) {
      const file = join(server.folder, 'script.json');
      writeFileSync(file, JSON.stringify(script));
      words.push('--scripted', file);
    }
    server.process = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] });
    servers.add(server);
    server.log = '';
    server.process.stderr.on('data', (bytes) => { server.log = (server.log + bytes).slice(-100000); });
    server.ended = new Promise((resolve) => server.process.once('exit', (code, signal) => resolve(code ?? signal)));
    const lines = createInterface({ input: server.process.stdout });
    const line = await new Promise((resolve, reject) => {
      lines.once('line', resolve);
      server.ended.then((code) => reject(new Error(`the server ended with ${code}: ${server.log}`)));
    });
    const found = / is served at (https?:\/\/[^\s]+?:(\d+))\/?\s/.exec(`${line} `);
    if (!found) throw new Error(`expected where it is served, found: ${line}`);
    server.url = found[1];
    server.port = Number(found[2]);
    server.pid = server.process.pid;
    return server;
  }

  async get(path) {
    const answer = await fetch(this.url + path);
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  async post(path, body) {
    const answer = await fetch(this.url + path, { method: 'POST', body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  async busySlots() {
    return (await this.get('/slots')).slots.filter((slot) => slot.is_processing).length;
  }

  /** A client left: its slot must become free although its answer would go on for hours. */
  untilIdle() {
    return until(async () => (await this.busySlots()) === 0, 'no slot at work');
  }

  untilBusy(count = 1) {
    return until(async () => (await this.busySlots()) === count, `${count} slots at work`);
  }

  async stop() {
    this.process.kill('SIGTERM');
    const last = setTimeout(() => this.process.kill('SIGKILL'), 60000);
    const code = await this.ended;
    servers.delete(this);
    clearTimeout(last);
    rmSync(this.folder, { recursive: true, force: true });
    if (code !== 0) throw new Error(`the server ended with ${code}: ${this.log}`);
  }
}

/** A proxy that hands on what the server says byte by byte, each in a packet of its own as far as it can. */
export async function drip(server) {
  const sockets = new Set();
  const proxy = createServer((client) => {
    const upstream = connect(server.port, '127.0.0.1');
    client.setNoDelay(true);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => { sockets.delete(socket); client.destroy(); upstream.destroy(); });
    }
    client.pipe(upstream);
    let chain = Promise.resolve();
    upstream.on('data', (bytes) => {
      chain = chain.then(async () => {
        for (const byte of bytes) {
          await new Promise((resolve) => client.write(Buffer.of(byte), resolve));
          await new Promise(setImmediate);
        }
      }).catch(() => {});
    });
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${proxy.address().port}`,
    stop: () => new Promise((resolve) => { proxy.close(resolve); for (const socket of sockets) socket.destroy(); }),
  };
}

export async function all(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}
