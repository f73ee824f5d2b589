// Starts a server with a scenario and a browser that looks at it.
//   FATHOM_WEB_BUILD       folder with node_modules/ and dist/, as the build leaves it
//   FATHOM_SERVER_COMMAND  command of the server to test instead of the fake one; {port} and {scenario} (a file in
//                          the format of fake_server.mjs) are replaced
//   FATHOM_CHROMIUM        the browser, if it is not /usr/bin/chromium
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const build = process.env.FATHOM_WEB_BUILD;
const require = createRequire(join(build, 'package.json'));
const { chromium } = require('playwright-core');
const fake = fileURLToPath(new URL('./fake_server.mjs', import.meta.url));
const command =
  process.env.FATHOM_SERVER_COMMAND ??
  `${process.execPath} ${fake} --port {port} --scenario {scenario} --page ${build}/dist`;

export const patience = { timeout: 90000 };

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** A server process that can be killed and started again on the same port. */
export class Server {
  constructor(port, folder) {
    this.port = port;
    this.folder = folder;
    this.url = `http://127.0.0.1:${port}/`;
  }

  static async start(scenario) {
    const server = new Server(await freePort(), mkdtempSync(join(tmpdir(), 'fathom-web-')));
    await server.run(scenario);
    return server;
  }

  async run(scenario) {
    const file = join(this.folder, 'scenario.json');
    writeFileSync(file, JSON.stringify(scenario));
    const words = command.split(' ').map((word) => word.replace('{port}', this.port).replace('{scenario}', file));
    this.process = spawn(words[0], words.slice(1), { stdio: ['ignore', 'inherit', 'inherit'] });
    this.ended = new Promise((resolve) => this.process.once('exit', resolve));
    const failed = this.ended.then((code) => {
      throw new Error(`the server ended with ${code}`);
    });
    failed.catch(() => {});
    for (;;) {
      const answer = await Promise.race([fetch(`${this.url}health`).catch(() => null), failed]);
      if (answer?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  async stop() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

let browser = null;

export async function closeBrowser() {
  await browser?.close();
  browser = null;
}

async function launched() {
  browser ??= await chromium.launch({
    executablePath: process.env.FATHOM_CHROMIUM ?? '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--host-resolver-rules=MAP fathom.test 127.0.0.1',
    ],
  });
  return browser;
}

/** Runs `test({page, server, chats})`; `chats` gathers the bodies of chat requests. The content policy must hold. */
export async function withPage(scenario, test, options = {}) {
  const server = await Server.start(scenario);
  const context = await (
    await launched()
  ).newContext({ locale: 'en-US', viewport: { width: 1200, height: 800 }, ...options });
  const complaints = [];
  try {
    const page = await context.newPage();
    page.setDefaultTimeout(patience.timeout);
    const chats = [];
    page.on('request', (request) => {
      const { hostname, protocol } = new URL(request.url());
      if (/^(http|ws)/.test(protocol) && !['127.0.0.1', 'fathom.test'].includes(hostname))
        complaints.push(`asked ${request.url()}`);
      if (request.url().endsWith('/v1/chat/completions')) chats.push(request.postDataJSON());
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => {
      if (/content security policy|trusted/i.test(message.text())) complaints.push(message.text());
    });
    await page.goto(options.host ? server.url.replace('127.0.0.1', options.host) : server.url);
    // The page knows the server: its model, its context, its load. A locked one shows nothing of that.
    await page.locator(scenario.key ? 'dialog[open]' : '.figure-queue').waitFor();
    await test({ page, server, chats, context });
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
    await server.stop();
  }
}

/** One chunk a word. */
export function words(text) {
  return text.match(/\s*\S+\s*?/g).map((word) => ({ text: word }));
}

export async function say(page, text) {
  await page.locator('#composer').fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until the nth answer (from 0) is over, and gives its status. */
export async function ended(page, index = 0) {
  const answer = page.locator('.turn.answer').nth(index);
  await answer.and(page.locator('[aria-busy=false]')).waitFor();
  return answer.getAttribute('data-status');
}

export function answerText(page, index = 0) {
  return page.locator('.turn.answer').nth(index).locator('.markdown').last().innerText();
}
