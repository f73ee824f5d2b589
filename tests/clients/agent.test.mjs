// A coding agent, Qwen Code, that knows nothing but the address of the real server and works through a short session.
//   FATHOM_AGENT  folder in which it is installed
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { Server, calls, thinks } from './harness.mjs';

const home = join(process.env.FATHOM_AGENT, 'node_modules/@qwen-code/qwen-code');
const { bin } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
const program = join(home, typeof bin === 'string' ? bin : bin.qwen);

function run(words, folder, env) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, words, { cwd: folder, env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120000, killSignal: 'SIGKILL' });
    let out = '', err = '';
    child.stdout.on('data', (bytes) => { out += bytes; });
    child.stderr.on('data', (bytes) => { err += bytes; });
    child.on('close', (code, signal) => resolve({ code: code ?? signal, out, err }));
  });
}

test('a coding agent reads a file, writes another and says so', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'fathom-agent-'));
  mkdirSync(join(folder, 'home'));
  writeFileSync(join(folder, 'riddle.txt'), 'The secret is 4711.\n');
  const target = join(folder, 'answer.txt');
  const server = await Server.start({ script: { context_tokens: 1 << 20, answers: [
    { match: '[begin]', text: thinks('I look.', 'I read it.' + calls(['read_file', { file_path: join(folder, 'riddle.txt') }])) },
    { match: 'The secret is 4711.', text: thinks('I write.', calls(['write_file', { file_path: target, content: 'It is 4711 🐟.\n' }])) },
    { match: '[begin]', text: thinks('Done.', 'The answer is written, captain.') },
  ] } });
  const words = [program, '--auth-type', 'openai', '--openai-api-key', 'none', '--openai-base-url', `${server.url}/v1`,
    '-m', 'any', '--yolo', '-p', 'Read riddle.txt and write answer.txt. [begin]'];
  const env = { PATH: process.env.PATH, HOME: join(folder, 'home'), QWEN_CODE_SUPPRESS_YOLO_WARNING: '1' };
  const { code, out, err } = await run(words, folder, env);
  assert.equal(code, 0, `${out}\n${err}\n${server.log}`);
  assert.match(out, /The answer is written, captain\./);
  assert.ok(existsSync(target), `${out}\n${err}`);
  assert.equal(readFileSync(target, 'utf8'), 'It is 4711 🐟.\n');
  // Each request goes on where the one before it ended: of the long system text most is evaluated once only.
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const value = (name) => Number(new RegExp(`^${name} (\\d+)`, 'm').exec(metrics)?.[1]);
  const [prompt, cached] = [value('fathom_prompt_tokens_total'), value('fathom_cached_tokens_total')];
  assert.ok(cached > prompt / 2, `${cached} of ${prompt} tokens were cached\n${metrics}`);
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});
