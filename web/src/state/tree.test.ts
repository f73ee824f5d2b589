import { describe, expect, it } from 'vitest';
import type { Conversation, UserNode } from '../model';
import { newAnswer } from './answer';
import {
  createConversation,
  markCut,
  merged,
  newestLeaf,
  pathTo,
  titleFrom,
  versionsOf,
  withAnswer,
  withNode,
} from './tree';

function question(id: string, parent: string | null, createdAt: number): UserNode {
  return { kind: 'user', id, parent, createdAt, text: id, images: [] };
}

/** q1 - a1 - q2 and, beside q1, q1b. */
function forked(): Conversation {
  let conversation = withNode(createConversation(1), question('q1', null, 2));
  conversation = withNode(conversation, { ...newAnswer('q1', 'm', 3), id: 'a1' });
  conversation = withNode(conversation, question('q2', 'a1', 4));
  return withNode(conversation, question('q1b', null, 5));
}

describe('a conversation', () => {
  it('shows the branch that was added to last', () => {
    const conversation = forked();
    expect(pathTo(conversation, conversation.leaf).map((node) => node.id)).toEqual(['q1b']);
    expect(pathTo(conversation, 'q2').map((node) => node.id)).toEqual(['q1', 'a1', 'q2']);
    expect(pathTo(conversation, null)).toEqual([]);
    expect(conversation).toMatchObject({ title: 'q1', updatedAt: 5 });
  });

  it('knows the versions of a turn, and the end of a branch', () => {
    const conversation = forked();
    expect(versionsOf(conversation, question('q1b', null, 5)).map((node) => node.id)).toEqual(['q1', 'q1b']);
    expect(newestLeaf(conversation, 'q1')).toBe('q2');
    expect(newestLeaf(conversation, 'q1b')).toBe('q1b');
  });

  it('changes answers without touching what was there', () => {
    const before = forked();
    const after = withAnswer(before, 'a1', (answer) => ({ ...answer, text: 'x' }));
    expect(before.nodes['a1']).toMatchObject({ text: '' });
    expect(after.nodes['a1']).toMatchObject({ text: 'x' });
    expect(withAnswer(before, 'q1', (answer) => answer)).toBe(before);
  });

  it('ends answers that were arriving when the page went', () => {
    const marked = markCut(forked());
    expect(marked.nodes['a1']).toMatchObject({ status: 'cut' });
    expect(markCut(marked)).toBe(marked);
  });

  it('loses no turn when two tabs have added to it', () => {
    const base = forked();
    const here = withNode(base, question('here', 'q1b', 6));
    const there = withNode(base, question('there', 'q1b', 7));
    const both = merged(here, there);
    expect(Object.keys(both.nodes).sort()).toEqual(['a1', 'here', 'q1', 'q1b', 'q2', 'there']);
    expect(both.leaf).toBe('here');
  });

  it('survives a circle in what was stored', () => {
    const conversation = withNode(createConversation(1), question('a', 'a', 1));
    expect(pathTo(conversation, 'a')).toHaveLength(1);
  });

  it('is named after its first line, cut between characters', () => {
    expect(titleFrom('  first\nsecond')).toBe('first');
    expect(titleFrom('🐟'.repeat(70))).toBe(`${'🐟'.repeat(59)}…`);
  });
});
