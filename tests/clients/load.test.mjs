// Many clients at once. FATHOM_LOAD=full takes the numbers that docs/clients.md promises; otherwise fewer, for every day.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';

import autocannon from 'autocannon';

import { Server, sleep, thinks } from './harness.mjs';

const full = process.env.FATHOM_LOAD === 'full';
const MIB = 1 << 20;

const script = {
  slots: 16,
  context_tokens: 4096,
  queue_limit: 4096,
  answers: [{ text: thinks('Hm.', 'Hello to you!'), uses: -1 }],
};
const chat = { messages: [{ role: 'user', content: 'Hi' }] };

/** Bytes of memory that the process itself holds: not the file pages of the program and the model. */
function ownBytes(server) {
  const status = readFileSync(`/proc/${server.pid}/status`, 'utf8');
  return Number(/^RssAnon:\s+(\d+) kB/m.exec(status)[1]) * 1024;
}

/** Resolves with the whole text of an answer on one of the agent's connections. */
function ask(server, agent, path, body) {
  return new Promise((resolve, reject) => {
    const sent = httpRequest({ host: '127.0.0.1', port: server.port, path, agent, method: body ? 'POST' : 'GET' }, (answer) => {
      let text = '';
      answer.setEncoding('utf8').on('data', (piece) => { text += piece; }).on('error', reject)
        .on('end', () => (answer.statusCode === 200 ? resolve(text) : reject(new Error(`${answer.statusCode} ${text}`))));
    });
    sent.on('error', reject).end(body ? JSON.stringify(body) : undefined);
  });
}

async function inTurns(lanes, count, work) {
  let next = 0;
  await Promise.all(Array.from({ length: lanes }, async () => { while (next < count) await work(next++); }));
}

test('memory stays flat over thousands of short requests, and each is answered', async () => {
  const server = await Server.start({ script });
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const one = async (number) => {
    const stream = number % 2 === 0;
    const text = await ask(server, agent, '/v1/chat/completions', { ...chat, stream });
    if (stream) assert.ok(text.endsWith('data: [DONE]\n\n'), text);
    else assert.equal(JSON.parse(text).choices[0].message.content, 'Hello to you!');
  };
  const count = full ? 10000 : 2000;
  await inTurns(16, 1000, one);
  const before = ownBytes(server);
  await inTurns(16, count, one);
  const growth = ownBytes(server) - before;
  console.log(`memory after 1000 requests ${(before / MIB).toFixed(1)} MiB, after ${count} more ${(growth / MIB).toFixed(2)} MiB more`);
  assert.ok(growth < 6 * MIB, `${growth} bytes more`);
  agent.destroy();
  await server.stop();
});

test('two hundred kept connections stream at once', async () => {
  const server = await Server.start({ script: { ...script, slots: 64 } });
  let whole = 0;
  const result = await autocannon({
    url: `${server.url}/v1/chat/completions`, method: 'POST', body: JSON.stringify({ ...chat, stream: true }),
    connections: 200, amount: full ? 20000 : 2000, timeout: 120,
    verifyBody: (body) => { const ok = String(body).endsWith('data: [DONE]\n\n'); whole += ok; return ok; },
  });
  console.log(`${result['2xx']} streams in ${result.duration} s`);
  assert.equal(result.errors + result.timeouts + result.mismatches + result.non2xx, 0);
  assert.equal(result['2xx'], full ? 20000 : 2000);
  assert.ok(whole >= result['2xx']);
  await server.stop();
});

test('idle connections cost little, disturb nobody and stay usable', async () => {
  const count = full ? 3000 : 800;
  const server = await Server.start({ script });
  const health = 'GET /health HTTP/1.1\r\nHost: x\r\n\r\n';
  const answered = (socket) => new Promise((resolve, reject) => {
    socket.once('data', (bytes) => resolve(String(bytes)));
    socket.once('close', () => reject(new Error('a connection was closed')));
    socket.write(health);
  });
  const open = () => new Promise((resolve, reject) => {
    const socket = connect(server.port, '127.0.0.1', () => resolve(socket));
    socket.on('error', reject);
  });
  const before = ownBytes(server);
  const sockets = [];
  await inTurns(50, count, async () => {
    const socket = await open();
    sockets.push(socket);
    assert.match(await answered(socket), /^HTTP\/1\.1 200 /);
  });
  const each = (ownBytes(server) - before) / count;
  console.log(`${count} idle connections: ${(each / 1024).toFixed(1)} KiB each`);
  assert.ok(each < 32 * 1024, `${each} bytes each`);
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  await inTurns(8, 200, async () => {
    assert.match(await ask(server, agent, '/v1/chat/completions', { ...chat, stream: true }), /\[DONE\]/);
  });
  await inTurns(50, count, async (number) => { assert.match(await answered(sockets[number]), /^HTTP\/1\.1 200 /); });
  sockets.forEach((socket) => { socket.removeAllListeners('close'); socket.destroy(); });
  agent.destroy();
  await server.stop();
});

test('eight sessions at once never see each other, and say what they would say alone', async () => {
  const server = await Server.start({ options: ['--ctx', '2048', '--parallel', '8'] });
  const agent = new Agent({ keepAlive: true });
  const canaries = Array.from({ length: 8 }, (_, n) => `canary${'abcdefgh'[n].repeat(3)}${1000 + n * 37}`);
  const complete = async (prompt, more) => JSON.parse(await ask(server, agent, '/v1/completions',
    { prompt, max_tokens: full ? 40 : 16, temperature: 0, ignore_eos: true, return_token_ids: true, ...more })).choices[0];
  const turns = full ? 6 : 2;
  const sessions = await Promise.all(canaries.map(async (canary, n) => {
    await sleep(Math.random() * 200);
    const seen = [];
    let prompt = [...(await server.post('/tokenize', { content: `The word is ${canary}. ${`${canary} and `.repeat(3 + n * (full ? 5 : 2))}` })).tokens];
    for (let turn = 0; turn < turns; ++turn) {
      const choice = await complete(prompt);
      seen.push({ prompt, ids: choice.token_ids, text: choice.text });
      prompt = [...prompt, ...choice.token_ids, ...prompt.slice(0, 5 + n)];
    }
    return seen;
  }));
  for (const [n, seen] of sessions.entries()) {
    for (const { prompt, ids, text } of seen) {
      for (const canary of canaries)
        if (canary !== canaries[n]) assert.ok(!text.includes(canary), `${canary} in ${text}`);
      assert.deepEqual((await complete(prompt, { cache_prompt: false })).token_ids, ids);
    }
  }
  agent.destroy();
  await server.stop();
});
