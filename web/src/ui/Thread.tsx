// The shown branch of a conversation.
import type { JSX } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useRef } from 'preact/hooks';
import type { ChatNode, Conversation } from '../model';
import { AnswerView } from './AnswerView';
import { useApp, useStrings } from './context';
import { Icon } from './icons';
import { useFollowing } from './scroll';
import { ToolResults } from './ToolCalls';
import { UserMessage } from './UserMessage';

/** A turn looks the same until its own node changes; the conversation around it changes with every frame. */
function sameTurn(before: object, after: object): boolean {
  const now = new Map<string, unknown>(Object.entries(after));
  return Object.entries(before).every(
    ([name, value]) => name === 'conversation' || Object.is(value, now.get(name)),
  );
}

const Question = memo(UserMessage, sameTurn);
const Answer = memo(AnswerView, sameTurn);

export function Thread(props: {
  conversation: Conversation;
  path: ChatNode[];
  editing: string | null;
  onEdit: (nodeId: string | null) => void;
}): JSX.Element {
  const strings = useStrings();
  const { conversation, path } = props;
  const live = useApp((state) => state.live[conversation.id] ?? null);
  const { viewport, content, away, toEnd } = useFollowing();

  // Whoever asks wants to see the answer, wherever the page was scrolled to.
  const asked = useRef(live?.answerId ?? null);
  useEffect(() => {
    if (live !== null && live.answerId !== asked.current) toEnd();
    asked.current = live?.answerId ?? null;
  }, [live?.answerId]);

  return (
    <div class="thread-frame">
      <div class="thread" ref={viewport} tabIndex={-1}>
        <div class="thread-inner" ref={content}>
          {path.map((node) => {
            if (node.kind === 'user') {
              const edited = props.editing === node.id;
              return (
                <Question
                  key={node.id}
                  conversation={conversation}
                  node={node}
                  busy={live !== null}
                  editing={edited}
                  onEdit={props.onEdit}
                />
              );
            }
            if (node.kind === 'tool') return <ToolResults key={node.id} conversation={conversation} node={node} />;
            const own = live?.answerId === node.id ? live : null;
            return (
              <Answer
                key={node.id}
                conversation={conversation}
                node={node}
                live={own}
                busy={live !== null}
                last={node.id === conversation.leaf}
              />
            );
          })}
        </div>
      </div>
      {away && (
        <button
          type="button"
          class="to-latest"
          aria-label={strings.toLatest}
          title={strings.toLatest}
          onClick={toEnd}
        >
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}
