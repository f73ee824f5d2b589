import type { JSX } from 'preact';
import { useStrings } from './context';
import { Dialog } from './Dialog';

const rows = [
  ['send', ['Enter']],
  ['newline', ['Shift', 'Enter']],
  ['stop', ['Esc']],
  ['editLast', ['↑']],
  ['new', ['Alt', 'N']],
  ['list', ['Alt', 'B']],
  ['settings', ['Alt', 'S']],
  ['write', ['Alt', 'I']],
  ['copy', ['Alt', 'C']],
  ['help', ['Alt', 'K']],
] as const;

export function HelpDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const strings = useStrings();
  return (
    <Dialog title={strings.shortcuts} class="small" onClose={onClose}>
      <dl class="shortcuts">
        {rows.map(([name, keys]) => (
          <div key={name}>
            <dt>{strings.shortcutNames[name]}</dt>
            <dd>
              {keys.map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
