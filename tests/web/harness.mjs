// A browser that looks at a server's page.
//   FATHOM_WEB_BUILD  folder with node_modules/, as the build leaves it
//   FATHOM_CHROMIUM   the browser, if it is not /usr/bin/chromium
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { Server } from './server.mjs';

const require = createRequire(join(process.env.FATHOM_WEB_BUILD, 'package.json'));
const { chromium } = require('playwright-core');

const patience = { timeout: 90000 };

let browser = null;

export async function closeBrowser() {
  await (await browser)?.close();
  browser = null;
}

function launched() {
  browser ??= chromium.launch({
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

/** A window with nothing of others in it. */
export async function newContext(options) {
  return (await launched()).newContext({ locale: 'en-US', ...options });
}

/**
 * Runs `test({page, server, chats, context})`; `chats` gathers the bodies of chat requests. The content policy must
 * hold. `host` and `props` (members that replace the server's) are not for Playwright.
 */
export async function withPage(scenario, test, { host = '127.0.0.1', props = null, ...options } = {}) {
  const context = await newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const complaints = [];
  let server = null;
  try {
    server = await Server.start(scenario);
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
    if (props !== null) {
      await page.route('**/props', async (route) => {
        const response = await route.fetch();
        await route.fulfill({ response, json: { ...(await response.json()), ...props } });
      });
    }
    await page.goto(server.url.replace('127.0.0.1', host));
    // The page knows the server: its model, its context, its load. A locked one shows nothing of that.
    const locked = scenario.options?.includes('--api-key');
    await page.locator(locked ? 'dialog[open]' : '.figure-queue').waitFor();
    await test({ page, server, chats, context });
    assert.deepEqual(complaints, []);
  } finally {
    // Also if the browser is gone.
    await server?.stop();
    await context.close();
  }
}

export async function say(page, text) {
  await page.locator('#composer').fill(text);
  await page.keyboard.press('Enter');
}

/** Waits until the nth answer (from 0) is over, and gives its status. */
export async function ended(page, index = 0) {
  const turn = page.locator('.turn.answer').nth(index);
  await turn.and(page.locator('[aria-busy=false]')).waitFor();
  return turn.getAttribute('data-status');
}

export function answerText(page, index = 0) {
  return page.locator('.turn.answer').nth(index).locator('.markdown').last().innerText();
}

/** How the nth answer ended, in the page's words. */
export function endingText(page, index = 0) {
  return page.locator('.turn.answer').nth(index).locator('.ending').innerText();
}

/** Waits until what is read is what is expected: the page draws after the keys that change it, not with them. */
export async function eventually(read, expected) {
  const deadline = Date.now() + 30_000;
  let found = await read();
  while (found !== expected && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    found = await read();
  }
  assert.equal(found, expected);
}

/** The chunks of the next chat answer, once it is over. The browser's own record of a streamed body is not always kept. */
export async function nextChunks(page) {
  const text = await page.evaluate(
    () =>
      new Promise((resolve) => {
        const plain = window.fetch;
        window.fetch = async (...words) => {
          const response = await plain(...words);
          if (response.url.endsWith('/v1/chat/completions')) {
            window.fetch = plain;
            resolve(response.clone().text());
          }
          return response;
        };
      }),
  );
  const lines = text.split('\n').filter((line) => line.startsWith('data: {'));
  return lines.map((line) => JSON.parse(line.slice('data: '.length)));
}
