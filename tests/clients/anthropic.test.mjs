// The package `@anthropic-ai/sdk` against the real server.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';

import { Server, all, calls, drip, thinks } from './harness.mjs';

const clientOf = (url, more = {}) => new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0, ...more });
const model = 'any';
const base = { model, max_tokens: 4000 };
const user = (content) => [{ role: 'user', content }];
const thinking = { type: 'enabled', budget_tokens: 2000 };

const LONG_TEXT = Array.from({ length: 80 }, (_, n) => `line ${n} of "the" file\n`).join('');
const readFile = { name: 'read_file', description: 'Reads a file', cache_control: { type: 'ephemeral' },
  input_schema: { type: 'object', properties: { path: { type: 'string' }, line: { type: 'integer' } }, required: ['path'] } };
const writeFile = { name: 'write_file',
  input_schema: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } } };

const script = {
  slots: 4,
  context_tokens: 1 << 20,
  answers: [
    { match: '[step three]', text: '\n\nAll is done.'.trim(), uses: -1 },
    { match: 'seven dwarfs', text: 'There are seven.', uses: -1 },
    { match: '[think and read]', text: thinks('I must read.', 'Reading.' + calls(['read_file', { path: 'a.txt', line: 7 }])), uses: -1 },
    { match: '[read]', text: 'Reading.' + calls(['read_file', { path: 'a.txt', line: 7 }]), uses: -1 },
    { match: '[two]', text: calls(['read_file', { path: 'a' }], ['read_file', { path: 'b' }]), uses: -1 },
    { match: '[long call]', text: calls(['write_file', { path: 'a.txt', content: LONG_TEXT }]), bytes: true, uses: -1 },
    { match: '[emoji]', text: 'Ein 🐟 für 안녕하세요.', bytes: true, uses: -1 },
    { match: '[thinks]', text: thinks('Let me think 🤔.', 'The answer.'), bytes: true, uses: -1 },
    { match: '[stops]', text: 'one two O P Q three', uses: -1 },
    { match: '[json]', text: '{"city":"Paris","days":3}', uses: -1 },
    { match: '[fails]', text: 'It goes well until', fail_after: 3, fail_message: 'a disk fell off', uses: -1 },
    { match: '[forever]', text: 'on and on', hangs: true, uses: -1 },
    { match: '[slow prompt]', text: 'never', prefill_ms: 3600000, uses: -1 },
    { match: '[late]', text: 'Here I am.', prefill_ms: 2000, uses: -1 },
    { text: 'Hello to you!', uses: -1 },
  ],
};

describe('@anthropic-ai/sdk against a script', () => {
  let server, client;
  before(async () => {
    server = await Server.start({ script, options: ['--sse-ping-interval', '0.2'] });
    client = clientOf(server.url);
  });
  after(() => server.stop());

  test('answers a message with usage and the reason of its end', async () => {
    const message = await client.messages.create({ ...base, system: 'Be kind.', messages: user('Hi') });
    assert.deepEqual(message.content, [{ type: 'text', text: 'Hello to you!' }]);
    assert.equal(message.role, 'assistant');
    assert.equal(message.stop_reason, 'end_turn');
    assert.equal(message.stop_sequence, null);
    assert.ok(message.usage.input_tokens > 0 && message.usage.output_tokens > 0);
  });

  test('events come in strict order, one block at a time', async () => {
    const events = await all(client.messages.stream({ ...base, thinking, messages: user('[think and read]'), tools: [readFile] }));
    let open = null;
    const kinds = [];
    assert.equal(events[0].type, 'message_start');
    assert.deepEqual(events.slice(-2).map((event) => event.type), ['message_delta', 'message_stop']);
    for (const event of events.slice(1, -2)) {
      if (event.type === 'content_block_start') {
        assert.equal(open, null);
        assert.equal(event.index, kinds.length);
        open = event.content_block.type;
        kinds.push(open);
      } else if (event.type === 'content_block_stop') {
        assert.equal(event.index, kinds.length - 1);
        open = null;
      } else {
        const fits = { thinking: ['thinking_delta', 'signature_delta'], text: ['text_delta'], tool_use: ['input_json_delta'] };
        assert.equal(event.type, 'content_block_delta');
        assert.ok(fits[open].includes(event.delta.type), `${event.delta.type} in ${open}`);
      }
    }
    assert.deepEqual(kinds, ['thinking', 'text', 'tool_use']);
  });

  test('the stream helper gives the final message with thinking and its signature', async () => {
    const stream = client.messages.stream({ ...base, thinking, messages: user('[thinks]') });
    let thought = '', text = '';
    stream.on('thinking', (delta) => { thought += delta; }).on('text', (delta) => { text += delta; });
    const message = await stream.finalMessage();
    assert.equal(thought, 'Let me think 🤔.');
    assert.equal(text, 'The answer.');
    assert.equal(message.content[0].thinking, thought);
    assert.ok(message.content[0].signature.length > 0);
    const whole = await client.messages.create({ ...base, thinking, messages: user('[thinks]') });
    assert.deepEqual(whole.content, message.content);
    assert.equal(whole.stop_reason, message.stop_reason);
  });

  test('characters cut by tokens and by the network arrive whole', async () => {
    const proxy = await drip(server);
    const message = await clientOf(proxy.url).messages.stream({ ...base, messages: user('[emoji]') }).finalMessage();
    assert.equal(message.content[0].text, 'Ein 🐟 für 안녕하세요.');
    await proxy.stop();
  });

  test('more than forty deltas of an input are one call', async () => {
    const stream = client.messages.stream({ ...base, messages: user('[long call]'), tools: [writeFile] });
    let deltas = 0;
    stream.on('inputJson', () => { ++deltas; });
    const message = await stream.finalMessage();
    assert.ok(deltas > 40, `${deltas} deltas`);
    assert.equal(message.content.length, 1);
    assert.deepEqual(message.content[0].input, { path: 'a.txt', content: LONG_TEXT });
    assert.equal(message.stop_reason, 'tool_use');
  });

  test('a call that the limit cuts is no tool_use', async () => {
    const message = await client.messages.create({ ...base, max_tokens: 40, messages: user('[long call]'), tools: [writeFile] });
    assert.equal(message.stop_reason, 'max_tokens');
    assert.ok(message.content.every((block) => block.type !== 'tool_use'));
  });

  test('a result goes back and the conversation continues over what was generated', async () => {
    const messages = user('[think and read] the file');
    const request = { ...base, thinking, tools: [readFile] };
    const first = await client.messages.stream({ ...request, messages }).finalMessage();
    const call = first.content.find((block) => block.type === 'tool_use');
    assert.deepEqual(call.input, { path: 'a.txt', line: 7 });
    messages.push({ role: 'assistant', content: first.content }, { role: 'user', content: [
      { type: 'tool_result', tool_use_id: call.id, content: [{ type: 'text', text: 'seven dwarfs' }] }] });
    const second = await client.messages.create({ ...request, messages });
    assert.equal(second.stop_reason, 'end_turn');
    const all = second.usage.input_tokens + second.usage.cache_read_input_tokens;
    const before = first.usage.input_tokens + first.usage.cache_read_input_tokens + first.usage.output_tokens;
    assert.ok(second.usage.cache_read_input_tokens >= before - 1, `${second.usage.cache_read_input_tokens} of ${before}`);
    assert.ok(all > before);
    // Clients that drop the thinking are answered too.
    messages[1] = { role: 'assistant', content: first.content.filter((block) => block.type !== 'thinking') };
    const third = await client.messages.create({ ...request, messages });
    assert.equal(third.stop_reason, 'end_turn');
  });

  test('the tool runner runs both calls and comes to an end', async () => {
    const asked = [];
    const runner = client.beta.messages.toolRunner({ ...base, messages: user('[two]'), tools: [betaZodTool({
      name: 'read_file', description: 'Reads', inputSchema: z.object({ path: z.string() }),
      run: ({ path }) => { asked.push(path); return 'seven dwarfs'; } })] });
    const message = await runner;
    assert.deepEqual(asked.sort(), ['a', 'b']);
    assert.equal(message.content[0].text, 'There are seven.');
  });

  test('structured output is parsed', async () => {
    const shape = z.object({ city: z.string(), days: z.number().int() });
    const message = await client.messages.parse({ ...base, messages: user('[json]'),
      output_config: { format: zodOutputFormat(shape) } });
    assert.deepEqual(message.parsed_output, { city: 'Paris', days: 3 });
  });

  test('a matched stop sequence is named', async () => {
    const request = { ...base, messages: user('[stops]'), stop_sequences: ['nothing', 'O P Q'] };
    for (const message of [await client.messages.create(request), await client.messages.stream(request).finalMessage()]) {
      assert.equal(message.stop_reason, 'stop_sequence');
      assert.equal(message.stop_sequence, 'O P Q');
      assert.equal(message.content[0].text, 'one two ');
    }
  });

  test('counted tokens are those of the message', async () => {
    const request = { model, system: [{ type: 'text', text: 'Be kind.' }], tools: [readFile], messages: user('Hello there') };
    const counted = await client.messages.countTokens(request);
    const message = await client.messages.create({ ...request, max_tokens: 5 });
    assert.equal(counted.input_tokens, message.usage.input_tokens + message.usage.cache_read_input_tokens);
  });

  test('pings are real events while the prompt is evaluated', async () => {
    const answer = await fetch(`${server.url}/v1/messages`, { method: 'POST', headers: { 'anthropic-version': '2023-06-01' },
      body: JSON.stringify({ ...base, stream: true, messages: user('[late]') }) });
    const lines = (await answer.text()).split('\n').filter((line) => line.startsWith('event: '));
    const first = lines.indexOf('event: content_block_start');
    assert.ok(lines.slice(0, first).filter((line) => line === 'event: ping').length >= 2, lines.join(' '));
    const message = await client.messages.stream({ ...base, messages: user('[late]') }).finalMessage();
    assert.equal(message.content[0].text, 'Here I am.');
  });

  test('a failure in the middle of a stream is an error, not an end', async () => {
    await assert.rejects(client.messages.stream({ ...base, messages: user('[fails]') }).finalMessage(),
      (error) => error instanceof Anthropic.APIError && /a disk fell off/.test(error.message));
    await assert.rejects(client.messages.create({ ...base, messages: user('[fails]') }), Anthropic.InternalServerError);
  });

  test('abort ends the answer and frees the slot, also while the prompt is evaluated', async () => {
    const stream = client.messages.stream({ ...base, messages: user('[forever]') });
    stream.on('text', () => stream.abort());
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
    await server.untilIdle();
    const early = client.messages.stream({ ...base, messages: user('[slow prompt]') });
    early.on('error', () => {}).on('abort', () => {});
    await server.untilBusy();
    early.abort();
    await assert.rejects(early.finalMessage(), Anthropic.APIUserAbortError);
    await server.untilIdle();
  });

  test('wrong requests are errors that name the member', async () => {
    const wrong = [[{ max_tokens: -3 }, 'max_tokens'], [{ temperature: 'hot' }, 'temperature'],
      [{ messages: [{ role: 'king', content: 'x' }] }, 'messages[0].role'],
      [{ messages: user([{ type: 'hologram' }]) }, 'messages[0].content[0].type']];
    for (const [member, name] of wrong) {
      await assert.rejects(client.messages.create({ ...base, messages: user('Hi'), ...member }), (error) => {
        assert.ok(error instanceof Anthropic.BadRequestError, error.stack);
        assert.equal(error.error.error.type, 'invalid_request_error');
        assert.ok(error.message.includes(name), error.message);
        return true;
      });
    }
    await assert.rejects(client.models.retrieve('claude-9'), Anthropic.NotFoundError);
    assert.equal((await all(client.models.list())).length, 1);
  });

  test('an answer has a request id that can be cancelled and named in reports', async () => {
    const message = await client.messages.create({ ...base, messages: user('Hi') });
    assert.ok(message._request_id, 'the header request-id');
  });
});

describe('@anthropic-ai/sdk and a server that says no', () => {
  test('a key is asked for, as x-api-key or as a bearer token', async () => {
    const server = await Server.start({ script, options: ['--api-key', 'sesame'] });
    const request = { ...base, messages: user('Hi') };
    await assert.rejects(clientOf(server.url).messages.create(request), Anthropic.AuthenticationError);
    for (const key of [{ apiKey: 'sesame' }, { apiKey: null, authToken: 'sesame' }])
      assert.equal((await clientOf(server.url, key).messages.create(request)).stop_reason, 'end_turn');
    await server.stop();
  });

  test('a full queue says when to come back', async () => {
    const server = await Server.start({ script: { ...script, slots: 1, queue_limit: 0 } });
    const client = clientOf(server.url);
    const holder = client.messages.stream({ ...base, messages: user('[forever]') });
    holder.on('error', () => {}).on('abort', () => {});
    await server.untilBusy();
    await assert.rejects(client.messages.create({ ...base, messages: user('Hi') }), (error) => {
      assert.ok(error instanceof Anthropic.RateLimitError, error.stack);
      assert.equal(error.error.error.type, 'rate_limit_error');
      assert.ok(Number(error.headers.get('retry-after')) >= 1);
      return true;
    });
    holder.abort();
    await server.stop();
  });
});

/** The body of turn `turn` as Claude Code sends it: a line that is always different, cache marks that move. */
function codeRequest(history, turn) {
  const last = { ...history.at(-1) };
  last.content = last.content.map((block, at) =>
    (at === last.content.length - 1 ? { ...block, cache_control: { type: 'ephemeral' } } : block));
  return { model: 'claude-sonnet-9', max_tokens: 64, metadata: { user_id: 'user_1' },
    system: [
      { type: 'text', text: `x-anthropic-billing-header: cc_version=2.1.${turn}; cch=${(turn * 7919).toString(16)};` },
      { type: 'text', text: 'You are a coding agent.', cache_control: { type: 'ephemeral' } },
      { type: 'text', text: 'Follow the rules of the house. '.repeat(10), cache_control: { type: 'ephemeral' } }],
    context_management: { edits: [{ type: 'clear_thinking_20251015', keep: 'all' }] },
    tools: [readFile, writeFile], messages: [...history.slice(0, -1), last] };
}

/** Plays a session and checks that each turn evaluates what is new and nothing else. */
async function playCodeSession(client, turns, more = {}) {
  const history = [];
  let known = 0;
  for (let turn = 0; turn < turns; ++turn) {
    const results = (history.at(-1)?.content ?? []).filter((block) => block.type === 'tool_use')
      .map((block) => ({ type: 'tool_result', tool_use_id: block.id, content: `line ${turn} of the file` }));
    history.push({ role: 'user', content: [...results, { type: 'text', text: `[read] Go on, turn ${turn}.` }] });
    const message = await client.messages.stream({ ...codeRequest(history, turn), ...more }).finalMessage();
    const cached = message.usage.cache_read_input_tokens;
    const prompt = message.usage.input_tokens + cached;
    if (turn > 0) assert.ok(cached >= known - 1, `turn ${turn}: ${cached} cached, ${known} known`);
    known = prompt + message.usage.output_tokens;
    history.push({ role: 'assistant', content: message.content });
  }
  return history;
}

describe('a session of a coding agent', () => {
  test('every turn reuses all turns before it, with calls', async () => {
    const server = await Server.start({ script });
    const history = await playCodeSession(clientOf(server.url), 6, { max_tokens: 2000 });
    assert.ok(history.filter((turn) => turn.role === 'assistant')
      .every((turn) => turn.content.some((block) => block.type === 'tool_use')));
    await server.stop();
  });

  test('every turn reuses all turns before it, with the embedded model', async () => {
    const server = await Server.start({ options: ['--ctx', '8192'] });
    await playCodeSession(clientOf(server.url), 4, { max_tokens: 24, temperature: 0, tools: [] });
    await server.stop();
  });
});
