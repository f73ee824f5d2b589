import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { useParts, useStrings } from './context';
import { Dialog } from './Dialog';

export function KeyDialog(): JSX.Element {
  const strings = useStrings();
  const { app, answers, watch } = useParts();
  const [key, setKey] = useState('');
  const submit = (event: Event): void => {
    event.preventDefault();
    app.setKey(key.trim());
    watch.look();
    answers.resume();
  };
  return (
    <Dialog title={strings.keyTitle} class="small" onClose={null}>
      <form onSubmit={submit}>
        <label class="field">
          <span>{strings.keyLabel}</span>
          <input
            type="password"
            autocomplete="off"
            spellcheck={false}
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
          />
        </label>
        {app.client.key !== '' && (
          <p class="warning" role="alert">
            {strings.keyWrong}
          </p>
        )}
        <p class="hint">{strings.keyHint}</p>
        <div class="buttons">
          <button type="submit" class="button primary" disabled={key.trim() === ''}>
            {strings.ok}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
