// Measures what docs/benchmarks/serve.md shows, and prints its tables. It asserts nothing about speed.
//   FATHOM_SECONDS  of each measurement of a rate, default 5
//   FATHOM_FIGURES  some of: rates memory latencies throughput gaps; default all
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Agent, request as httpRequest } from 'node:http';
import { connect } from 'node:net';

import autocannon from 'autocannon';

import { Server, sleep, thinks } from './harness.mjs';

const seconds = Number(process.env.FATHOM_SECONDS ?? 5);
const MIB = 1 << 20;
const chat = { messages: [{ role: 'user', content: 'Hi' }] };
const script = { slots: 64, context_tokens: 1 << 16, queue_limit: 4096, answers: [
  { match: '[slow]', text: 'never', prefill_ms: 3600000, uses: -1 },
  { text: thinks('Hm.', 'Hello to you!'), uses: -1 }] };

const rows = [];
const row = (what, value) => { rows.push(`| ${what} | ${value} |`); console.log(rows.at(-1)); };
const ms = (value) => (value < 10 ? value.toFixed(2) : value.toFixed(0));
const ranked = (values, share) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))];
const spread = (values) => `median ${ms(ranked(values, 0.5))} ms, 99 % ${ms(ranked(values, 0.99))} ms, most ${ms(Math.max(...values))} ms`;
const randomIds = (count) => [0, ...Array.from({ length: count - 1 }, () => 10 + Math.floor(Math.random() * 7000))];

function resident(server) {
  const status = readFileSync(`/proc/${server.pid}/status`, 'utf8');
  const of = (name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)[1]) / 1024;
  return `${of('VmRSS').toFixed(1)} MiB, of them its own ${of('RssAnon').toFixed(1)}`;
}

/** Sends a request; the promise has the answer's headers, `times` gets the moment of each piece of its body. */
function open(server, path, body, agent = undefined) {
  const sent = httpRequest({ host: '127.0.0.1', port: server.port, path, agent, method: body ? 'POST' : 'GET' });
  const call = { sent, times: [], text: '' };
  call.headers = new Promise((resolve, reject) => {
    sent.on('error', reject).on('response', (answer) => {
      resolve(performance.now());
      call.whole = new Promise((done) => answer.setEncoding('utf8').on('error', done).on('end', done)
        .on('data', (piece) => { call.times.push(performance.now()); call.text += piece; }));
    });
  });
  call.headers.catch(() => {});
  sent.end(body ? JSON.stringify(body) : undefined);
  return call;
}
async function ask(server, path, body, agent) {
  const call = open(server, path, body, agent);
  await call.headers;
  await call.whole;
  return JSON.parse(call.text);
}

const cannon = (url, body, connections, more = {}) => autocannon({ url, connections, timeout: 120, ...(more.amount ? {} : { duration: seconds }),
  ...(body ? { method: 'POST', body: JSON.stringify(body) } : {}), ...more });
const rate = (result) => `${(result['2xx'] / result.duration).toFixed(0)} a second, median ${result.latency.p50} ms, 99 % ${result.latency.p99} ms`
  + (result.non2xx + result.errors + result.timeouts ? ` (${result.non2xx + result.errors + result.timeouts} failed)` : '');

async function rates() {
  const server = await Server.start({ script });
  row('memory of a fresh server (scripted)', resident(server));
  try {
    const out = execFileSync('wrk', ['-t1', '-c64', `-d${seconds}s`, '--latency', `${server.url}/health`], { encoding: 'utf8' });
    const [, persecond] = /Requests\/sec:\s+([\d.]+)/.exec(out), [, p50] = /50%\s+(\S+)/.exec(out), [, p99] = /99%\s+(\S+)/.exec(out);
    row('`/health`, wrk, 64 connections', `${Number(persecond).toFixed(0)} a second, median ${p50}, 99 % ${p99}`);
  } catch { row('`/health`, wrk', 'wrk is missing'); }
  row('`/health`, autocannon, 64 connections', rate(await cannon(`${server.url}/health`, null, 64)));
  const one = { prompt: [0, 5, 6, 7], max_tokens: 1 };
  row('completion of 1 token, scripted, 16 connections', rate(await cannon(`${server.url}/v1/completions`, one, 16)));
  row('chat, whole answer, scripted, 16 connections', rate(await cannon(`${server.url}/v1/chat/completions`, chat, 16)));
  row('chat, streamed, scripted, 200 connections', rate(await cannon(`${server.url}/v1/chat/completions`, { ...chat, stream: true }, 200)));
  row('memory after these', resident(server));
  await server.stop();
}

async function memory() {
  const server = await Server.start({ script });
  const sockets = [];
  row('memory before connections', resident(server));
  for (let count = 0; count < 3000; ++count) {
    await new Promise((resolve, reject) => {
      const socket = connect(server.port, '127.0.0.1', () => socket.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\n'));
      socket.once('data', resolve).on('error', reject);
      sockets.push(socket);
    });
  }
  row('memory with 3,000 idle connections', resident(server));
  const result = await cannon(`${server.url}/v1/chat/completions`, chat, 16);
  row('chat, whole answer, scripted, 16 connections beside 3,000 idle ones', rate(result));
  sockets.forEach((socket) => socket.destroy());
  await server.stop();

  const fresh = await Server.start({ script });
  for (const count of [1000, 10000, 10000]) {
    await cannon(`${fresh.url}/v1/chat/completions`, chat, 16, { amount: count });
    row(`memory after ${count} more short chats`, resident(fresh));
  }
  await fresh.stop();
}

async function latencies() {
  const server = await Server.start({ script });
  const agent = new Agent({ keepAlive: true });
  const first = [], leaving = [];
  for (let count = 0; count < 100; ++count) {
    const begin = performance.now();
    const call = open(server, '/v1/chat/completions', { messages: [{ role: 'user', content: '[slow]' }], stream: true });
    first.push((await call.headers) - begin);
    while (!(await ask(server, '/slots', null, agent)).slots.some((slot) => slot.is_processing)) await sleep(1);
    const left = performance.now();
    call.sent.destroy();
    while ((await ask(server, '/slots', null, agent)).slots.some((slot) => slot.is_processing));
    leaving.push(performance.now() - left);
  }
  row('headers of a stream whose prompt takes an hour, new connection', spread(first));
  row('client leaves during such a prompt until `/slots` is idle', spread(leaving));
  agent.destroy();
  await server.stop();

  const real = await Server.start({ options: ['--ctx', '16384', '--parallel', '2'] });
  const poll = new Agent({ keepAlive: true });
  const left = [];
  for (let count = 0; count < 20; ++count) {
    const call = open(real, '/v1/completions', { prompt: randomIds(12000), max_tokens: 1, stream: true, cache_prompt: false });
    await call.headers;
    while (!(await ask(real, '/slots', null, poll)).slots.some((slot) => slot.state === 'prefill')) await sleep(1);
    await sleep(20 + Math.random() * 100);
    const busy = (await ask(real, '/slots', null, poll)).slots.some((slot) => slot.state === 'prefill');
    const begin = performance.now();
    call.sent.destroy();
    while ((await ask(real, '/slots', null, poll)).slots.some((slot) => slot.is_processing));
    if (busy) left.push(performance.now() - begin);
  }
  row(`the same, embedded model, 12,000 tokens (${left.length} tries)`, spread(left));
  poll.destroy();
  await real.stop();
}

async function throughput() {
  const server = await Server.start({ options: ['--ctx', '2048', '--parallel', '16'] });
  const agent = new Agent({ keepAlive: true });
  const complete = (ids, count) => ask(server, '/v1/completions',
    { prompt: ids, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: false }, agent);
  await complete(randomIds(64), 32);
  row('completion of 1 token, embedded model, 16 connections',
    rate(await cannon(`${server.url}/v1/completions`, { prompt: [0, 5, 6, 7], max_tokens: 1 }, 16)));
  for (const users of [1, 4, 16]) {
    const begin = performance.now();
    await Promise.all(Array.from({ length: users }, () => complete(randomIds(32), 200)));
    const took = (performance.now() - begin) / 1000;
    row(`tokens generated, embedded model, ${users} user${users > 1 ? 's' : ''}`, `${((users * 200) / took).toFixed(0)} a second in all`);
  }
  const begin = performance.now();
  await ask(server, '/v1/completions', { prompt: randomIds(1900), max_tokens: 1, cache_prompt: false }, agent);
  row('prompt tokens evaluated, embedded model, 1,900 at once', `${(1900 / ((performance.now() - begin) / 1000)).toFixed(0)} a second`);
  await server.stop();
}

async function gaps() {
  const server = await Server.start({ options: ['--ctx', '2048', '--parallel', '4'] });
  const agent = new Agent({ keepAlive: true });
  const stream = async () => {
    const call = open(server, '/v1/completions', { prompt: randomIds(32), max_tokens: 400, temperature: 0, ignore_eos: true,
      stream: true, cache_prompt: false, return_token_ids: true }, agent);
    await call.headers;
    await call.whole;
    return call.times.slice(2).map((time, at) => time - call.times[at + 1]);
  };
  await stream();
  row('between pieces of a stream, embedded model, alone', spread(await stream()));
  let going = true, prompts = 0;
  const other = (async () => {
    while (going) {
      await ask(server, '/v1/completions', { prompt: randomIds(1000), max_tokens: 1, cache_prompt: false });
      ++prompts;
    }
  })();
  const beside = await stream();
  going = false;
  row('the same while another client sends prompts of 1,000 tokens, one after the other', `${spread(beside)} (${prompts} prompts)`);
  await other;
  agent.destroy();
  await server.stop();
}

console.log('| what | measured |\n|---|---|');
const parts = { rates, memory, latencies, throughput, gaps };
for (const [name, part] of Object.entries(parts)) if ((process.env.FATHOM_FIGURES ?? name).includes(name)) await part();
