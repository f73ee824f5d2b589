// curl against the real server.
import assert from 'node:assert/strict';
import { execFile, execFileSync, spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';

import { Server, thinks } from './harness.mjs';

const run = promisify(execFile);
// Proxies are for the world outside.
const curl = async (...words) => {
  const { stdout, stderr } = await run('curl', ['--noproxy', '*', '-sS', '--max-time', '120', ...words], { maxBuffer: 1 << 26 });
  return { out: stdout, err: stderr };
};
let hasCurl = true;
try { execFileSync('curl', ['--version']); } catch { hasCurl = false; }

const script = {
  slots: 4,
  context_tokens: 1 << 20,
  answers: [
    { match: '[forever]', text: thinks('', 'on and on'), hangs: true, uses: -1 },
    { match: '[slow prompt]', text: 'never', prefill_ms: 3600000, uses: -1 },
    { text: thinks('Hm.', 'Hello to you!'), uses: -1 },
  ],
};
const chat = (content, more = {}) => JSON.stringify({ messages: [{ role: 'user', content }], ...more });

describe('curl', { skip: hasCurl ? false : 'curl is missing' }, () => {
  let server, url;
  before(async () => { server = await Server.start({ script }); url = server.url; });
  after(() => server.stop());

  test('streams events', async () => {
    const { out } = await curl('-N', '-i', `${url}/v1/chat/completions`, '-d', chat('Hi', { stream: true }));
    assert.match(out, /^HTTP\/1\.1 200 /);
    assert.match(out, /^content-type: text\/event-stream/im);
    const events = out.split('\n').filter((line) => line.startsWith('data: ')).map((line) => line.slice(6).trim());
    assert.equal(events.at(-1), '[DONE]');
    assert.equal(events.slice(0, -1).map((event) => JSON.parse(event).choices[0]?.delta.content ?? '').join(''), 'Hello to you!');
  });

  test('has the headers of a stream before the prompt is evaluated, and frees its slot when it leaves', async () => {
    for (const prompt of ['[slow prompt]', '[forever]']) {
      const client = spawn('curl', ['--noproxy', '*', '-sN', '-i', `${url}/v1/chat/completions`, '-d', chat(prompt, { stream: true })]);
      await new Promise((resolve) => client.stdout.once('data', resolve));
      await server.untilBusy();
      client.kill('SIGKILL');
      await server.untilIdle();
    }
  });

  test('a request without a stream that is given up frees its slot', async () => {
    const client = spawn('curl', ['--noproxy', '*', '-s', `${url}/v1/chat/completions`, '-d', chat('[slow prompt]')]);
    await server.untilBusy();
    client.kill('SIGKILL');
    await server.untilIdle();
  });

  test('HEAD has headers and no body; unknown paths are 404', async () => {
    for (const path of ['/', '/v1/models', '/health']) {
      const { out } = await curl('-I', url + path);
      assert.match(out, /^HTTP\/1\.1 200 /, path);
      assert.match(out, /^content-length: \d+/im, path);
      assert.ok(out.endsWith('\r\n\r\n'));
    }
    for (const words of [['-I'], ['-X', 'POST', '-d', '{}'], []]) {
      const { out } = await curl('-o', '/dev/null', '-w', '%{http_code}', ...words, `${url}/api/event_logging/batch`);
      assert.equal(out.trim().slice(-3), '404');
    }
    const { out } = await curl('-o', '/dev/null', '-w', '%{http_code}', `${url}/v1/chat/completions`);
    assert.equal(out, '405');
  });

  test('keeps a connection for several requests', async () => {
    const body = chat('Hi');
    const { err, out } = await curl('-v', `${url}/health`, `${url}/v1/models`, '--next', '--noproxy', '*', '-sSv',
      `${url}/v1/chat/completions`, '-d', body, '--next', '--noproxy', '*', '-sSv', `${url}/health`);
    assert.equal((err.match(/Re-using existing connection/gi) ?? []).length, 3, err);
    assert.match(out, /Hello to you!/);
  });

  test('is told to continue before it sends a large body, or that it need not', async () => {
    const file = join(server.folder, 'large.json');
    writeFileSync(file, chat('x'.repeat(1 << 20), { max_tokens: 1 }));
    const fine = await curl('-v', '-H', 'Expect: 100-continue', `${url}/v1/chat/completions`, '--data-binary', `@${file}`);
    assert.match(fine.err, /HTTP\/1\.1 100/);
    assert.match(fine.err, /HTTP\/1\.1 [24]00 /);
    const small = await Server.start({ script, options: ['--max-body', '64KiB'] });
    const refused = await curl('-v', '-H', 'Expect: 100-continue', `${small.url}/v1/chat/completions`, '--data-binary', `@${file}`);
    assert.match(refused.err, /HTTP\/1\.1 413 /);
    assert.doesNotMatch(refused.err, /HTTP\/1\.1 100/);
    await small.stop();
  });

  test('sends bodies in chunks and speaks HTTP/1.0', async () => {
    const chunked = await curl('-H', 'Transfer-Encoding: chunked', `${url}/v1/chat/completions`, '-d', chat('Hi'));
    assert.equal(JSON.parse(chunked.out).choices[0].message.content, 'Hello to you!');
    const old = await curl('-0', '-N', `${url}/v1/chat/completions`, '-d', chat('Hi', { stream: true }));
    assert.match(old.out, /\[DONE\]/);
  });

  test('gets no permission for pages of elsewhere', async () => {
    const { out } = await curl('-i', '-X', 'OPTIONS', '-H', 'Origin: https://example.org',
      '-H', 'Access-Control-Request-Method: POST', `${url}/v1/chat/completions`);
    assert.doesNotMatch(out, /access-control-allow/i);
  });

  test('a key and TLS', async (context) => {
    const key = join(server.folder, 'key.pem'), certificate = join(server.folder, 'certificate.pem');
    try {
      execFileSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', certificate, '-days', '2',
        '-subj', '/CN=localhost', '-addext', 'subjectAltName=IP:127.0.0.1'], { stdio: 'ignore' });
    } catch {
      return context.skip('openssl is missing');
    }
    const secret = await Server.start({ script, options: ['--tls-cert', certificate, '--tls-key', key, '--api-key', 'sesame'] });
    const words = ['--cacert', certificate, `${secret.url}/v1/chat/completions`, '-d', chat('Hi')];
    const refused = await curl('-w', '%{http_code}', ...words);
    assert.match(refused.out, /401$/);
    const answer = await curl('-H', 'Authorization: Bearer sesame', ...words);
    assert.equal(JSON.parse(answer.out).choices[0].message.content, 'Hello to you!');
    await secret.stop();
  });
});
