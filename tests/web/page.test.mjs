// What a user does with the chat page, in a headless browser, against the program.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerText, ended, endingText, nextChunks, say, withPage } from './harness.mjs';
import { answer, calls } from './server.mjs';

// It says no more, and does not end.
const long = answer('one two three four five', { hangs: true, uses: -1 });

test('sends, and shows what comes back', () =>
  withPage(
    { answers: [answer('Hello **there**. 물고기 🐟', { bytes: true, prefill_ms: 80, token_ms: 5 })] },
    async ({ page, chats }) => {
      const chunks = nextChunks(page);
      await say(page, 'Good morning');
      assert.equal(await ended(page), 'complete');
      assert.equal(await answerText(page), 'Hello there. 물고기 🐟');
      assert.equal(await page.locator('.turn.answer strong').innerText(), 'there');
      assert.deepEqual(chats[0], {
        model: 'DeepSeek-V4.1-Flash',
        messages: [{ role: 'user', content: 'Good morning' }],
        stream: true,
        stream_options: { include_usage: true },
      });
      assert.equal(await page.locator('.conversation').innerText(), 'Good morning');
      assert.equal(await page.locator('.ending').count(), 0);
      const { usage, timings } = (await chunks).at(-1);
      const used = (usage.prompt_tokens + usage.completion_tokens).toLocaleString('en-US');
      const figures = await page.locator('.figures').innerText();
      const [, prefill, decode, cached, context] =
        /prefill\s+(\S+) tok\/s\s+decode\s+(\S+) tok\/s\s+cached\s+(\S+)\s+context\s+(.*)/.exec(figures);
      const near = (shown, rate) => Math.abs(Number(shown.replaceAll(',', '')) / rate - 1) < 0.005;
      assert.ok(near(prefill, timings.prefill_tokens_per_second), figures);
      assert.ok(near(decode, timings.decode_tokens_per_second), figures);
      assert.equal(cached, `${usage.prompt_tokens_details.cached_tokens}`);
      assert.equal(context, `${used} of 128K`);
      assert.match(await page.locator('#announcer').innerText(), /complete/);
    },
  ));

test('shows what the server does before text comes: the queue, the prompt; and tells it to stop there', () =>
  withPage(
    {
      slots: 2,
      answers: [
        { ...long, match: 'crowd' },
        { ...long, match: 'And this' },
        { ...long, match: 'Read this', prefill_ms: 12000 },
      ],
    },
    async ({ page, server, chats }) => {
      const crowd = [0, 1, 2, 3].map(() => server.crowd('crowd'));
      await server.until({ busy: 2, queue: 2 });
      await say(page, 'Read this');
      await page.getByText('In the queue, 3 requests wait').waitFor();
      assert.match(await page.locator('.figures').innerText(), /busy\s+2 of 2\s+queue\s+3/);
      crowd.forEach((leave) => leave());
      const total = await server.tokensOf(chats[0].messages);
      await page.getByText(new RegExp(`^Reading [1-9]\\d* of ${total} tokens`)).waitFor();
      await page.keyboard.press('Escape');
      assert.equal(await ended(page), 'stopped');
      await server.until({ busy: 0 });
      await say(page, 'And this');
      await page.locator('.markdown', { hasText: 'one two three four five' }).waitFor();
      assert.equal(await page.locator('.turn.answer').nth(1).getAttribute('aria-busy'), 'true');
      assert.match(await page.locator('.figures').innerText(), /context\s+≈ \d+ of 128K/);
      await page.locator('.figures', { hasText: /busy\s*1 of 2/ }).waitFor();
    },
  ));

test('stops by button and by Escape, and tells the server', () =>
  withPage({ answers: [long] }, async ({ page, server }) => {
    const tokens = await server.tokensOf(long.text);
    for (const [index, stop] of [
      () => page.locator('#stop').click(),
      () => page.keyboard.press('Escape'),
    ].entries()) {
      await say(page, 'Count');
      await page.locator('.turn.answer').nth(index).locator('.markdown', { hasText: 'five' }).waitFor();
      const cancelled = page.waitForResponse((response) => response.url().includes('/v1/cancel/chatcmpl-'));
      await stop();
      assert.equal((await cancelled).status(), 200);
      assert.equal(await ended(page, index), 'stopped');
      assert.equal(await answerText(page, index), 'one two three four five');
      // The server ended the stream itself, so the figures are exact.
      const figures = await page.locator('.answer-figures').nth(index).innerText();
      assert.equal(figures.split(' · ')[0], `${tokens} tokens`);
      await server.until({ busy: 0 });
    }
    await page.locator('#send').waitFor();
  }));

test('edits an earlier question in a branch of its own', () =>
  withPage({ answers: ['A', 'B', 'C'].map((text) => answer(text)) }, async ({ page, chats }) => {
    await say(page, 'first');
    await ended(page);
    await say(page, 'second');
    await ended(page, 1);
    await page.locator('.turn.user').first().hover();
    await page.getByRole('button', { name: 'Edit' }).first().click();
    await page.locator('.editor textarea').fill('first, edited');
    await page.keyboard.press('Enter');
    await page.locator('.turn.answer .markdown', { hasText: 'C' }).waitFor();
    assert.deepEqual(chats[2].messages, [{ role: 'user', content: 'first, edited' }]);
    assert.equal(await page.locator('.turn').count(), 2);
    assert.equal(await page.locator('.turn.user .versions').innerText(), '2/2');
    await ended(page);
    await page.getByRole('button', { name: 'Older version' }).click();
    assert.deepEqual(await page.locator('.bubble').allInnerTexts(), ['first', 'second']);
    assert.deepEqual(await page.locator('.turn.answer .markdown').allInnerTexts(), ['A', 'B']);
  }));

test('retries beside the old answer, and hands back what was said', () =>
  withPage(
    { answers: [answer('A', { thinking: 'hm' }), answer('B'), answer('C')] },
    async ({ page, chats }) => {
      await say(page, 'ask');
      await ended(page);
      await page.getByRole('button', { name: 'Retry' }).click();
      await page.locator('.turn.answer .markdown', { hasText: 'B' }).waitFor();
      assert.deepEqual(chats[1].messages, chats[0].messages);
      await ended(page);
      await page.getByRole('button', { name: 'Older version' }).click();
      await page.locator('.turn.answer .markdown', { hasText: 'A' }).waitFor();
      await say(page, 'and?');
      await ended(page, 1);
      assert.deepEqual(chats[2].messages, [
        { role: 'user', content: 'ask' },
        { role: 'assistant', content: 'A', reasoning_content: 'hm' },
        { role: 'user', content: 'and?' },
      ]);
    },
  ));

test('keeps conversations over a reload; an answer on its way is cut, and can be continued', () =>
  withPage(
    // What continues an answer begins behind its text, not with thoughts.
    { answers: [answer('A whole answer.'), { ...long, uses: 1 }, { text: ' six seven' }] },
    async ({ page, server, chats }) => {
      await say(page, 'first');
      await ended(page);
      await say(page, 'count');
      await page.locator('.markdown', { hasText: 'five' }).waitFor();
      await page.reload();
      // The page is gone, and with it the request.
      await server.until({ busy: 0 });
      assert.equal(await ended(page, 0), 'complete');
      assert.equal(await ended(page, 1), 'cut');
      assert.equal(await answerText(page, 1), 'one two three four five');
      assert.match(await page.locator('.ending').innerText(), /Cut off/);
      await page.getByRole('button', { name: 'Continue' }).click();
      await page.locator('.markdown', { hasText: 'seven' }).waitFor();
      assert.equal(await ended(page, 1), 'complete');
      assert.equal(await answerText(page, 1), 'one two three four five six seven');
      assert.deepEqual(chats.at(-1).messages.at(-1), {
        role: 'assistant',
        content: 'one two three four five',
        prefix: true,
      });
    },
  ));

test('a server that restarts in mid-answer loses nothing that had come', () =>
  withPage({ answers: [long] }, async ({ page, server }) => {
    await say(page, 'count');
    await page.locator('.markdown', { hasText: 'five' }).waitFor();
    await server.end('SIGKILL');
    assert.equal(await ended(page), 'cut');
    assert.equal(await answerText(page), 'one two three four five');
    assert.match(await endingText(page), /Cut off/);
    await page.getByText('The server does not answer').waitFor();
    await server.run({ answers: [answer('A new answer.')] });
    await page.getByText('The server does not answer').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('.markdown', { hasText: 'A new answer.' }).waitFor();
    assert.equal(await ended(page), 'complete');
  }));

test('says how an answer ended', () => {
  const turn = 'round and round ';
  const numbers = Array.from({ length: 300 }, (_, index) => index).join(' ');
  return withPage(
    {
      context_tokens: 400,
      answers: [
        answer(numbers, { match: 'too long', uses: 2 }),
        answer(turn.repeat(60), { match: 'loop', uses: 2 }),
        answer('a', { match: 'fail', fail_after: 2, fail_message: 'out of memory' }),
        { ...long, match: 'shut' },
      ],
      options: ['--grace', '0.2'],
    },
    async ({ page, server, chats }) => {
      const begin = async (text) => {
        await page.keyboard.press('Alt+n');
        await say(page, text);
      };
      const endsWith = async (text, status, ending) => {
        await begin(text);
        assert.equal(await ended(page), status);
        assert.match(await endingText(page), ending);
      };
      await endsWith('too long', 'complete', /context is full/);
      assert.equal(await page.getByRole('button', { name: 'Continue' }).count(), 0);
      await endsWith('loop', 'complete', /repeats itself; the guard only observes\. \(\d+ tokens, \d+ times\)/);
      await endsWith('fail', 'failed', /out of memory/);
      await endsWith(numbers, 'failed', /\d+ tokens, the context holds 400/);

      await page.keyboard.press('Alt+n');
      await page.keyboard.press('Alt+s');
      await page.getByLabel('Guard against repetition').selectOption('stop');
      await page.keyboard.press('Escape');
      const chunks = nextChunks(page);
      await say(page, 'loop');
      assert.equal(await ended(page), 'complete');
      assert.equal(chats.at(-1).loop_guard, 'stop');
      const { finish_details: loop } = (await chunks).findLast((chunk) => chunk.choices.length > 0).choices[0];
      assert.equal(loop.type, 'loop');
      assert.match(await endingText(page), new RegExp(`itself\\. \\(${loop.period} tokens, ${loop.repeats} times\\)`));
      assert.equal(await page.getByRole('button', { name: 'Continue' }).count(), 0);

      await page.keyboard.press('Alt+n');
      await page.keyboard.press('Alt+s');
      await page.getByLabel('Longest answer (tokens)').fill('40');
      await page.keyboard.press('Escape');
      await say(page, 'too long');
      assert.equal(await ended(page), 'complete');
      assert.match(await endingText(page), /limit of its length/);
      assert.equal(await page.getByRole('button', { name: 'Continue' }).count(), 1);

      await begin('shut');
      await page.locator('.markdown', { hasText: 'five' }).waitFor();
      await server.end('SIGTERM');
      assert.equal(await ended(page), 'complete');
      assert.match(await endingText(page), /server shut down/);
    },
  );
});

test('folds thinking, with its time; shows tool calls and takes their results', () =>
  withPage(
    {
      answers: [
        answer(`Looking.${calls(['weather', { city: 'Bergen' }])}`, { thinking: 'Let me think.', token_ms: 2 }),
        answer('It rains.'),
      ],
    },
    async ({ page, chats }) => {
      await say(page, 'Weather?');
      await ended(page);
      const fold = page.getByRole('button', { name: /Thought for/ });
      assert.equal(await page.locator('.thoughts').count(), 0);
      await fold.click();
      assert.equal(await page.locator('.thoughts').innerText(), 'Let me think.');
      assert.equal(await page.locator('.tool-head code').innerText(), 'weather');
      assert.match(await page.locator('.tool-call pre').innerText(), /^\{\s+"city": "Bergen"\s+\}$/);
      await page.getByLabel('Result of weather').fill('rain');
      await page.getByRole('button', { name: 'Send results' }).click();
      await page.locator('.markdown', { hasText: 'It rains.' }).waitFor();
      const { id } = chats[1].messages[1].tool_calls[0];
      assert.match(id, /^call_/);
      assert.deepEqual(chats[1].messages.slice(1), [
        {
          role: 'assistant',
          content: 'Looking.',
          reasoning_content: 'Let me think.',
          tool_calls: [{ id, type: 'function', function: { name: 'weather', arguments: '{"city": "Bergen"}' } }],
        },
        { role: 'tool', tool_call_id: id, content: 'rain' },
      ]);
      assert.equal(await ended(page, 1), 'complete');
    },
  ));

test('never presents a cut call as a whole one', () => {
  const call = calls(['weather', { city: 'Bergen' }]);
  return withPage(
    {
      answers: [
        answer(call.slice(0, call.indexOf('gen')), { match: 'Weather?', hangs: true }),
        answer('ok', { match: 'again' }),
      ],
    },
    async ({ page, server, chats }) => {
      await say(page, 'Weather?');
      await page.locator('.tool-call pre', { hasText: 'Ber' }).waitFor();
      await server.end('SIGKILL');
      assert.equal(await ended(page), 'cut');
      assert.match(await page.locator('.tool-call').innerText(), /not complete/);
      await server.run({ answers: [answer('ok')] });
      await page.getByText('The server does not answer').waitFor({ state: 'detached' });
      await say(page, 'again');
      assert.equal(await ended(page, 1), 'complete');
      assert.deepEqual(
        chats[1].messages.map((message) => message.role),
        ['user', 'user'],
      );
    },
  );
});

test('a call that the server takes back is none; the whole one beside it is', () => {
  const [whole, damaged] = ['Bergen', 'Oslo'].map((city) => calls(['weather', { city }]));
  return withPage(
    {
      answers: [answer(whole + damaged.replace('</｜DSML｜ invoke>', '</｜DSML｜ invokes>')), answer('It rains.')],
    },
    async ({ page, chats }) => {
      await say(page, 'Weather?');
      assert.equal(await ended(page), 'complete');
      assert.deepEqual(await page.locator('.tool-call').evaluateAll((list) => list.map((one) => one.className)), [
        'tool-call whole',
        'tool-call broken',
      ]);
      assert.equal(await page.getByLabel('Result of weather').count(), 1);
      await page.getByLabel('Result of weather').fill('rain');
      await page.getByRole('button', { name: 'Send results' }).click();
      assert.equal(await ended(page, 1), 'complete');
      assert.deepEqual(
        chats[1].messages[1].tool_calls.map((one) => one.function.arguments),
        ['{"city": "Bergen"}'],
      );
    },
  );
});

test('the Enter that ends a composition does not send', () =>
  withPage({ answers: [answer('ok')] }, async ({ page, chats, context }) => {
    const devtools = await context.newCDPSession(page);
    await page.locator('#composer').click();
    await devtools.send('Input.imeSetComposition', { text: '안녕', selectionStart: 2, selectionEnd: 2 });
    assert.equal(await page.locator('#composer').inputValue(), '안녕');
    await page
      .locator('#composer')
      .dispatchEvent('keydown', { key: 'Enter', code: 'Enter', keyCode: 229, isComposing: true, bubbles: true });
    assert.equal(await page.locator('.turn').count(), 0);
    await devtools.send('Input.insertText', { text: '안녕' });
    // Safari: the composition is over already, and only the key code tells.
    await page
      .locator('#composer')
      .dispatchEvent('keydown', { key: 'Enter', code: 'Enter', keyCode: 229, isComposing: false, bubbles: true });
    assert.equal(await page.locator('.turn').count(), 0);
    await page.keyboard.press('Enter');
    await ended(page);
    assert.equal(chats[0].messages[0].content, '안녕');
    assert.equal(chats.length, 1);
  }));

test('harmful Markdown stays harmless in the browser', () =>
  withPage(
    {
      answers: [
        answer(
          '<img src=x onerror="window.hurt=1"><svg onload="window.hurt=1"></svg>\n\n<script>hurt=1</script>\n\n' +
            '![x](http://127.0.0.1:1/leak) [link](javascript:window.hurt=1) <a href="https://e.org" onclick="hurt=1">a</a>',
        ),
      ],
    },
    async ({ page }) => {
      const asked = [];
      page.on('request', (request) => asked.push(request.url()));
      await say(page, 'hurt me');
      await ended(page);
      assert.equal(await page.evaluate(() => 'hurt' in window), false);
      assert.equal(await page.locator('.markdown img, .markdown script, .markdown svg').count(), 0);
      assert.equal(
        asked.some((url) => /leak|\/x$/.test(url)),
        false,
      );
    },
  ));
