// Stands in for the server: serves the built page and plays scripted answers.
// usage: fake_server.mjs --port N --scenario FILE --page FOLDER
//
// A scenario is JSON:
//   models, props, slots  bodies of GET /v1/models (names only), /props and /slots
//   key                   API key that requests must bring
//   answers               one for each chat request in order; the last one again when they run out. Each has
//     status, message     refused at once with this status
//     queue_ms            silence before anything
//     prefill             {tokens, steps, step_ms, hold}: comments of progress; held until a cancel
//     steps               [{thinking} | {text} | {tool: {index, id, name, arguments}}], one chunk each
//     step_ms             between chunks
//     hold                nothing after the steps until the request is cancelled
//     cut                 the stream is over after the steps, without a finish reason
//     stream_error        an error event after the steps
//     finish, details     finish_reason and finish_details
//     usage, timings      parts that replace what the fake makes up
//     split               bytes a write, to cut inside of characters
import { createServer } from 'node:http';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const { values: options } = parseArgs({
  options: { port: { type: 'string' }, scenario: { type: 'string' }, page: { type: 'string' } },
});
const scenario = JSON.parse(readFileSync(options.scenario, 'utf8'));
const header = readFileSync(new URL('../../src/server/web_assets.h', import.meta.url), 'utf8');
const policy = [.../kWebContentSecurityPolicy =([^;]*(?:"[^"]*"[^"]*)+);/.exec(header)[1].matchAll(/"([^"]*)"/g)]
  .map((match) => match[1])
  .join('');
const types = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
};
const assets = new Map([['/', ['html', readFileSync(join(options.page, 'index.html'))]]]);
for (const name of readdirSync(join(options.page, 'assets'))) {
  assets.set(`/assets/${name}`, [name.split('.').at(-1), readFileSync(join(options.page, 'assets', name))]);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const cancels = new Map();
let asked = 0;

function send(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString('utf8'));
}

/** Writes whole, or in pieces of a few bytes that the network may deliver one by one. */
async function write(response, text, split) {
  const bytes = Buffer.from(text);
  if (!split) return void response.write(bytes);
  for (let at = 0; at < bytes.length; at += split) {
    response.write(bytes.subarray(at, at + split));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function deltaOf(step) {
  if ('thinking' in step) return { reasoning_content: step.thinking };
  if ('text' in step) return { content: step.text };
  const { index = 0, id, name, arguments: text = '' } = step.tool;
  const body = { ...(name === undefined ? {} : { name }), arguments: text };
  return { tool_calls: [{ index, ...(id === undefined ? {} : { id, type: 'function' }), function: body }] };
}

async function chat(request, response) {
  const asks = await body(request);
  const answer = scenario.answers[Math.min(asked++, scenario.answers.length - 1)] ?? { steps: [{ text: 'Yes.' }] };
  if (answer.status) return send(response, answer.status, { error: { message: answer.message } });
  const id = `chatcmpl-${asked}`;
  const steps = answer.steps ?? [];
  let cancelled = false;
  let wake = () => {};
  const cancel = () => ((cancelled = true), wake());
  const pause = (ms) =>
    Promise.race([sleep(ms), new Promise((resolve) => (cancelled ? resolve() : (wake = resolve)))]);
  cancels.set(id, cancel);
  response.on('close', cancel);
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  const chunk = (value) =>
    write(
      response,
      `data: ${JSON.stringify({ id, object: 'chat.completion.chunk', model: asks.model, ...value })}\n\n`,
      answer.split,
    );
  const delta = (value, extra) => chunk({ choices: [{ index: 0, delta: value, finish_reason: null, ...extra }] });

  response.write(': queued\n\n');
  await pause(answer.queue_ms ?? 0);
  const prefill = answer.prefill ?? { tokens: 24, steps: 0 };
  for (let step = 0; step < prefill.steps && !cancelled; step++) {
    response.write(`: prefill ${Math.round((prefill.tokens * step) / prefill.steps)}/${prefill.tokens}\n\n`);
    await pause(prefill.step_ms ?? 0);
  }
  while (prefill.hold && !cancelled) await pause(60000);
  if (!cancelled) await delta({ role: 'assistant', content: '' });
  let sent = 0;
  for (; sent < steps.length && !cancelled; sent++) {
    await delta(deltaOf(steps[sent]));
    await pause(answer.step_ms ?? 0);
  }
  while (answer.hold && !cancelled) await pause(60000);
  cancels.delete(id);
  if (answer.cut && !cancelled) return response.end();
  if (answer.stream_error && !cancelled) {
    await write(response, `data: ${JSON.stringify({ error: { message: answer.stream_error } })}\n\n`);
    return response.end();
  }
  const reason = cancelled ? 'stop' : (answer.finish ?? 'stop');
  await delta(
    {},
    {
      finish_reason: reason,
      finish_details: cancelled ? { type: 'cancelled' } : (answer.details ?? { type: reason }),
    },
  );
  const usage = {
    prompt_tokens: prefill.tokens,
    completion_tokens: sent,
    total_tokens: prefill.tokens + sent,
    prompt_tokens_details: { cached_tokens: 8 },
    ...answer.usage,
  };
  const timings = {
    queue_ms: answer.queue_ms ?? 0,
    prefill_ms: 10,
    prefill_tokens_per_second: 1455.1,
    decode_ms: 100,
    decode_tokens_per_second: 37.03,
    ...answer.timings,
  };
  if (asks.stream_options?.include_usage) await chunk({ choices: [], usage, timings });
  await write(response, 'data: [DONE]\n\n');
  response.end();
}

function page(path, response) {
  const asset = assets.get(path);
  if (asset === undefined) return send(response, 404, { error: { message: `no such path: ${path}` } });
  response.writeHead(200, { 'content-type': types[asset[0]], 'content-security-policy': policy }).end(asset[1]);
}

const server = createServer((request, response) => {
  const path = new URL(request.url, 'http://x').pathname;
  const api = /^\/(v1|props|slots)(\/|$)/.test(path);
  if (api && scenario.key && request.headers.authorization !== `Bearer ${scenario.key}`) {
    return send(response, 401, { error: { message: 'missing or wrong API key' } });
  }
  if (path === '/health') return send(response, 200, { status: 'ok' });
  if (path === '/props')
    return send(response, 200, scenario.props ?? { context_size: 131072, has_vision: false, defaults: {} });
  if (path === '/slots')
    return send(response, 200, scenario.slots ?? { queue: 0, slots: [{ id: 0, state: 'idle' }] });
  if (path === '/v1/models') {
    const data = (scenario.models ?? ['DeepSeek-V4.1-Flash']).map((id) => ({ id, object: 'model' }));
    return send(response, 200, { object: 'list', data });
  }
  if (request.method === 'POST' && path.startsWith('/v1/cancel/')) {
    const cancel = cancels.get(decodeURIComponent(path.slice('/v1/cancel/'.length)));
    cancel?.();
    return send(
      response,
      cancel ? 200 : 404,
      cancel ? { cancelled: true } : { error: { message: 'no such request' } },
    );
  }
  if (request.method === 'POST' && path === '/v1/chat/completions') {
    return void chat(request, response).catch((error) => response.destroy(error));
  }
  return page(path, response);
});
server.listen(Number(options.port), '127.0.0.1');
