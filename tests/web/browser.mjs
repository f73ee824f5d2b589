// All tests in a browser, in one process: they share the browser.
import { after } from 'node:test';
import { closeBrowser } from './harness.mjs';

for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));
after(closeBrowser);
await import('./page.test.mjs');
await import('./controls.test.mjs');
