// Thoughts, folded: their time is what most readers want of them.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { AnswerNode } from '../model';
import type { Live } from '../state/app';
import { useClock } from './clock';
import { useStrings } from './context';
import { formatDuration } from './format';
import { Icon } from './icons';
import { Markdown } from './Markdown';

export function Thinking({ node, live }: { node: AnswerNode; live: Live | null }): JSX.Element {
  const strings = useStrings();
  const [open, setOpen] = useState(false);
  const thinkingNow = node.status === 'streaming' && node.thinkingMs === null;
  const now = useClock(thinkingNow);
  let title = strings.thoughtUntimed;
  if (node.thinkingMs !== null) title = strings.thought(formatDuration(node.thinkingMs, strings));
  else if (thinkingNow && live?.thinkingSince != null)
    title = strings.thinkingNow(formatDuration(now - live.thinkingSince, strings));
  return (
    <div class={`thinking ${thinkingNow ? 'now' : ''}`}>
      <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
        <Icon name="thought" />
        <span>{title}</span>
        <Icon name="right" />
      </button>
      {open && (
        <div class="thoughts">
          <Markdown text={node.thinking} growing={thinkingNow} />
        </div>
      )}
    </div>
  );
}
