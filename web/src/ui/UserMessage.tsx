import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Conversation, UserNode } from '../model';
import { useParts, useStrings } from './context';
import { CopyButton } from './copy';
import { IconButton } from './icons';
import { composerAction } from './keys';
import { focusComposer } from './Page';
import { growToFit, isTouch } from './textarea';
import { Versions } from './Versions';

function Editor(props: { node: UserNode; onSend: (text: string) => void; onCancel: () => void }): JSX.Element {
  const strings = useStrings();
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(props.node.text);
  const usable = text.trim() !== '' || props.node.images.length > 0;
  useEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(props.node.text.length, props.node.text.length);
  }, []);
  useEffect(() => growToFit(field.current), [text]);
  const onKey = (event: KeyboardEvent): void => {
    const action = composerAction(event, false, isTouch());
    if (action === 'send') {
      event.preventDefault();
      if (usable) props.onSend(text);
    } else if (event.key === 'Escape' && !event.isComposing) {
      event.preventDefault();
      props.onCancel();
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        rows={1}
        aria-label={strings.edit}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <p class="hint">{strings.editNote}</p>
      <div class="buttons">
        <button type="button" class="button" onClick={props.onCancel}>
          {strings.cancel}
        </button>
        <button type="button" class="button primary" disabled={!usable} onClick={() => props.onSend(text)}>
          {strings.send}
        </button>
      </div>
    </div>
  );
}

export function UserMessage(props: {
  conversation: Conversation;
  node: UserNode;
  busy: boolean;
  editing: boolean;
  onEdit: (nodeId: string | null) => void;
}): JSX.Element {
  const strings = useStrings();
  const { answers } = useParts();
  const { conversation, node } = props;
  const end = (): void => {
    props.onEdit(null);
    focusComposer();
  };
  const send = (text: string): void => {
    end();
    answers.edit(conversation, node.id, text, node.images);
  };
  return (
    <section class="turn user" aria-label={strings.you}>
      {node.images.length > 0 && (
        <div class="images">
          {node.images.map((url, index) => (
            <img key={index} src={url} alt={strings.image(index + 1)} />
          ))}
        </div>
      )}
      {props.editing && !props.busy ? (
        <Editor node={node} onSend={send} onCancel={end} />
      ) : (
        node.text !== '' && <div class="bubble">{node.text}</div>
      )}
      {!props.editing && (
        <div class="actions">
          <Versions conversation={conversation} node={node} busy={props.busy} />
          <CopyButton text={node.text} />
          <IconButton
            icon="edit"
            label={strings.edit}
            disabled={props.busy}
            onClick={() => props.onEdit(node.id)}
          />
        </div>
      )}
    </section>
  );
}
