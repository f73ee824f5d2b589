// The live region: what screen readers say without being asked.
import type { JSX } from 'preact';
import { Store, useStore } from '../state/store';

const spoken = new Store<{ text: string; count: number }>({ text: '', count: 0 });

export function announce(text: string): void {
  spoken.update(({ count }) => ({ text, count: count + 1 }));
}

/** The same text twice must be said twice: each comes in an element of its own. */
export function Announcer(): JSX.Element {
  const { text, count } = useStore(spoken, (value) => value);
  return (
    <div class="unseen" role="status" aria-live="polite" aria-atomic="true" id="announcer">
      <span key={count}>{text}</span>
    </div>
  );
}
