// What the server does while no text comes.
import type { JSX } from 'preact';
import type { AnswerNode } from '../model';
import type { Live } from '../state/app';
import { useApp, useStrings } from './context';
import { formatCount } from './format';

export function Waiting({ node, live }: { node: AnswerNode; live: Live }): JSX.Element | null {
  const strings = useStrings();
  const waiting = useApp((state) => state.server.load?.waiting ?? 0);
  if (live.stopping)
    return (
      <p class="waiting">
        <span>{strings.stopping}</span>
      </p>
    );
  if (live.firstTokenAt !== null || node.toolCalls.length > 0) return null;
  if (live.prefill !== null) {
    const { done, total } = live.prefill;
    return (
      <p class="waiting">
        <span>{strings.reading(formatCount(done), formatCount(total))}</span>
        <progress
          max={Math.max(1, total)}
          value={done}
          aria-label={strings.reading(formatCount(done), formatCount(total))}
        />
      </p>
    );
  }
  return (
    <p class="waiting">
      <i class="pulse" aria-hidden="true" />
      <span>{waiting > 0 ? strings.waitingBehind(waiting) : strings.waiting}</span>
    </p>
  );
}
