// Reports in a headless browser, opened as files.
//   FATHOM_REPORT_SAMPLE  the program that writes them
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { closeBrowser, newContext } from './harness.mjs';

let folder = '';
before(() => {
  folder = mkdtempSync(join(tmpdir(), 'fathom-report-'));
});
after(async () => {
  await closeBrowser();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs `look(page)` with the report of so many results; it must not complain and must ask nobody. */
async function withReport(results, look, options = {}) {
  const file = join(folder, `${results}.html`);
  execFileSync(process.env.FATHOM_REPORT_SAMPLE, [file, String(results)]);
  const context = await newContext({ viewport: { width: 1200, height: 900 }, ...options });
  const complaints = [];
  try {
    const page = await context.newPage();
    page.on('request', (request) => {
      if (request.url() !== pathToFileURL(file).href) complaints.push(`asked ${request.url()}`);
    });
    page.on('pageerror', (error) => complaints.push(String(error)));
    page.on('console', (message) => {
      // Of the tests' own looking at pixels.
      if (!message.text().includes('willReadFrequently')) complaints.push(message.text());
    });
    await page.goto(pathToFileURL(file).href);
    await page.locator('#method').waitFor();
    await look(page);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

const overflow = (page) =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);

/** Texts of the cells of a row of a figure's table, without the first. */
async function cells(page, table, source, stage) {
  return page.locator(`table${table}`).evaluate(
    (node, [wantedSource, wantedStage]) => {
      const body = [...node.tBodies].find((one) => one.rows[0].innerText.trim() === wantedSource);
      const row = [...body.rows].find((one) => one.cells[0].innerText.trim().startsWith(wantedStage));
      return [...row.cells].slice(1).map((cell) => cell.innerText.split('\n').filter((line) => line !== ''));
    },
    [source, stage],
  );
}

test('shows figures, spreads and ratios', () =>
  withReport(3, async (page) => {
    const prefill = await cells(page, '[data-metric=prefill_tokens_per_s]', 'novel', '32K');
    assert.match(prefill[0][0], /^24\d\d$/);
    assert.match(prefill[0][1], /^± \d\.\d · 0\.\d\d % · n 3$/);
    assert.equal(prefill[0].length, 2);
    assert.match(prefill[1][2], /^× 0\.77\d \[0\.7[67]\d, 0\.77\d\]$/);
    assert.deepEqual(prefill[2].slice(0, 2), ['1560', 'published']);
    assert.match(prefill[2][2], /^× 0\.6\d$/);
    const generation = await cells(page, '[data-metric=generation_f1_tokens_per_s]', 'novel', '128K');
    assert.equal(generation[2][0], '37.03');
    const unknown = await cells(page, '[data-metric=generation_f1_tokens_per_s]', 'source not told', '8K');
    assert.deepEqual(unknown, [['–'], ['–'], ['39.20', 'published']]);
  }));

test('warns on top of what is not comparable, and counts what was left out', () =>
  withReport(3, async (page) => {
    const warnings = await page.locator('.warnings li').allInnerTexts();
    for (const text of ['Prompts reach the engines in different ways', 'The packs differ', 'The machines differ', 'B: 1 of 7 runs excluded'])
      assert.ok(warnings.some((warning) => warning.includes(text)), text);
    const top = await page.locator('.warnings').boundingBox();
    const charts = await page.locator('#charts').boundingBox();
    assert.ok(top.y < charts.y);
    const runs = await page.locator('table.runs tbody tr').allInnerTexts();
    assert.ok(runs.some((row) => /^B novel\s+3\s+4\s+1\s+0\s+0$/.test(row.replaceAll(/\s+/g, ' '))), runs.join('|'));
    assert.match(await page.locator('.notes').innerText(), /novel, run 4.*excluded, disturbed[\s\S]*swap grew by 312 MB/);
  }));

test('tells where outputs part', () =>
  withReport(3, async (page) => {
    const first = await cells(page, '.agreements', 'novel', '8K');
    assert.deepEqual(first, [['own runs: all 3 pairs equal'], ['own runs: all 3 pairs equal', 'with A: 0 of 9 pairs equal, part at token 201'], ['–']]);
    const parted = await cells(page, '.agreements', 'novel', '96K');
    assert.equal(parted[1][0], 'own runs: 1 of 3 pairs equal, part at token 42');
    const later = await cells(page, '.agreements', 'novel', '128K');
    assert.equal(later[1][0], 'own runs: equal; 2 with other prompts');
  }));

test('marks differences of the environment, and shows strange texts as they are', () =>
  withReport(3, async (page) => {
    assert.match(await page.locator('tr.differs', { hasText: 'kernel' }).innerText(), /6\.1\.0-28-amd64\s+6\.12\.9-amd64/);
    assert.equal(await page.locator('tr.differs', { hasText: 'power' }).count(), 0);
    assert.match(await page.locator('table.environment').innerText(), /<\/script><img src=x onerror="document.title='broken'"> & <!--/);
    assert.equal(await page.locator('img').count(), 0);
    assert.match(await page.title(), /^Bench report: Fathom, Q2/);
  }));

test('draws, answers the keyboard, and hides lines', () =>
  withReport(3, async (page) => {
    const painted = () =>
      page.locator('canvas').first().evaluate((canvas) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return data.reduce((count, value, index) => count + (index % 4 === 3 && value > 0 ? 1 : 0), 0);
      });
    const all = await painted();
    assert.ok(all > 5000);
    const chart = page.locator('.plot').first();
    await chart.focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    assert.match(await chart.locator('.tip').innerText(), /^32K, tokens\/s/);
    assert.match(await chart.locator('.tip').innerText(), /C novel\s+1560\s+published/);
    await page.keyboard.press('Escape');
    assert.ok(await chart.locator('.tip').isHidden());
    for (const button of await page.locator('.chart').first().locator('.legend button').all()) {
      await button.focus();
      await page.keyboard.press('Enter');
      assert.equal(await button.getAttribute('aria-pressed'), 'false');
    }
    await page.waitForFunction((before) => {
      const canvas = document.querySelector('canvas');
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      return data.filter((value, index) => index % 4 === 3 && value > 0).length < before;
    }, all);
    const title = () => page.locator('figure').nth(1).locator('figcaption').innerText();
    assert.match(await title(), /^Generation F1, tokens\/s/);
    await page.locator('figure').nth(1).getByRole('button', { name: 'F2' }).click();
    assert.match(await title(), /^Generation F2, tokens\/s/);
    for (const name of ['linear', 'log']) await page.locator('.controls button', { hasText: name }).last().click();
    assert.equal(await page.locator('canvas').count(), 2);
  }));

for (const results of [1, 3, 8])
  for (const [width, colorScheme] of [[360, 'dark'], [1200, 'light']])
    test(`${results} results at ${width} pixels need no sideways scroll`, () =>
      withReport(results, async (page) => assert.equal(await overflow(page), 0), { viewport: { width, height: 780 }, colorScheme }));

test('prints on A4 without cutting charts', () =>
  withReport(
    3,
    async (page) => {
      await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
      await page.emulateMedia({ media: 'print' });
      for (const canvas of await page.locator('canvas').all()) assert.ok((await canvas.boundingBox()).width <= 680);
      assert.equal(await page.locator('.controls').isVisible(), false);
      assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
      await page.evaluate(() => dispatchEvent(new Event('afterprint')));
      assert.ok((await page.pdf({ preferCSSPageSize: true })).length > 10000);
    },
    { colorScheme: 'dark' },
  ));
