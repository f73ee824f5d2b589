// The packages `ai` and `@ai-sdk/openai-compatible` against the real server; opencode and others are built on them.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateObject, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

import { Server, all, calls, thinks } from './harness.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;

const script = {
  slots: 4,
  context_tokens: 1 << 20,
  answers: [
    { match: '18 degrees', text: thinks('Warm.', 'It is warm in Paris.'), uses: -1 },
    { match: '[weather]', text: thinks('I ask.', 'Let me see.' + calls(['weather', { city: 'Paris', days: 3 }])), uses: -1 },
    { match: '[json]', text: thinks('', '{"city":"Paris","days":3}'), uses: -1 },
    { match: '[fails]', text: thinks('', 'It goes well until'), fail_after: 4, fail_message: 'a disk fell off', uses: -1 },
    { match: '[forever]', text: thinks('', 'on and on'), hangs: true, uses: -1 },
    { match: '[slow prompt]', text: 'never', prefill_ms: 3600000, uses: -1 },
    { text: thinks('The user greets 🤔.', 'Hello 🐟!'), bytes: true, uses: -1 },
  ],
};

const modelOf = (server, more = {}) => createOpenAICompatible({ name: 'fathom', baseURL: `${server.url}/v1`,
  includeUsage: true, supportsStructuredOutputs: true, ...more }).chatModel('any');
const shape = z.object({ city: z.string(), days: z.number().int() });

describe('ai with @ai-sdk/openai-compatible', () => {
  let server, model;
  before(async () => { server = await Server.start({ script }); model = modelOf(server); });
  after(() => server.stop());

  test('streams reasoning, text, usage and the end', async () => {
    const result = streamText({ model, prompt: 'Hi', maxRetries: 0 });
    const parts = await all(result.fullStream);
    const joined = (type) => parts.filter((part) => part.type === type).map((part) => part.text).join('');
    assert.equal(joined('reasoning-delta'), 'The user greets 🤔.');
    assert.equal(joined('text-delta'), 'Hello 🐟!');
    assert.equal(parts.filter((part) => part.type === 'finish').length, 1);
    assert.equal(await result.finishReason, 'stop');
    const usage = await result.usage;
    assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    assert.ok((usage.outputTokenDetails?.reasoningTokens ?? usage.reasoningTokens) > 0);
  });

  test('runs a tool and takes a second step', async () => {
    const asked = [];
    const tools = { weather: tool({ description: 'Weather', inputSchema: shape,
      execute: async (values) => { asked.push(values); return '18 degrees'; } }) };
    for (const run of [streamText, generateText]) {
      const result = run({ model, prompt: '[weather] in Paris?', tools, stopWhen: stepCountIs(5), maxRetries: 0 });
      const settled = run === streamText ? result : await result;
      assert.equal(await settled.text, 'It is warm in Paris.');
      const steps = await settled.steps;
      assert.equal(steps.length, 2);
      assert.equal(steps[0].finishReason, 'tool-calls');
      assert.equal(steps[0].reasoningText, 'I ask.');
      assert.equal(steps[0].text, 'Let me see.');
      assert.deepEqual(asked.splice(0), [{ city: 'Paris', days: 3 }]);
    }
  });

  test('generates an object', async () => {
    const result = await generateObject({ model, schema: shape, prompt: '[json]', maxRetries: 0 });
    assert.deepEqual(result.object, { city: 'Paris', days: 3 });
    const loose = await generateObject({ model: modelOf(server, { supportsStructuredOutputs: false }), schema: shape,
      prompt: '[json]', maxRetries: 0 });
    assert.deepEqual(loose.object, { city: 'Paris', days: 3 });
  });

  test('abort frees the slot, also while the prompt is evaluated', async () => {
    for (const [prompt, leave] of [['[forever]', 'text-delta'], ['[slow prompt]', null]]) {
      const controller = new AbortController();
      const result = streamText({ model, prompt, abortSignal: controller.signal, maxRetries: 0, onError() {} });
      const kinds = [];
      const reading = (async () => {
        for await (const part of result.fullStream) {
          kinds.push(part.type);
          if (part.type === leave) controller.abort();
        }
      })();
      if (leave === null) {
        await server.untilBusy();
        controller.abort();
      }
      await reading.catch(() => {});
      assert.ok(!kinds.includes('finish'), kinds.join(' '));
      await server.untilIdle();
    }
  });

  test('a failure in the middle of a stream is seen', async () => {
    const parts = await all(streamText({ model, prompt: '[fails]', maxRetries: 0, onError() {} }).fullStream);
    const error = parts.find((part) => part.type === 'error');
    assert.ok(error && /a disk fell off/.test(JSON.stringify(error.error) + String(error.error)), JSON.stringify(parts));
  });

  test('refusals have their status, and a full queue may be tried again', async () => {
    await assert.rejects(generateText({ model, prompt: 'Hi', temperature: -1, maxRetries: 0 }), (error) => {
      assert.ok(APICallError.isInstance(error), error.stack);
      assert.equal(error.statusCode, 400);
      assert.match(error.message, /temperature/);
      return true;
    });
    const full = await Server.start({ script: { ...script, slots: 1, queue_limit: 0 } });
    const controller = new AbortController();
    const holder = streamText({ model: modelOf(full), prompt: '[forever]', abortSignal: controller.signal, onError() {} });
    const reading = all(holder.fullStream).catch(() => {});
    await full.untilBusy();
    await assert.rejects(generateText({ model: modelOf(full), prompt: 'Hi', maxRetries: 0 }), (error) => {
      assert.equal(error.statusCode, 429);
      assert.equal(error.isRetryable, true);
      assert.ok(Number(error.responseHeaders['retry-after']) >= 1);
      return true;
    });
    controller.abort();
    await reading;
    await full.stop();
  });
});

describe('ai with the embedded model', () => {
  test('an object of the schema comes out whole, whatever the model would rather say', async () => {
    const server = await Server.start({ options: ['--ctx', '2048'] });
    const result = await generateObject({ model: modelOf(server), prompt: 'How is it?', maxRetries: 0, seed: 3,
      maxOutputTokens: 300, providerOptions: { fathom: { reasoningEffort: 'none' } },
      schema: z.object({ mood: z.enum(['sunny', 'gloomy']), sure: z.boolean() }) });
    assert.ok(['sunny', 'gloomy'].includes(result.object.mood));
    await server.stop();
  });
});
