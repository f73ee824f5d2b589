// Takes the pictures of docs/web.md. usage: FATHOM_WEB_BUILD=FOLDER node screenshots.mjs FOLDER_FOR_PICTURES
import { join } from 'node:path';
import { closeBrowser, ended, say, withPage, words } from './harness.mjs';

const folder = process.argv[2];
const figures = {
  usage: { prompt_tokens: 3180, completion_tokens: 412, prompt_tokens_details: { cached_tokens: 2944 } },
  timings: { prefill_tokens_per_second: 1455.1, decode_tokens_per_second: 37.03 },
};
const text = `A fjord forms in three steps:

1. **Ice cuts.** A glacier deepens a river valley, often far below the level of the sea.
2. **Ice leaves a sill.** Where it begins to float it cuts no longer, so the mouth stays shallow.
3. **The sea comes in** when the glacier draws back.

That is why a fjord is deepest inland. Sognefjorden shows it well:

| Place | Depth |
|:--|--:|
| mouth, at the sill | 165 m |
| off Vadheim | 1,303 m |

The pressure at the bottom follows from the depth alone:

\`\`\`python
def pressure_bar(depth_m, density=1028, g=9.81):
    return depth_m * density * g / 1e5

print(f"{pressure_bar(1303):.0f} bar")   # 131 bar
\`\`\`
`;
const pieces = text
  .match(/[^ ]* ?/g)
  .filter(Boolean)
  .map((piece) => ({ text: piece }));
const talk = {
  models: ['DeepSeek-V4.1-Flash'],
  answers: [
    {
      steps: [
        ...words(
          'Glacier, sill, flooding; then the profile of Sognefjorden, and the pressure at its bottom.',
        ).map(({ text: thinking }) => ({ thinking })),
        ...pieces,
      ],
      step_ms: 40,
      ...figures,
    },
  ],
};

async function picture(page, name) {
  await page.mouse.move(0, 0);
  await page.screenshot({ path: join(folder, name) });
}

async function older(page, titles) {
  for (const title of titles) {
    await say(page, title);
    await page.locator('#send').waitFor();
    await page.keyboard.press('Alt+n');
  }
}

const titles = [
  'Rewrite this regex without lookbehind',
  'A week in Bergen with children',
  'Compare B-trees and LSM trees',
];
const window = { viewport: { width: 1180, height: 860 } };
const quick = { steps: words('Certainly.'), ...figures };
for (const colorScheme of ['light', 'dark']) {
  await withPage(
    { ...talk, answers: [quick, quick, quick, ...talk.answers] },
    async ({ page }) => {
      await older(page, titles);
      await say(page, 'How does a fjord form, and why is it deepest inland?');
      await ended(page);
      await picture(page, `web-${colorScheme}.png`);
    },
    { ...window, colorScheme },
  );
}

await withPage(
  {
    answers: [
      {
        steps: [
          ...words(
            'The user wants two depths. The chart service has soundings: ask it for Vadheim and for the mouth, then compare.',
          ).map(({ text: thinking }) => ({ thinking })),
          ...words('I look up both places in the chart.'),
          { tool: { index: 0, id: 'call_1', name: 'sounding', arguments: '{"place": "Vadheim", "unit": "m"}' } },
          {
            tool: { index: 1, id: 'call_2', name: 'sounding', arguments: '{"place": "Sognesjøen", "unit": "m"}' },
          },
        ],
        step_ms: 60,
        finish: 'tool_calls',
        ...figures,
      },
    ],
  },
  async ({ page }) => {
    await say(page, 'How much deeper is Sognefjorden off Vadheim than at its mouth?');
    await ended(page);
    await page.locator('.fold').click();
    await page.locator('.thread').evaluate((view) => view.scrollTo(0, 0));
    await picture(page, 'web-thinking-tools.png');
  },
  { ...window, colorScheme: 'light' },
);

await withPage(
  talk,
  async ({ page }) => {
    await page.locator('#composer').fill('How does a fjord form, and why is it deepest inland?');
    await page.locator('#send').tap();
    await ended(page);
    await page.locator('.thread').evaluate((view) => view.scrollTo(0, 0));
    await picture(page, 'web-phone.png');
  },
  {
    viewport: { width: 390, height: 780 },
    hasTouch: true,
    isMobile: true,
    deviceScaleFactor: 1.5,
    colorScheme: 'light',
  },
);

await closeBrowser();
