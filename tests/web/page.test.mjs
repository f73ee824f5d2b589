// What a user does with the chat page, in a headless browser.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { answerText, closeBrowser, ended, say, withPage, words } from './harness.mjs';

after(closeBrowser);

const long = { steps: words('one two three four five'), hold: true };

test('sends, and shows what comes back', () =>
  withPage({ answers: [{ steps: words('Hello **there**. 물고기 🐟'), split: 1 }] }, async ({ page, chats }) => {
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
    assert.match(
      await page.locator('.figures').innerText(),
      /prefill\s+1,455 tok\/s\s+decode\s+37\.0 tok\/s\s+cached\s+8\s+context\s+28 of 128K/,
    );
    assert.match(await page.locator('#announcer').innerText(), /complete/);
  }));

test('shows text as it comes, and what the server does before', () =>
  withPage(
    {
      slots: {
        queue: { waiting: 3 },
        slots: [
          { id: 0, state: 'decode' },
          { id: 1, state: 'idle' },
        ],
      },
      answers: [
        { prefill: { tokens: 5678, steps: 2, hold: true } },
        { prefill: { tokens: 5678, steps: 1 }, ...long },
      ],
    },
    async ({ page }) => {
      await say(page, 'Read this');
      await page.getByText('Reading 2,839 of 5,678 tokens').waitFor();
      await page.keyboard.press('Escape');
      assert.equal(await ended(page), 'stopped');
      await say(page, 'And this');
      await page.locator('.markdown', { hasText: 'one two three four five' }).waitFor();
      assert.equal(await page.locator('.turn.answer').nth(1).getAttribute('aria-busy'), 'true');
      assert.match(await page.locator('.figures').innerText(), /context\s+≈ 5,68\d of 128K/);
      assert.match(await page.locator('.figures').innerText(), /busy\s+1 of 2\s+queue\s+3/);
    },
  ));

test('stops by button and by Escape, and tells the server', () =>
  withPage({ answers: [long] }, async ({ page }) => {
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
      assert.match(await page.locator('.answer-figures').nth(index).innerText(), /^5 tokens/);
    }
    await page.locator('#send').waitFor();
  }));

test('edits an earlier question in a branch of its own', () =>
  withPage({ answers: ['A', 'B', 'C'].map((text) => ({ steps: [{ text }] })) }, async ({ page, chats }) => {
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
    {
      answers: [
        { steps: [{ thinking: 'hm' }, { text: 'A' }] },
        { steps: [{ text: 'B' }] },
        { steps: [{ text: 'C' }] },
      ],
    },
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
    { answers: [{ steps: words('A whole answer.') }, long, { steps: words(' six seven') }] },
    async ({ page, chats }) => {
      await say(page, 'first');
      await ended(page);
      await say(page, 'count');
      await page.locator('.markdown', { hasText: 'five' }).waitFor();
      await page.reload();
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
    await server.kill();
    assert.equal(await ended(page), 'cut');
    assert.equal(await answerText(page), 'one two three four five');
    await page.getByText('The server does not answer').waitFor();
    await server.run({ answers: [{ steps: words('A new answer.') }] });
    await page.getByText('The server does not answer').waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Retry' }).click();
    await page.locator('.markdown', { hasText: 'A new answer.' }).waitFor();
    assert.equal(await ended(page), 'complete');
  }));

test('says how an answer ended', () =>
  withPage(
    {
      answers: [
        { steps: [{ text: 'a' }], finish: 'length' },
        {
          steps: [{ text: 'a' }],
          finish: 'stop',
          details: { type: 'loop', period: 6, repeats: 9, first_token: 12 },
        },
        { steps: [{ text: 'a' }], stream_error: 'out of memory' },
        { steps: [{ text: 'a' }], cut: true },
        { status: 400, message: 'the prompt has 200,000 tokens, the context 131,072' },
      ],
    },
    async ({ page }) => {
      const endings = [
        ['complete', /limit of its length/],
        ['complete', /repeated itself\. \(6 tokens, 9 times\)/],
        ['failed', /out of memory/],
        ['cut', /Cut off/],
        ['failed', /200,000 tokens, the context 131,072/],
      ];
      for (const [index, [status, ending]] of endings.entries()) {
        await say(page, `question ${index}`);
        assert.equal(await ended(page, index), status);
        assert.match(await page.locator('.turn.answer').nth(index).locator('.ending').innerText(), ending);
      }
    },
  ));

test('folds thinking, with its time; shows tool calls and takes their results', () =>
  withPage(
    {
      answers: [
        {
          steps: [
            { thinking: 'Let me ' },
            { thinking: 'think.' },
            { text: 'Looking.' },
            { tool: { index: 0, id: 'call_1', name: 'weather', arguments: '{"city":' } },
            { tool: { index: 0, arguments: '"Bergen"}' } },
          ],
          finish: 'tool_calls',
        },
        { steps: words('It rains.') },
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
      assert.deepEqual(chats[1].messages.slice(1), [
        {
          role: 'assistant',
          content: 'Looking.',
          reasoning_content: 'Let me think.',
          tool_calls: [
            { id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Bergen"}' } },
          ],
        },
        { role: 'tool', tool_call_id: 'call_1', content: 'rain' },
      ]);
    },
  ));

test('never presents a cut call as a whole one', () =>
  withPage(
    {
      answers: [
        { steps: [{ tool: { id: 'c', name: 'weather', arguments: '{"city":' } }], cut: true },
        { steps: [{ text: 'ok' }] },
      ],
    },
    async ({ page, chats }) => {
      await say(page, 'Weather?');
      await ended(page);
      assert.match(await page.locator('.tool-call').innerText(), /not complete/);
      await say(page, 'again');
      await ended(page, 1);
      assert.deepEqual(
        chats[1].messages.map((message) => message.role),
        ['user', 'user'],
      );
    },
  ));

test('the Enter that ends a composition does not send', () =>
  withPage({ answers: [{ steps: [{ text: 'ok' }] }] }, async ({ page, chats, context }) => {
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
        {
          steps: [
            {
              text: '<img src=x onerror="window.hurt=1"><svg onload="window.hurt=1"></svg>\n\n<script>hurt=1</script>\n\n',
            },
            {
              text: '![x](http://127.0.0.1:1/leak) [link](javascript:window.hurt=1) <a href="https://e.org" onclick="hurt=1">a</a>',
            },
          ],
        },
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
