import { describe, expect, it } from 'vitest';
import { createConversation, withNode } from './tree';
import { newAnswer } from './answer';
import { exportText, importText, readSampling } from './transfer';

function sample(): ReturnType<typeof createConversation> {
  const image = 'data:image/png;base64,AA==';
  let conversation = withNode(createConversation(1), {
    kind: 'user',
    id: 'q',
    parent: null,
    createdAt: 2,
    text: 'x',
    images: [image],
  });
  conversation = withNode(conversation, {
    ...newAnswer('q', 'm', 3),
    id: 'a',
    status: 'complete',
    text: 'y',
    finishReason: 'stop',
  });
  return withNode(conversation, {
    kind: 'tool',
    id: 't',
    parent: 'a',
    createdAt: 4,
    results: [{ callId: 'c', text: 'z' }],
  });
}

function file(change: (root: Record<string, unknown>) => void): string {
  const root = JSON.parse(exportText([sample()])) as Record<string, unknown>;
  change(root);
  return JSON.stringify(root);
}

describe('exported conversations', () => {
  it('come back whole, under new ids', () => {
    const before = sample();
    const [after] = importText(exportText([before])) ?? [];
    expect(after).toEqual({ ...before, id: after?.id });
    expect(after?.id).not.toBe(before.id);
  });

  it('are refused when they are something else', () => {
    for (const text of [
      '',
      '[]',
      '{}',
      'null',
      '{"format":"fathom-conversations","version":2,"conversations":[]}',
    ]) {
      expect(importText(text)).toBeNull();
    }
    expect(importText(file((root) => (root['conversations'] = [7])))).toBeNull();
  });

  it('are refused when nodes hang below nothing or below themselves', () => {
    const damaged = (parents: Record<string, string | null>): string => {
      const conversation = sample();
      for (const [id, parent] of Object.entries(parents)) {
        const node = conversation.nodes[id];
        if (node !== undefined) conversation.nodes[id] = { ...node, parent };
      }
      return exportText([conversation]);
    };
    expect(importText(damaged({ q: null }))).not.toBeNull();
    expect(importText(damaged({ q: 'nobody' }))).toBeNull();
    expect(importText(damaged({ q: 't' }))).toBeNull();
    expect(importText(damaged({ q: 'constructor' }))).toBeNull();
  });

  it('bring no address but images', () => {
    const conversation = sample();
    const node = conversation.nodes['q'];
    if (node?.kind === 'user')
      node.images = ['https://evil.example/x.png', 'data:text/html;base64,AA==', 'data:image/png;base64,AA=='];
    const [after] = importText(exportText([conversation])) ?? [];
    expect(after?.nodes['q']).toMatchObject({ images: ['data:image/png;base64,AA=='] });
  });

  it('bring settings of the right kind only', () => {
    expect(
      readSampling({ temperature: 'hot', topP: 0.5, effort: 'huge', stop: [1, 'x'], loopGuard: 'stop' }),
    ).toMatchObject({
      temperature: null,
      topP: 0.5,
      effort: null,
      stop: ['x'],
      loopGuard: 'stop',
    });
  });
});
