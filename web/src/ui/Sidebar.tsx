// The list of conversations.
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import { useRef, useState } from 'preact/hooks';
import { newestFirst } from '../state/tree';
import { useApp, useParts, useStrings } from './context';
import { ConfirmDialog } from './Dialog';
import { Icon, IconButton } from './icons';
import { belongsToInputMethod } from './keys';
import { focusComposer } from './Page';

function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function TitleField(props: { title: string; onDone: (title: string | null) => void }): JSX.Element {
  const strings = useStrings();
  const onKey = (event: KeyboardEvent & { currentTarget: HTMLInputElement }): void => {
    if (belongsToInputMethod(event)) return;
    if (event.key === 'Enter') props.onDone(event.currentTarget.value);
    if (event.key === 'Escape') {
      event.preventDefault();
      props.onDone(null);
    }
  };
  return (
    <input
      class="title-field"
      aria-label={strings.rename}
      defaultValue={props.title}
      ref={(field) => field?.select()}
      onKeyDown={onKey}
      onBlur={(event) => props.onDone(event.currentTarget.value)}
    />
  );
}

interface ItemProps {
  id: string;
  title: string;
  current: boolean;
  onChosen: () => void;
}

const Item = memo((props: ItemProps): JSX.Element => {
  const strings = useStrings();
  const { answers, library } = useParts();
  const { id, title } = props;
  const live = useApp((state) => id in state.live);
  const [state, setState] = useState<'renaming' | 'removing' | null>(null);
  const shown = title || strings.untitled;
  const done = (next: string | null): void => {
    setState(null);
    if (next !== null) library.rename(id, next);
  };
  const choose = (): void => {
    library.select(id);
    props.onChosen();
  };
  const remove = (): void => {
    answers.stop(id);
    library.remove(id);
  };
  if (state === 'renaming')
    return (
      <li>
        <TitleField title={title} onDone={done} />
      </li>
    );
  return (
    <li class={props.current ? 'current' : ''}>
      <button
        type="button"
        class="conversation"
        aria-current={props.current ? 'page' : undefined}
        onClick={choose}
      >
        <span>{shown}</span>
        {live && <i class="pulse" aria-hidden="true" />}
      </button>
      <span class="item-actions">
        <IconButton icon="edit" label={`${strings.rename}: ${shown}`} onClick={() => setState('renaming')} />
        <IconButton
          icon="export"
          label={`${strings.exportOne}: ${shown}`}
          onClick={() => download('conversation.json', library.export(id))}
        />
        <IconButton icon="trash" label={`${strings.remove}: ${shown}`} onClick={() => setState('removing')} />
      </span>
      {state === 'removing' && (
        <ConfirmDialog
          title={strings.remove}
          question={strings.removeQuestion(shown)}
          action={strings.remove}
          onAction={remove}
          onClose={() => setState(null)}
        />
      )}
    </li>
  );
});

function Transfer(): JSX.Element {
  const strings = useStrings();
  const { library } = useParts();
  const field = useRef<HTMLInputElement>(null);
  const [told, setTold] = useState('');
  const onFile = async (input: HTMLInputElement): Promise<void> => {
    const count = library.import((await input.files?.[0]?.text()) ?? '');
    input.value = '';
    setTold(count === null ? strings.importFailed : strings.imported(count));
  };
  return (
    <footer>
      <button type="button" class="quiet" onClick={() => field.current?.click()}>
        {strings.import}
      </button>
      <button type="button" class="quiet" onClick={() => download('conversations.json', library.export(null))}>
        {strings.exportAll}
      </button>
      <input
        ref={field}
        type="file"
        accept="application/json,.json"
        hidden
        id="import-file"
        onChange={(event) => void onFile(event.currentTarget)}
      />
      <p class="hint" role="status">
        {told}
      </p>
    </footer>
  );
}

export function Sidebar(props: { open: boolean; onChosen: () => void; onClose: () => void }): JSX.Element {
  const strings = useStrings();
  const { library } = useParts();
  const conversations = useApp((state) => state.conversations);
  const currentId = useApp((state) => state.currentId);
  const begin = (): void => {
    library.select(null);
    props.onChosen();
    focusComposer();
  };
  const list = newestFirst(Object.values(conversations));
  return (
    <nav class="sidebar" aria-label={strings.conversations} inert={!props.open}>
      <header>
        <span class="brand">Fathom</span>
        <IconButton icon="list" label={strings.closeList} onClick={props.onClose} />
      </header>
      <button type="button" class="new" onClick={begin}>
        <Icon name="plus" />
        <span>{strings.newConversation}</span>
      </button>
      {list.length === 0 && <p class="hint">{strings.noConversations}</p>}
      <ul>
        {list.map(({ id, title }) => (
          <Item key={id} id={id} title={title} current={id === currentId} onChosen={props.onChosen} />
        ))}
      </ul>
      <Transfer />
    </nav>
  );
}
