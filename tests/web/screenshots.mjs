// Takes the pictures of docs/web.md.
// usage: FATHOM_WEB_BUILD=FOLDER FATHOM_BINARY=PROGRAM node screenshots.mjs FOLDER_FOR_PICTURES
import { join } from 'node:path';
import { closeBrowser, ended, say, withPage } from './harness.mjs';
import { answer, calls } from './server.mjs';

const folder = process.argv[2];
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
// A prompt is read as fast, and an answer written as fast, as a machine with much memory does it.
const pace = { prefill_ms: 40, token_ms: 27 };
const talk = {
  match: 'How does a fjord form',
  ...answer(text, {
    thinking: 'Glacier, sill, flooding; then the profile of Sognefjorden, and the pressure at its bottom.',
    ...pace,
  }),
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
const quick = answer('Certainly.', { uses: -1, ...pace });
for (const colorScheme of ['light', 'dark']) {
  await withPage(
    { answers: [talk, quick] },
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
      answer(
        `I look up both places in the chart.${calls(
          ['sounding', { place: 'Vadheim', unit: 'm' }],
          ['sounding', { place: 'Sognesjøen', unit: 'm' }],
        )}`,
        {
          thinking:
            'The user wants two depths. The chart service has soundings: ask it for Vadheim and for the mouth, then compare.',
          ...pace,
        },
      ),
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
  { answers: [talk] },
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
