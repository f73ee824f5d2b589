// The package `openai` against the real server. FATHOM_OPENAI names another package to test in its place.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { Server, all, calls, drip, thinks } from './harness.mjs';

const name = process.env.FATHOM_OPENAI ?? 'openai';
const sdk = await import(name);
const OpenAI = sdk.default;
const { zodFunction, zodResponseFormat, zodTextFormat } = await import(`${name}/helpers/zod`);
const { z } = await import('zod');

const clientOf = (url, more = {}) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0, ...more });
const user = (content) => [{ role: 'user', content }];
const model = 'any';

const LONG_TEXT = Array.from({ length: 80 }, (_, n) => `line ${n} of "the" file\n`).join('');
const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city'] },
  },
};
const writeFile = {
  type: 'function',
  function: {
    name: 'write_file',
    parameters: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } },
  },
};

const script = {
  slots: 4,
  context_tokens: 1 << 20,
  answers: [
    { match: '18 degrees', text: thinks('Warm.', 'It is warm in Paris.'), uses: -1 },
    { match: '[weather]', text: thinks('Ask.', 'Let me see.' + calls(['get_weather', { city: 'Paris', days: 3 }])), uses: -1 },
    { match: '[two]', text: thinks('', calls(['get_weather', { city: 'Paris' }], ['get_weather', { city: 'Oslo' }])), uses: -1 },
    { match: '[long call]', text: thinks('', calls(['write_file', { path: 'a.txt', content: LONG_TEXT }])), bytes: true, uses: -1 },
    { match: '[cut call]', text: thinks('', calls(['write_file', { path: 'a.txt', content: LONG_TEXT }])), uses: -1 },
    { match: '[json]', text: thinks('', '{"city":"Paris","days":3}'), uses: -1 },
    { match: '[emoji]', text: thinks('🤔', 'Ein 🐟 für 안녕하세요.'), bytes: true, uses: -1 },
    { match: '[stops]', text: thinks('', 'one two O P Q three'), uses: -1 },
    { match: '[fails]', text: thinks('', 'It goes well until'), fail_after: 3, fail_message: 'a disk fell off', uses: -1 },
    { match: '[forever]', text: thinks('', 'on and on'), hangs: true, uses: -1 },
    { match: '[slow prompt]', text: 'never', prefill_ms: 3600000, uses: -1 },
    { match: '[thoughts only]', text: 'I think and think', uses: -1 },
    { text: thinks('The user greets.', 'Hello to you!'), uses: -1 },
  ],
};

describe(`${name} against a script`, () => {
  let server, client;
  before(async () => { server = await Server.start({ script }); client = clientOf(server.url); });
  after(() => server.stop());

  test('lists and retrieves the model; an unknown one is not found', async () => {
    const models = await all(client.models.list());
    assert.equal(models.length, 1);
    const same = await client.models.retrieve(models[0].id);
    assert.equal(same.id, models[0].id);
    assert.equal(same.context_length, 1 << 20);
    await assert.rejects(client.models.retrieve('gpt-5'), sdk.NotFoundError);
  });

  test('answers a chat with reasoning, usage and the end', async () => {
    const answer = await client.chat.completions.create({ model, messages: user('Hi') });
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices[0].message.content, 'Hello to you!');
    assert.equal(answer.choices[0].message.reasoning_content, 'The user greets.');
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    assert.ok(answer.usage.completion_tokens_details.reasoning_tokens > 0);
  });

  test('the stream helper gets a finish reason and the usage', async () => {
    const stream = client.chat.completions.stream({
      model, messages: user('Hi'), stream_options: { include_usage: true } });
    let text = '';
    stream.on('content', (delta) => { text += delta; });
    const final = await stream.finalChatCompletion();
    assert.equal(text, 'Hello to you!');
    assert.equal(final.choices[0].message.content, text);
    assert.equal(final.choices[0].finish_reason, 'stop');
    assert.ok((await stream.totalUsage()).completion_tokens > 0);
  });

  test('exactly one chunk ends each answer, and the usage chunk has no choices', async () => {
    const chunks = await all(await client.chat.completions.create({
      model, messages: user('Hi'), n: 2, stream: true, stream_options: { include_usage: true } }));
    for (const index of [0, 1]) {
      const ends = chunks.filter((chunk) => chunk.choices.some((choice) => choice.index === index && choice.finish_reason));
      assert.equal(ends.length, 1);
    }
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.ok(chunks.at(-1).usage.completion_tokens > 0);
    assert.equal(chunks.filter((chunk) => chunk.usage).length, 1);
  });

  test('token ids of the chunks are as many as the usage says, however the text is cut', async () => {
    const chunks = await all(await client.chat.completions.create({
      model, messages: user('[emoji]'), stream: true, return_token_ids: true, stream_options: { include_usage: true } }));
    const ids = chunks.flatMap((chunk) => chunk.choices[0]?.token_ids ?? []);
    assert.equal(ids.length, chunks.at(-1).usage.completion_tokens);
    const whole = await client.chat.completions.create({ model, messages: user('[emoji]'), return_token_ids: true });
    assert.deepEqual(ids, whole.choices[0].token_ids);
  });

  test('characters cut by tokens and by the network arrive whole', async () => {
    const proxy = await drip(server);
    const stream = clientOf(proxy.url).chat.completions.stream({ model, messages: user('[emoji]') });
    const deltas = [];
    stream.on('content', (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    assert.equal(final.choices[0].message.content, 'Ein 🐟 für 안녕하세요.');
    assert.ok(deltas.length > 5);
    assert.ok(deltas.every((delta) => !delta.includes('�')));
    await proxy.stop();
  });

  test('more than forty argument deltas are one call', async () => {
    const request = { model, messages: user('[long call]'), tools: [writeFile] };
    const chunks = await all(await client.chat.completions.create({ ...request, stream: true }));
    const deltas = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
    assert.ok(deltas.length > 40, `${deltas.length} deltas`);
    assert.ok(deltas.every((delta) => delta.index === 0));
    assert.deepEqual(deltas.map((delta) => Boolean(delta.id)), deltas.map((_, at) => at === 0));
    assert.deepEqual(deltas.map((delta) => Boolean(delta.type)), deltas.map((_, at) => at === 0));
    assert.deepEqual(deltas.map((delta) => delta.function.name !== undefined), deltas.map((_, at) => at === 0));
    assert.equal(deltas[0].function.name, 'write_file');
    assert.deepEqual(JSON.parse(deltas.map((delta) => delta.function.arguments ?? '').join('')),
      { path: 'a.txt', content: LONG_TEXT });
    const final = await client.chat.completions.stream(request).finalChatCompletion();
    assert.equal(final.choices[0].finish_reason, 'tool_calls');
    assert.equal(final.choices[0].message.tool_calls.length, 1);
    assert.equal(JSON.parse(final.choices[0].message.tool_calls[0].function.arguments).content, LONG_TEXT);
  });

  test('a call that the limit cuts is not presented as whole', async () => {
    const request = { model, messages: user('[cut call]'), tools: [writeFile], max_tokens: 60 };
    const answer = await client.chat.completions.create(request);
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.choices[0].message.tool_calls?.length ?? 0, 0);
    assert.ok(answer.choices[0].finish_details.incomplete_call);
    const chunks = await all(await client.chat.completions.create({ ...request, stream: true }));
    assert.equal(chunks.filter((chunk) => chunk.choices[0]?.finish_reason).at(-1).choices[0].finish_reason, 'length');
    const sent = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []).map((delta) => delta.function.arguments ?? '');
    assert.throws(() => JSON.parse(sent.join('')));
  });

  test('the tool runner calls the function and goes on', async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model, messages: user('[weather] in Paris?'),
      tools: [{ type: 'function', function: {
        ...weather.function, parse: JSON.parse, function: (values) => { asked.push(values); return '18 degrees'; } } }],
    });
    assert.equal(await runner.finalContent(), 'It is warm in Paris.');
    assert.deepEqual(asked, [{ city: 'Paris', days: 3 }]);
  });

  test('the tool runner streams, with arguments checked by zod', async () => {
    const asked = [];
    const runner = client.chat.completions.runTools({
      model, stream: true, messages: user('[weather] in Paris?'),
      tools: [zodFunction({ name: 'get_weather', parameters: z.object({ city: z.string(), days: z.number().int() }),
        function: (values) => { asked.push(values); return '18 degrees'; } })],
    });
    assert.equal(await runner.finalContent(), 'It is warm in Paris.');
    assert.deepEqual(asked, [{ city: 'Paris', days: 3 }]);
  });

  test('parallel calls have an index and an id each', async () => {
    const final = await client.chat.completions.stream({ model, messages: user('[two]'), tools: [weather] })
      .finalChatCompletion();
    const list = final.choices[0].message.tool_calls;
    assert.deepEqual(list.map((call) => JSON.parse(call.function.arguments).city), ['Paris', 'Oslo']);
    assert.notEqual(list[0].id, list[1].id);
  });

  test('structured output is parsed', async () => {
    const shape = z.object({ city: z.string(), days: z.number().int() });
    const answer = await client.chat.completions.parse({
      model, messages: user('[json]'), response_format: zodResponseFormat(shape, 'trip') });
    assert.deepEqual(answer.choices[0].message.parsed, { city: 'Paris', days: 3 });
    const response = await client.responses.parse({
      model, input: '[json]', text: { format: zodTextFormat(shape, 'trip') } });
    assert.deepEqual(response.output_parsed, { city: 'Paris', days: 3 });
  });

  test('a schema that cannot be kept is refused by name', async () => {
    const schema = { type: 'object', properties: { a: { type: 'string', format: 'no-such-format-here' } } };
    const refused = client.chat.completions.create({ model, messages: user('Hi'),
      response_format: { type: 'json_schema', json_schema: { name: 'x', strict: true, schema: { ...schema, not: {} } } } });
    await assert.rejects(refused, (error) => error instanceof sdk.BadRequestError && /response_format/.test(error.message));
  });

  test('stop strings end the text before them, on chat, completions and streams', async () => {
    const chat = await client.chat.completions.create({ model, messages: user('[stops]'), stop: ['O P Q'] });
    assert.equal(chat.choices[0].message.content, 'one two ');
    assert.equal(chat.choices[0].finish_reason, 'stop');
    const stream = client.chat.completions.stream({ model, messages: user('[stops]'), stop: 'O P Q' });
    assert.equal(await stream.finalContent(), 'one two ');
    const plain = await client.completions.create({ model, prompt: '[stops]', stop: ['O P Q'], max_tokens: 50 });
    assert.ok(plain.choices[0].text.endsWith('one two '), plain.choices[0].text);
  });

  test('histories with and without reasoning are accepted', async () => {
    const turn = { role: 'assistant', content: null, tool_calls: [
      { id: 'c1', type: 'function', function: { name: 'get_weather', arguments: '{"city":"Paris","days":3}' } }] };
    const result = { role: 'tool', tool_call_id: 'c1', content: '18 degrees' };
    const prompts = [];
    for (const extra of [{}, { reasoning_content: null }, { reasoning_content: '' }, { reasoning_content: 'Hm.' }]) {
      const answer = await client.chat.completions.create({
        model, tools: [weather], messages: [...user('Paris?'), { ...turn, ...extra }, result], return_token_ids: true });
      assert.equal(answer.choices[0].message.content, 'It is warm in Paris.');
      prompts.push(answer.usage.prompt_tokens);
    }
    assert.equal(prompts[0], prompts[1]);
    assert.equal(prompts[0], prompts[2]);
    assert.ok(prompts[3] > prompts[0], 'reasoning that is sent is rendered');
  });

  test('three hundred kilobytes of tool schemas are no trouble', async () => {
    const tools = Array.from({ length: 150 }, (_, n) => ({ type: 'function', function: {
      name: `tool_${n}`, description: 'What it is for. '.repeat(120),
      parameters: { type: 'object', properties: { text: { type: 'string', description: 'words' } } } } }));
    assert.ok(JSON.stringify(tools).length > 300000);
    const answer = await client.chat.completions.create({ model, messages: user('Hi'), tools });
    assert.equal(answer.choices[0].message.content, 'Hello to you!');
  });

  test('thoughts that never end are said to be so', async () => {
    const answer = await client.chat.completions.create({ model, messages: user('[thoughts only]') });
    assert.equal(answer.choices[0].message.reasoning_content, 'I think and think');
    assert.equal(answer.choices[0].message.content ?? '', '');
    assert.equal(answer.choices[0].finish_details.reasoning_unclosed, true);
    const text = JSON.stringify(answer.choices[0].message);
    assert.ok(!text.includes('end▁of▁sentence'));
  });

  test('completions take texts, ids and arrays of either, and give ids', async () => {
    const answer = await client.completions.create({ model, prompt: [[0, 5, 6], [0, 7]], max_tokens: 4, return_token_ids: true });
    assert.equal(answer.choices.length, 2);
    assert.deepEqual(answer.choices[0].prompt_token_ids, [0, 5, 6]);
    assert.equal(answer.choices[1].token_ids.length, 4);
    assert.equal(answer.choices[1].finish_reason, 'length');
    assert.equal(answer.usage.prompt_tokens, 5);
    const streamed = await all(await client.completions.create({ model, prompt: ['a', 'b'], max_tokens: 4, stream: true }));
    assert.deepEqual([...new Set(streamed.map((chunk) => chunk.choices[0]?.index))].sort(), [0, 1]);
  });

  test('a failure in the middle of a stream is an error, not an end', async () => {
    const stream = await client.chat.completions.create({ model, messages: user('[fails]'), stream: true });
    await assert.rejects(all(stream), (error) => error instanceof sdk.APIError && /a disk fell off/.test(error.message));
    await assert.rejects(client.chat.completions.create({ model, messages: user('[fails]') }), sdk.InternalServerError);
    await server.untilIdle();
  });

  test('abort ends the answer and frees the slot, also while the prompt is evaluated', async () => {
    const stream = await client.chat.completions.create({ model, messages: user('[forever]'), stream: true });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;  // leaving the loop aborts
    await server.untilIdle();
    for (const stream of [true, false]) {
      const controller = new AbortController();
      const request = client.chat.completions.create(
        { model, messages: user('[slow prompt]'), stream }, { signal: controller.signal });
      const ended = request.then((result) => (stream ? all(result) : result));
      ended.catch(() => {});
      await server.untilBusy();
      controller.abort();
      if (stream) await ended.catch((error) => assert.ok(error instanceof sdk.APIUserAbortError, error.stack));
      else await assert.rejects(ended, sdk.APIUserAbortError);
      await server.untilIdle();
    }
  });

  test('a client whose time is up leaves nothing behind', async () => {
    const hasty = clientOf(server.url, { timeout: 300 });
    await assert.rejects(hasty.chat.completions.create({ model, messages: user('[slow prompt]') }),
      sdk.APIConnectionTimeoutError);
    await server.untilIdle();
  });

  test('wrong requests are errors that name the member', async () => {
    const wrong = [[{ temperature: -1 }, 'temperature'], [{ max_tokens: 'many' }, 'max_tokens'], [{ top_p: 7 }, 'top_p'],
      [{ messages: [{ role: 'king', content: 'x' }] }, 'messages[0].role'], [{ stop: [[]] }, 'stop']];
    for (const [member, param] of wrong) {
      await assert.rejects(client.chat.completions.create({ model, messages: user('Hi'), ...member }), (error) => {
        assert.ok(error instanceof sdk.BadRequestError, error.stack);
        assert.equal(error.status, 400);
        assert.equal(error.type, 'invalid_request_error');
        assert.ok(`${error.param} ${error.message}`.includes(param), error.message);
        return true;
      });
    }
    await assert.rejects(client.embeddings.create({ model, input: 'x' }), sdk.NotFoundError);
  });
});

describe(`${name} and the responses API`, () => {
  let server, client;
  before(async () => { server = await Server.start({ script }); client = clientOf(server.url); });
  after(() => server.stop());

  test('answers, is stored, continued, retrieved and deleted', async () => {
    const first = await client.responses.create({ model, input: 'Hi', instructions: 'Be kind.' });
    assert.equal(first.status, 'completed');
    assert.equal(first.output_text, 'Hello to you!');
    const second = await client.responses.create({ model, input: 'And now?', previous_response_id: first.id });
    assert.equal(second.previous_response_id, first.id);
    assert.ok(second.usage.input_tokens > first.usage.input_tokens);
    assert.equal((await client.responses.retrieve(second.id)).output_text, 'Hello to you!');
    await client.responses.delete(second.id);
    await assert.rejects(client.responses.retrieve(second.id), sdk.NotFoundError);
    await assert.rejects(client.responses.create({ model, input: 'x', previous_response_id: second.id }), (error) => {
      assert.equal(error.code, 'previous_response_not_found');
      return error.status === 404 || error.status === 400;
    });
  });

  test('the stream helper sees events in order and the same response', async () => {
    const stream = client.responses.stream({ model, input: 'Hi' });
    const events = await all(stream);
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, at) => at));
    assert.equal(events[0].type, 'response.created');
    assert.equal(events.at(-1).type, 'response.completed');
    const text = events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join('');
    assert.equal(text, 'Hello to you!');
    const final = await stream.finalResponse();
    assert.equal(final.output.at(-1).content[0].text, text);
    assert.deepEqual(final.output.map((item) => item.type), ['reasoning', 'message']);
  });

  test('a function is called, and its output leads on', async () => {
    const tools = [{ type: 'function', name: 'get_weather', strict: false, parameters: weather.function.parameters }];
    const first = await client.responses.stream({ model, input: '[weather] in Paris?', tools }).finalResponse();
    const call = first.output.find((item) => item.type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), { city: 'Paris', days: 3 });
    const result = { type: 'function_call_output', call_id: call.call_id, output: '18 degrees' };
    const stored = await client.responses.create({ model, tools, previous_response_id: first.id, input: [result] });
    assert.equal(stored.output_text, 'It is warm in Paris.');
    // The same as a client does that keeps the conversation itself.
    const kept = await client.responses.create({ model, tools, store: false,
      input: [{ role: 'user', content: '[weather] in Paris?' }, ...first.output, result] });
    assert.equal(kept.output_text, 'It is warm in Paris.');
    assert.equal(kept.usage.input_tokens, stored.usage.input_tokens);
    // Everything up to the answer is known; the call's last token, the result and the new turn are not.
    assert.ok(stored.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 1);
  });

  test('more than forty argument deltas are one call', async () => {
    const tools = [{ type: 'function', name: 'write_file', strict: false, parameters: writeFile.function.parameters }];
    const stream = client.responses.stream({ model, input: '[long call]', tools });
    const events = await all(stream);
    const deltas = events.filter((event) => event.type === 'response.function_call_arguments.delta');
    assert.ok(deltas.length > 40);
    assert.equal(new Set(deltas.map((delta) => `${delta.item_id} ${delta.output_index}`)).size, 1);
    const list = (await stream.finalResponse()).output.filter((item) => item.type === 'function_call');
    assert.equal(list.length, 1);
    assert.deepEqual(JSON.parse(list[0].arguments), { path: 'a.txt', content: LONG_TEXT });
  });

  test('kinds of tools that only others can run are left out and named', async () => {
    const tools = [
      { type: 'function', name: 'get_weather', strict: false, parameters: weather.function.parameters },
      { type: 'namespace', name: 'files', description: 'Files', tools: [
        { type: 'function', name: 'write_file', parameters: writeFile.function.parameters }] },
      { type: 'web_search' }, { type: 'image_generation' }, { type: 'local_shell' },
      { type: 'custom', name: 'apply_patch', description: 'Patch', format: { type: 'text' } },
    ];
    const { data, response } = await client.responses.create({ model, input: '[weather]', tools }).withResponse();
    assert.ok(data.output.some((item) => item.type === 'function_call' && item.name === 'get_weather'));
    const ignored = response.headers.get('x-fathom-ignored');
    for (const kind of ['web_search', 'image_generation', 'local_shell']) assert.match(ignored, new RegExp(kind));
    assert.doesNotMatch(ignored, /namespace|apply_patch/);
  });

  test('a probe without input and one token is answered', async () => {
    for (const input of ['', []]) {
      const response = await client.responses.create({ model, input, max_output_tokens: 1 });
      assert.equal(response.status, 'incomplete');
      assert.equal(response.incomplete_details.reason, 'max_output_tokens');
      assert.equal(response.usage.output_tokens, 1);
    }
  });

  test('a failure is a failed response in a stream', async () => {
    const events = await all(await client.responses.create({ model, input: '[fails]', stream: true }));
    assert.equal(events.at(-1).type, 'response.failed');
    assert.match(events.at(-1).response.error.message, /a disk fell off/);
  });

  test('abort frees the slot', async () => {
    const stream = await client.responses.create({ model, input: '[forever]', stream: true });
    for await (const event of stream) if (event.type === 'response.output_text.delta') break;
    await server.untilIdle();
  });
});

describe(`${name} and a server that says no`, () => {
  test('a key is asked for', async () => {
    const server = await Server.start({ script, options: ['--api-key', 'sesame'] });
    const refused = (error) => error instanceof sdk.AuthenticationError && error.status === 401;
    await assert.rejects(clientOf(server.url).chat.completions.create({ model, messages: user('Hi') }), refused);
    await assert.rejects(clientOf(server.url).models.list(), refused);
    const known = clientOf(server.url, { apiKey: 'sesame' });
    assert.equal((await known.chat.completions.create({ model, messages: user('Hi') })).choices[0].finish_reason, 'stop');
    await server.stop();
  });

  test('a full queue says when to come back, and the client does', async () => {
    const server = await Server.start({ script: { ...script, slots: 1, queue_limit: 0 } });
    const client = clientOf(server.url);
    const holder = await client.chat.completions.create({ model, messages: user('[forever]'), stream: true });
    await server.untilBusy();
    const request = { model, messages: user('Hi') };
    await assert.rejects(client.chat.completions.create(request), (error) => {
      assert.ok(error instanceof sdk.RateLimitError, error.stack);
      assert.ok(Number(error.headers.get('retry-after')) >= 1);
      return true;
    });
    const patient = clientOf(server.url, { maxRetries: 50 }).chat.completions.create(request);
    holder.controller.abort();
    assert.equal((await patient).choices[0].message.content, 'Hello to you!');
    await server.stop();
  });

  test('a prompt longer than the context is refused with both numbers', async () => {
    const server = await Server.start({ script: { ...script, context_tokens: 64 } });
    const refused = clientOf(server.url).chat.completions.create({ model, messages: user('word '.repeat(200)) });
    await assert.rejects(refused, (error) => {
      assert.equal(error.code, 'context_length_exceeded');
      assert.match(error.message, /\b64\b/);
      return error instanceof sdk.BadRequestError;
    });
    await server.stop();
  });
});

describe(`${name} and the embedded model`, () => {
  let server, client;
  before(async () => { server = await Server.start({ options: ['--ctx', '2048'] }); client = clientOf(server.url); });
  after(() => server.stop());

  test('strict structured output comes out whole, whatever the model would rather say', async () => {
    const shape = z.object({ mood: z.enum(['sunny', 'gloomy']), sure: z.boolean(), tags: z.array(z.enum(['a', 'b'])).max(2) });
    const answer = await client.chat.completions.parse({ model, messages: user('How is it?'), thinking: false,
      seed: 1, max_tokens: 200, response_format: zodResponseFormat(shape, 'mood') });
    assert.equal(answer.choices[0].finish_reason, 'stop');
    assert.ok(['sunny', 'gloomy'].includes(answer.choices[0].message.parsed.mood));
    const response = await client.responses.parse({ model, input: 'How is it?', reasoning: { effort: 'none' }, seed: 1,
      max_output_tokens: 200, text: { format: zodTextFormat(shape, 'mood') } });
    assert.equal(typeof response.output_parsed.sure, 'boolean');
  });

  test('a forced function is called with arguments of its schema', async () => {
    const final = await client.chat.completions.stream({
      model, messages: user('What is it like in Rome?'), thinking: false, seed: 2, max_tokens: 300,
      tools: [{ type: 'function', function: { name: 'look', strict: true, parameters: { type: 'object',
        properties: { where: { enum: ['up', 'down'] } }, required: ['where'], additionalProperties: false } } }],
      tool_choice: { type: 'function', function: { name: 'look' } } }).finalChatCompletion();
    const call = final.choices[0].message.tool_calls[0].function;
    assert.equal(call.name, 'look');
    assert.ok(['up', 'down'].includes(JSON.parse(call.arguments).where));
    const refused = client.chat.completions.create({ model, messages: user('x'), tools: [weather],
      tool_choice: { type: 'function', function: { name: 'nothing' } } });
    await assert.rejects(refused, sdk.BadRequestError);
  });

  test('a prompt that extends prompt and answer evaluates the new tokens and one', async () => {
    const greedy = { model, temperature: 0, ignore_eos: true, return_token_ids: true };
    const prompt = [0, ...Array.from({ length: 199 }, (_, n) => 10 + (n * 37) % 3000)];
    const first = await client.completions.create({ ...greedy, prompt, max_tokens: 32 });
    const longer = [...prompt, ...first.choices[0].token_ids, 20, 21, 22];
    const second = await client.completions.create({ ...greedy, prompt: longer, max_tokens: 4 });
    assert.equal(second.usage.prompt_tokens - second.usage.prompt_tokens_details.cached_tokens, 4);
  });

  test('logprobs come on chat and completions, streamed and whole', async () => {
    const request = { model, messages: user('Hi'), thinking: false, temperature: 0, max_tokens: 5, logprobs: true, top_logprobs: 3 };
    const whole = await client.chat.completions.create(request);
    const stream = client.chat.completions.stream(request);
    const streamed = await stream.finalChatCompletion();
    const of = (answer) => answer.choices[0].logprobs.content.map((entry) => entry.logprob.toFixed(4));
    assert.deepEqual(of(streamed), of(whole));
    assert.equal(whole.choices[0].logprobs.content[0].top_logprobs.length, 3);
    const plain = await client.completions.create({ model, prompt: 'Once', max_tokens: 3, logprobs: 2, temperature: 0 });
    assert.equal(plain.choices[0].logprobs.token_logprobs.length, 3);
  });

  test('the same seed gives the same answer', async () => {
    const request = { model, prompt: 'Once upon a time', max_tokens: 20, seed: 7, temperature: 1 };
    const [a, b] = [await client.completions.create(request), await client.completions.create(request)];
    assert.equal(a.choices[0].text, b.choices[0].text);
  });
});
