// Settings, files, keys and sizes of the chat page, in a headless browser, against the program.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { answerText, ended, endingText, eventually, say, withPage } from './harness.mjs';
import { answer } from './server.mjs';

const ok = { answers: [answer('ok', { uses: -1 })] };

test('sends the settings, and only those that were set', () =>
  withPage(
    { ...ok, options: ['--temp', '0.6'] },
    async ({ page, chats }) => {
      await page.keyboard.press('Alt+s');
      const field = (name) => page.getByLabel(name, { exact: true });
      assert.equal(await field('Temperature').getAttribute('placeholder'), '0.6');
      assert.equal(await field('Longest answer (tokens)').getAttribute('placeholder'), '32768');
      assert.equal(await field('Thinking').locator('option').first().innerText(), 'default (High)');
      assert.equal(
        await field('Guard against repetition').locator('option').first().innerText(),
        'default (Observe)',
      );
      await field('System prompt').fill('Be brief.');
      await field('Temperature').fill('0.7');
      await field('Top p').fill('7');
      assert.equal(await field('Top p').getAttribute('aria-invalid'), 'true');
      await field('Top k').fill('40');
      await field('Min p').fill('0.05');
      await field('Seed').fill('42');
      await field('Longest answer (tokens)').fill('100');
      await field('Thinking').selectOption('off');
      await field('Guard against repetition').selectOption('stop');
      await field('Stop strings, one a line').fill('END\nfin');
      await field('Tools (JSON)').fill('[{"type":"function","function":{"name":"f"}}]');
      await page.keyboard.press('Escape');
      await say(page, 'go');
      assert.equal(await ended(page), 'complete');
      assert.deepEqual(chats[0], {
        model: 'DeepSeek-V4.1-Flash',
        messages: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'go' },
        ],
        stream: true,
        stream_options: { include_usage: true },
        temperature: 0.7,
        top_k: 40,
        min_p: 0.05,
        seed: 42,
        max_tokens: 100,
        reasoning_effort: 'none',
        loop_guard: 'stop',
        stop: ['END', 'fin'],
        tools: [{ type: 'function', function: { name: 'f' } }],
      });
    },
  ));

test('asks for a key when the server wants one, and then asks again', () =>
  withPage({ ...ok, options: ['--api-key', 'secret'] }, async ({ page }) => {
    await page.getByLabel('API key').fill('guess');
    await page.keyboard.press('Enter');
    await page.getByText('did not accept').waitFor();
    await page.getByLabel('API key').fill('secret');
    await page.keyboard.press('Enter');
    await page.getByText('128K').waitFor();
    await say(page, 'hello');
    assert.equal(await ended(page), 'complete');
    await page.reload();
    await say(page, 'again');
    assert.equal(await ended(page, 1), 'complete');
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('secret')), false);
  }));

test('renames, exports, removes and imports conversations', () =>
  withPage(ok, async ({ page }) => {
    await say(page, 'hello');
    await ended(page);
    await page.getByRole('button', { name: 'Rename: hello' }).click();
    await page.keyboard.type('Greetings');
    await page.keyboard.press('Enter');
    assert.equal(await page.locator('.conversation').innerText(), 'Greetings');
    const download = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export all' }).click();
    const file = await (await download).path();
    assert.equal(JSON.parse(readFileSync(file, 'utf8')).conversations[0].title, 'Greetings');
    await page.getByRole('button', { name: 'Delete: Greetings' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.locator('.conversation').waitFor({ state: 'detached' });
    await page.locator('#import-file').setInputFiles(file);
    await page.getByText('One conversation imported.').waitFor();
    assert.equal(await answerText(page), 'ok');
    await page.reload();
    assert.equal(await page.locator('.conversation').innerText(), 'Greetings');
    await page
      .locator('#import-file')
      .setInputFiles({ name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('{"format":1}') });
    await page.getByText('does not hold exported conversations').waitFor();
  }));

test('works by keyboard alone', () =>
  withPage(
    { answers: [answer('```js\nlet a;\n```\n\nDone.')] },
    async ({ page, chats }) => {
      const focused = () =>
        page.evaluate(() => document.activeElement.getAttribute('aria-label') ?? document.activeElement.tagName);
      await eventually(focused, 'Write a message');
      await page.keyboard.type('line one');
      await page.keyboard.press('Shift+Enter');
      await page.keyboard.type('line two');
      await page.keyboard.press('Enter');
      await ended(page);
      assert.equal(chats[0].messages[0].content, 'line one\nline two');
      await eventually(focused, 'Write a message');
      await page.keyboard.press('ArrowUp');
      await eventually(focused, 'Edit');
      await page.keyboard.press('Escape');
      await eventually(focused, 'Write a message');
      // Backwards from the field: every control is reached, and shows that it has the focus.
      const seen = new Set();
      for (let step = 0; step < 30 && !seen.has('New conversation'); step++) {
        await page.keyboard.press('Shift+Tab');
        const label = await page.evaluate(() => {
          const element = document.activeElement;
          if (element === document.body) return 'body';
          if (getComputedStyle(element).outlineStyle === 'none')
            throw new Error(`no visible focus: ${element.outerHTML}`);
          return element.getAttribute('aria-label') ?? element.innerText;
        });
        seen.add(label);
      }
      for (const label of [
        'Retry',
        'Copy',
        'Edit',
        'Copy code',
        'Settings',
        'Keyboard',
        'New conversation',
        'Delete: line one',
      ]) {
        assert.ok(seen.has(label), `${label} was not reached: ${[...seen].join(', ')}`);
      }
      await page.keyboard.press('Alt+k');
      await eventually(() => page.getByRole('dialog', { name: 'Keyboard' }).count(), 1);
      await page.keyboard.press('Escape');
      await eventually(() => page.getByRole('dialog').count(), 0);
      await page.keyboard.press('Alt+n');
      await eventually(() => page.locator('.turn').count(), 0);
      await eventually(focused, 'Write a message');
      await page.goBack();
      await page.locator('.turn.answer').waitFor();
    },
  ));

test('copies answers and code, also where there is no clipboard interface', () =>
  withPage(
    { answers: [answer('Text\n\n```js\nlet a;\n```\n\n- nested\n\n  ```\n  deep\n  ```\n')] },
    async ({ page }) => {
      assert.equal(await page.evaluate(() => isSecureContext), false);
      const copied = async () => {
        await page.locator('#composer').fill('');
        await page.locator('#composer').focus();
        await page.keyboard.press('Control+v');
        return page.locator('#composer').inputValue();
      };
      await say(page, 'code');
      await ended(page);
      await page.getByRole('button', { name: 'Copy code' }).first().click();
      assert.equal(await copied(), 'let a;');
      await page.getByRole('button', { name: 'Copy code' }).nth(1).click();
      assert.equal(await copied(), 'deep');
      await page.locator('#composer').focus();
      await page.keyboard.press('Alt+c');
      assert.match(await copied(), /^Text\n\n```js/);
    },
    { host: 'fathom.test' },
  ));

const pixel = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPj/HwADBwIAMCbHYQAAAABJRU5ErkJggg==',
  'base64',
);

// The program reads no images yet: the page is made to believe that it does, and the program says that it does not.
test('takes images when the model sees: from a file, the clipboard, a drop', () =>
  withPage(ok, async ({ page, chats }) => {
    await page.getByRole('button', { name: 'Add images' }).waitFor();
    await page.locator('#image-file').setInputFiles({ name: 'a.png', mimeType: 'image/png', buffer: pixel });
    await page.locator('.composer .images img').waitFor();
    for (const kind of ['paste', 'drop']) {
      await page.locator('#composer').evaluate(
        (field, [type, bytes]) => {
          const data = new DataTransfer();
          data.items.add(new File([Uint8Array.from(bytes)], 'b.png', { type: 'image/png' }));
          const options = { bubbles: true, cancelable: true };
          field.dispatchEvent(
            type === 'paste'
              ? new ClipboardEvent(type, { ...options, clipboardData: data })
              : new DragEvent(type, { ...options, dataTransfer: data }),
          );
        },
        [kind, [...pixel]],
      );
    }
    await page.locator('.composer .images img').nth(2).waitFor();
    await page.getByRole('button', { name: 'Remove image' }).first().click();
    await page
      .locator('#image-file')
      .setInputFiles({ name: 'no.png', mimeType: 'image/png', buffer: Buffer.from('no image') });
    await page.getByText('no.png is not an image').waitFor();
    await say(page, 'What is it?');
    assert.equal(await ended(page), 'failed');
    assert.match(await endingText(page), /images cannot be read/);
    const parts = chats[0].messages[0].content;
    assert.deepEqual(
      parts.map((part) => part.type),
      ['image_url', 'image_url', 'text'],
    );
    assert.match(parts[0].image_url.url, /^data:image\/png;base64,iVBOR/);
    assert.equal(await page.locator('.turn.user img').count(), 2);
  }, { props: { has_vision: true } }));

test('has no place for images when the model is blind', () =>
  withPage(ok, async ({ page }) => {
    await page.getByText('128K').waitFor();
    assert.equal(await page.getByRole('button', { name: 'Add images' }).count(), 0);
  }));

test('follows the answer until the reader scrolls up', () =>
  withPage(
    {
      answers: [answer(Array.from({ length: 150 }, (_, index) => `Paragraph ${index}\n\n`).join(''), { token_ms: 4 })],
    },
    async ({ page }) => {
      await say(page, 'write');
      const fromEnd = () =>
        page.locator('.thread').evaluate((view) => view.scrollHeight - view.clientHeight - view.scrollTop);
      await page.getByText('Paragraph 40', { exact: true }).waitFor();
      assert.ok((await fromEnd()) < 48);
      await page.locator('.thread').hover();
      await page.mouse.wheel(0, -600);
      await page.getByRole('button', { name: 'To the latest' }).waitFor();
      const top = await page.locator('.thread').evaluate((view) => view.scrollTop);
      await ended(page);
      assert.equal(await page.locator('.thread').evaluate((view) => view.scrollTop), top);
      await page.getByRole('button', { name: 'To the latest' }).click();
      assert.ok((await fromEnd()) < 48);
    },
  ));

const wideTable = `| ${'wide cell | '.repeat(12)}\n|${'---|'.repeat(12)}\n| ${'x | '.repeat(12)}`;

test('fits a phone', () =>
  withPage(
    { answers: [answer(`${wideTable}\n\n\`\`\`\n${'long '.repeat(60)}\n\`\`\``)] },
    async ({ page }) => {
      assert.equal(await page.locator('.sidebar').isVisible(), false);
      await page.locator('#composer').fill('hello');
      await page.keyboard.press('Enter');
      assert.equal(await page.locator('.turn').count(), 0);
      assert.equal(await page.locator('#composer').inputValue(), 'hello\n');
      await page.locator('#send').tap();
      await ended(page);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${overflow} px too wide`);
      for (const { width, height } of await page
        .locator('#send, .chat-head .icon-button:visible')
        .evaluateAll((list) => list.map((item) => item.getBoundingClientRect().toJSON()))) {
        assert.ok(width >= 36 && height >= 36);
      }
      await page.getByRole('button', { name: 'Show conversations' }).tap();
      await page.locator('.conversation').tap();
      assert.equal(await page.locator('.sidebar').isVisible(), false);
    },
    { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true, deviceScaleFactor: 1 },
  ));

test('is dark when the system is, and when told', () =>
  withPage(
    ok,
    async ({ page }) => {
      const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      // The style follows the choice a frame or more later.
      const becomes = async (is) => {
        for (let attempt = 0; attempt < 500 && !is(await paper()); ++attempt) await page.waitForTimeout(20);
        assert.ok(is(await paper()), await paper());
      };
      const dark = await paper();
      await page.emulateMedia({ colorScheme: 'light' });
      await becomes((colour) => colour !== dark);
      await page.keyboard.press('Alt+s');
      await page.getByLabel('Theme').selectOption('dark');
      await becomes((colour) => colour === dark);
      await page.reload();
      await becomes((colour) => colour === dark);
    },
    { colorScheme: 'dark' },
  ));

test('speaks Korean', () =>
  withPage(
    ok,
    async ({ page }) => {
      await page.getByPlaceholder('메시지를 입력하세요').waitFor();
      assert.equal(await page.locator('html').getAttribute('lang'), 'ko');
      await page.keyboard.press('Alt+s');
      await page.getByLabel('언어').selectOption('en');
      assert.equal(await page.getByRole('dialog').getAttribute('aria-label'), 'Settings');
    },
    { locale: 'ko-KR' },
  ));

test('other tabs of the browser see the same conversations', () =>
  withPage(ok, async ({ page, context, server }) => {
    const other = await context.newPage();
    await other.goto(server.url);
    await say(page, 'from the first tab');
    await other.locator('.conversation', { hasText: 'from the first tab' }).click();
    await other.locator('.turn.answer[data-status=complete]').waitFor();
  }));
