// The page as a whole: theme, language, shortcuts, which dialog is open.
import type { JSX } from 'preact';
import { useCallback, useEffect, useMemo, useState } from 'preact/hooks';
import { useStore } from '../state/store';
import { languageFor, languages } from '../strings';
import { Announcer } from './announce';
import { Chat } from './Chat';
import { PartsContext, StringsContext, type Parts } from './context';
import { copyText } from './copy';
import { HelpDialog } from './HelpDialog';
import { KeyDialog } from './KeyDialog';
import { shortcutOf, type Shortcut } from './keys';
import { SettingsDialog } from './SettingsDialog';
import { Sidebar } from './Sidebar';
import { pathTo } from '../state/tree';

export type Panel = 'settings' | 'help' | null;

const narrow = matchMedia('(max-width: 760px)');

function lastAnswerText(parts: Parts): string | null {
  const conversation = parts.app.current();
  const answer =
    conversation && pathTo(conversation, conversation.leaf).findLast((node) => node.kind === 'answer');
  return answer?.kind === 'answer' ? answer.text : null;
}

export function focusComposer(): void {
  document.getElementById('composer')?.focus();
}

export function Page({ parts }: { parts: Parts }): JSX.Element {
  const { theme, language } = useStore(parts.app.store, (state) => state.preferences);
  const needsKey = useStore(parts.app.store, (state) => state.server.needsKey);
  const [panel, setPanel] = useState<Panel>(null);
  const [listOpen, setListOpen] = useState(!narrow.matches);
  const tag = languageFor(language, navigator.languages);

  useEffect(() => {
    document.documentElement.lang = tag;
    if (theme === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme;
  }, [theme, tag]);

  const act = useCallback(
    (shortcut: Shortcut): void => {
      const { currentId } = parts.app.state;
      if (shortcut === 'stop' && currentId !== null) parts.answers.stop(currentId);
      if (shortcut === 'new') parts.library.select(null);
      if (shortcut === 'new' || shortcut === 'write') focusComposer();
      if (shortcut === 'list') setListOpen((open) => !open);
      if (shortcut === 'settings' || shortcut === 'help') setPanel(shortcut);
      if (shortcut === 'copy') void copyText(lastAnswerText(parts) ?? '');
    },
    [parts],
  );

  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      // A dialog closes by its own Escape, and nothing beneath it acts.
      if (event.defaultPrevented || document.querySelector('dialog[open]') !== null) return;
      const shortcut = shortcutOf(event);
      if (shortcut === null) return;
      event.preventDefault();
      if (shortcut === 'stop' && narrow.matches) setListOpen(false);
      act(shortcut);
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, [act]);

  const closeDrawer = useCallback((): void => {
    if (narrow.matches) setListOpen(false);
  }, []);
  const close = useCallback(() => setPanel(null), []);
  const strings = useMemo(() => languages[tag], [tag]);
  return (
    <PartsContext.Provider value={parts}>
      <StringsContext.Provider value={strings}>
        <div class={`page ${listOpen ? 'list-open' : ''}`}>
          <Sidebar open={listOpen} onChosen={closeDrawer} onClose={() => setListOpen(false)} />
          {listOpen && <div class="shade" onClick={closeDrawer} />}
          <Chat listOpen={listOpen} onList={() => setListOpen(true)} onPanel={setPanel} />
        </div>
        {panel === 'settings' && <SettingsDialog onClose={close} />}
        {panel === 'help' && <HelpDialog onClose={close} />}
        {needsKey && <KeyDialog />}
        <Announcer />
      </StringsContext.Provider>
    </PartsContext.Provider>
  );
}
