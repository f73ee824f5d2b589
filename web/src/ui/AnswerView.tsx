import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { AnswerNode, Conversation } from '../model';
import { canContinue } from '../state/answer';
import type { Live } from '../state/app';
import type { Strings } from '../strings';
import { announce } from './announce';
import { useParts, useStrings } from './context';
import { CopyButton } from './copy';
import { formatCount, formatDuration, formatRate } from './format';
import { Icon, IconButton } from './icons';
import { Markdown } from './Markdown';
import { Thinking } from './Thinking';
import { ToolCalls } from './ToolCalls';
import { Versions } from './Versions';
import { Waiting } from './Waiting';

/** How the answer ended, if it is not the ordinary way; `bad` if the user should notice. */
export function endingOf(node: AnswerNode, strings: Strings): { text: string; bad: boolean } | null {
  const { ended } = strings;
  const details = node.finishDetails;
  if (node.status === 'streaming') return null;
  if (node.status === 'failed') return { text: ended.failed(node.error ?? ''), bad: true };
  if (node.status === 'stopped') return { text: ended.stopped, bad: false };
  if (node.status === 'cut') return { text: isEmpty(node) ? ended.cutEmpty : ended.cut, bad: true };
  if (details?.type === 'loop' || (details?.repeats ?? 0) > 1) {
    const sentence = details?.type === 'loop' ? ended.loop : ended.loopObserved;
    const measured = details !== null && details.period !== null && details.repeats !== null;
    return {
      text: measured ? `${sentence} (${ended.loopDetail(details.period ?? 0, details.repeats ?? 0)})` : sentence,
      bad: true,
    };
  }
  // The reason is a word that every client knows; these say what it was.
  switch (details?.type) {
    case 'context_full':
      return { text: ended.contextFull, bad: true };
    case 'time_limit':
      return { text: ended.timeLimit, bad: true };
    case 'shutdown':
      return { text: ended.shutdown, bad: true };
    case 'cancelled':
      return { text: ended.cancelled, bad: true };
  }
  switch (node.finishReason) {
    case 'stop':
      return null;
    case 'length':
      return { text: ended.length, bad: true };
    case 'tool_calls':
      return { text: ended.tools, bad: false };
    case 'content_filter':
      return { text: ended.filter, bad: true };
    default:
      return { text: ended.other(node.finishReason ?? ''), bad: true };
  }
}

function isEmpty(node: AnswerNode): boolean {
  return node.text === '' && node.thinking === '' && node.toolCalls.length === 0;
}

function Figures({ node }: { node: AnswerNode }): JSX.Element | null {
  const strings = useStrings();
  const { figures } = node;
  if (figures === null) return null;
  const parts = [
    strings.figures.tokens(formatCount(figures.completionTokens)),
    figures.decodeRate === null ? null : strings.figures.rate(formatRate(figures.decodeRate)),
    figures.queueMs !== null && figures.queueMs >= 1000
      ? strings.figures.queued(formatDuration(figures.queueMs, strings))
      : null,
  ];
  return <span class="answer-figures">{parts.filter((part) => part !== null).join(' · ')}</span>;
}

function Ending({ node, children }: { node: AnswerNode; children: ComponentChildren }): JSX.Element | null {
  const strings = useStrings();
  const ending = endingOf(node, strings);
  if (ending === null) return null;
  return (
    <p class={`ending ${ending.bad ? 'bad' : ''}`} data-status={node.status}>
      <span>{ending.text}</span>
      {children}
    </p>
  );
}

/** Says that an answer begins and how it ended, to those who do not see it. */
function useSpokenStatus(node: AnswerNode): void {
  const strings = useStrings();
  const before = useRef(node.status);
  useEffect(() => {
    if (node.status === before.current) return;
    before.current = node.status;
    const { complete, stopped, trouble, began } = strings.announce;
    const said = { streaming: began, complete, stopped, cut: trouble, failed: trouble };
    announce(said[node.status]);
  }, [node.status]);
}

export function AnswerView(props: {
  conversation: Conversation;
  node: AnswerNode;
  live: Live | null;
  busy: boolean;
  last: boolean;
}): JSX.Element {
  const strings = useStrings();
  const { answers } = useParts();
  const { conversation, node, live } = props;
  const growing = node.status === 'streaming';
  const mayContinue = props.last && canContinue(node);
  useSpokenStatus(node);
  return (
    <section class="turn answer" aria-label={strings.answer} aria-busy={growing} data-status={node.status}>
      {(node.thinking !== '' || live?.thinkingSince != null) && <Thinking node={node} live={live} />}
      {node.text !== '' && <Markdown text={node.text} growing={growing} />}
      {growing && live !== null && <Waiting node={node} live={live} />}
      <ToolCalls conversation={conversation} node={node} last={props.last} busy={props.busy} />
      {!growing && (
        <>
          <Ending node={node}>
            {mayContinue && (
              <button
                type="button"
                class="button"
                disabled={props.busy}
                onClick={() => answers.goOn(conversation, node.id)}
              >
                <Icon name="forward" />
                {strings.goOn}
              </button>
            )}
          </Ending>
          <div class="actions">
            <Versions conversation={conversation} node={node} busy={props.busy} />
            <CopyButton text={node.text} />
            <IconButton
              icon="retry"
              label={strings.retry}
              disabled={props.busy}
              onClick={() => answers.retry(conversation, node.id)}
            />
            <Figures node={node} />
          </div>
        </>
      )}
    </section>
  );
}
