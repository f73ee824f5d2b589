// One conversation: what was said, and the field to go on.
import type { JSX } from 'preact';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { pathTo } from '../state/tree';
import { Composer } from './Composer';
import { useApp, useStrings } from './context';
import { FiguresLine } from './FiguresLine';
import { IconButton } from './icons';
import type { Panel } from './Page';
import { Thread } from './Thread';

export function Chat(props: {
  listOpen: boolean;
  onList: () => void;
  onPanel: (panel: Panel) => void;
}): JSX.Element {
  const strings = useStrings();
  const loaded = useApp((state) => state.loaded);
  const currentId = useApp((state) => state.currentId);
  const conversation = useApp((state) =>
    state.currentId === null ? null : (state.conversations[state.currentId] ?? null),
  );
  const unreachable = useApp((state) => state.server.reachable === false);
  const keepsNothing = useApp((state) => state.keepsNothing);
  const [editing, setEditing] = useState<string | null>(null);
  const path = useMemo(() => (conversation ? pathTo(conversation, conversation.leaf) : []), [conversation]);

  useEffect(() => setEditing(null), [currentId]);
  useEffect(() => {
    document.title = conversation?.title ? `${conversation.title} · Fathom` : 'Fathom';
  }, [conversation?.title]);

  const editLast = (): void => setEditing(path.findLast((node) => node.kind === 'user')?.id ?? null);
  return (
    <main class={`chat ${loaded && path.length === 0 ? 'empty' : ''}`}>
      <header class="chat-head">
        {!props.listOpen && <IconButton icon="list" label={strings.openList} onClick={props.onList} />}
        <h1>{conversation?.title ?? ''}</h1>
        <IconButton
          icon="keyboard"
          class="no-touch"
          label={strings.shortcuts}
          onClick={() => props.onPanel('help')}
        />
        <IconButton icon="gear" label={strings.settings} onClick={() => props.onPanel('settings')} />
      </header>
      {unreachable && (
        <p class="banner" role="alert">
          {strings.unreachable}
        </p>
      )}
      {keepsNothing && (
        <p class="banner" role="alert">
          {strings.keepsNothing}
        </p>
      )}
      {conversation && path.length > 0 ? (
        <Thread
          key={conversation.id}
          conversation={conversation}
          path={path}
          editing={editing}
          onEdit={setEditing}
        />
      ) : (
        <div class="greeting">
          {loaded && <h2>{strings.greeting}</h2>}
          {loaded && <p>{strings.greetingHint}</p>}
        </div>
      )}
      <div class="bottom">
        <Composer key={currentId ?? ''} conversationId={currentId} onEditLast={editLast} />
        <FiguresLine conversationId={currentId} path={path} />
      </div>
    </main>
  );
}
