// Walks between the versions of one turn: edits of a question, retries of an answer.
import type { JSX } from 'preact';
import type { ChatNode, Conversation } from '../model';
import { versionsOf } from '../state/tree';
import { useParts, useStrings } from './context';
import { IconButton } from './icons';

export function Versions(props: {
  conversation: Conversation;
  node: ChatNode;
  busy: boolean;
}): JSX.Element | null {
  const strings = useStrings();
  const { library } = useParts();
  const versions = versionsOf(props.conversation, props.node);
  if (versions.length < 2) return null;
  const at = versions.findIndex((node) => node.id === props.node.id);
  const show = (index: number): void => {
    const node = versions[index];
    if (node !== undefined) library.showVersion(props.conversation.id, node.id);
  };
  return (
    <span class="versions">
      <IconButton
        icon="left"
        label={strings.olderVersion}
        disabled={props.busy || at === 0}
        onClick={() => show(at - 1)}
      />
      <span aria-label={strings.versionOf(at + 1, versions.length)}>
        {at + 1}/{versions.length}
      </span>
      <IconButton
        icon="right"
        label={strings.newerVersion}
        disabled={props.busy || at + 1 === versions.length}
        onClick={() => show(at + 1)}
      />
    </span>
  );
}
