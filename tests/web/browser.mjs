// All tests in a browser, in one process: they share the browser.
import { after } from 'node:test';
import { closeBrowser } from './harness.mjs';

after(closeBrowser);
await import('./page.test.mjs');
await import('./controls.test.mjs');
