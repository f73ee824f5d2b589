// The field in which a message is written.
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useApp, useParts, useStrings } from './context';
import { IconButton } from './icons';
import { imageFiles, readImage } from './images';
import { composerAction } from './keys';
import { growToFit, isTouch } from './textarea';

interface Draft {
  text: string;
  images: string[];
}

/** What was written and not sent, by conversation: looking at another one loses nothing. */
const drafts = new Map<string, Draft>();
const noDraft: Draft = { text: '', images: [] };

function useImages(
  draft: Draft,
  add: (urls: string[]) => void,
): { problem: string; take: (files: File[]) => void } {
  const strings = useStrings();
  const [problem, setProblem] = useState('');
  const take = (files: File[]): void => {
    void Promise.all(files.map((file) => readImage(file, strings))).then((results) => {
      setProblem(
        results
          .map((result) => ('problem' in result ? result.problem : ''))
          .join(' ')
          .trim(),
      );
      add(results.flatMap((result) => ('url' in result ? [result.url] : [])));
    });
  };
  useEffect(() => {
    if (draft === noDraft) setProblem('');
  }, [draft]);
  return { problem, take };
}

/** Files dropped anywhere on the page are meant for the message. */
function useDrop(enabled: boolean, take: (files: File[]) => void): boolean {
  const [over, setOver] = useState(false);
  const latest = useRef(take);
  latest.current = take;
  useEffect(() => {
    if (!enabled) return undefined;
    const onOver = (event: DragEvent): void => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      setOver(true);
    };
    const onLeave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const onDrop = (event: DragEvent): void => {
      setOver(false);
      const files = imageFiles(event.dataTransfer);
      if (files.length === 0) return;
      event.preventDefault();
      latest.current(files);
    };
    document.addEventListener('dragover', onOver);
    document.addEventListener('dragleave', onLeave);
    document.addEventListener('drop', onDrop);
    return () => {
      document.removeEventListener('dragover', onOver);
      document.removeEventListener('dragleave', onLeave);
      document.removeEventListener('drop', onDrop);
    };
  }, [enabled]);
  return over;
}

export function Composer(props: { conversationId: string | null; onEditLast: () => void }): JSX.Element {
  const strings = useStrings();
  const { answers } = useParts();
  const name = props.conversationId ?? '';
  const live = useApp((state) => state.live[name] ?? null);
  const vision = useApp((state) => state.server.props?.hasVision === true);
  const [draft, setDraft] = useState(() => drafts.get(name) ?? noDraft);
  const field = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const change = (next: Draft): void => {
    drafts.set(name, next);
    setDraft(next);
  };
  const { problem, take } = useImages(draft, (urls) =>
    change({ ...(drafts.get(name) ?? draft), images: [...draft.images, ...urls] }),
  );
  const over = useDrop(vision, take);
  const empty = draft.text.trim() === '' && draft.images.length === 0;

  useEffect(() => growToFit(field.current), [draft.text]);
  useEffect(() => {
    if (!isTouch()) field.current?.focus();
  }, []);

  const send = (): void => {
    if (empty || live !== null) return;
    change(noDraft);
    answers.send(draft.text.trim(), draft.images);
    field.current?.focus();
  };
  const onKey = (event: KeyboardEvent): void => {
    const action = composerAction(event, draft.text === '', isTouch());
    if (action === 'send' || action === 'edit-last') event.preventDefault();
    if (action === 'send') send();
    if (action === 'edit-last') props.onEditLast();
  };
  const onPaste = (event: ClipboardEvent): void => {
    const files = vision ? imageFiles(event.clipboardData) : [];
    if (files.length === 0) return;
    event.preventDefault();
    take(files);
  };
  const drop = (index: number): void => change({ ...draft, images: draft.images.filter((_, at) => at !== index) });

  return (
    <div class={`composer ${over ? 'over' : ''}`}>
      {over && <p class="drop-note">{strings.dropHere}</p>}
      {draft.images.length > 0 && (
        <ul class="images">
          {draft.images.map((url, index) => (
            <li key={index}>
              <img src={url} alt={strings.image(index + 1)} />
              <IconButton icon="close" label={strings.removeImage} onClick={() => drop(index)} />
            </li>
          ))}
        </ul>
      )}
      {problem !== '' && (
        <p class="warning" role="alert">
          {problem}
        </p>
      )}
      <div class="composer-row">
        {vision && <IconButton icon="image" label={strings.attach} onClick={() => file.current?.click()} />}
        <textarea
          id="composer"
          ref={field}
          rows={1}
          placeholder={strings.write}
          aria-label={strings.write}
          aria-describedby="composer-hint"
          value={draft.text}
          onInput={(event) => change({ ...draft, text: event.currentTarget.value })}
          onKeyDown={onKey}
          onPaste={onPaste}
        />
        {live === null ? (
          <IconButton icon="send" class="main" id="send" label={strings.send} disabled={empty} onClick={send} />
        ) : (
          <IconButton
            icon="stop"
            class="main"
            id="stop"
            label={strings.stop}
            disabled={live.stopping}
            onClick={() => answers.stop(name)}
          />
        )}
      </div>
      <span id="composer-hint" class="unseen">
        {isTouch() ? strings.writeHintTouch : strings.writeHint}
      </span>
      <input
        ref={file}
        id="image-file"
        type="file"
        accept="image/*"
        multiple
        hidden
        onChange={(event) => {
          take([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = '';
        }}
      />
    </div>
  );
}
