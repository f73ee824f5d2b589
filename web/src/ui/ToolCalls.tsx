// Calls of tools: shown as the model wrote them. Their results are typed in by the user; the page runs nothing.
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { parseJson } from '../json';
import type { AnswerNode, Conversation, ToolCall, ToolNode } from '../model';
import { wholeCalls } from '../state/answer';
import { useParts, useStrings } from './context';
import { CopyButton } from './copy';
import { Icon } from './icons';

/** Indented if it is JSON, as it came if it is not (yet). */
export function prettyArguments(text: string): string {
  const value = parseJson(text);
  return value === undefined ? text : JSON.stringify(value, null, 2);
}

function Call({ call, state }: { call: ToolCall; state: 'whole' | 'growing' | 'broken' }): JSX.Element {
  const strings = useStrings();
  const text = state === 'whole' ? prettyArguments(call.arguments) : call.arguments;
  return (
    <div class={`tool-call ${state}`}>
      <p class="tool-head">
        <Icon name="tool" />
        <span class="unseen">{strings.toolCall} </span>
        <code>{call.name}</code>
        {state === 'growing' && <span class="hint">{strings.toolWriting}</span>}
        {state === 'broken' && <span class="warning">{strings.toolIncomplete}</span>}
        <CopyButton text={text} />
      </p>
      <pre tabIndex={0}>{text}</pre>
    </div>
  );
}

export function ToolCalls(props: {
  conversation: Conversation;
  node: AnswerNode;
  last: boolean;
  busy: boolean;
}): JSX.Element | null {
  const { node } = props;
  if (node.toolCalls.length === 0) return null;
  const whole = wholeCalls(node);
  const otherwise = node.status === 'streaming' ? 'growing' : 'broken';
  return (
    <div class="tool-calls">
      {node.toolCalls.map((call, index) => (
        <Call key={index} call={call} state={whole.includes(call) ? 'whole' : otherwise} />
      ))}
      {whole.length > 0 && props.last && <ResultForm {...props} calls={whole} />}
    </div>
  );
}

function ResultForm({
  conversation,
  node,
  calls,
  busy,
}: {
  conversation: Conversation;
  node: AnswerNode;
  calls: ToolCall[];
  busy: boolean;
}): JSX.Element {
  const strings = useStrings();
  const { answers } = useParts();
  const [texts, setTexts] = useState<string[]>([]);
  const submit = (event: Event): void => {
    event.preventDefault();
    const results = calls.map((call, index) => ({ callId: call.id, text: texts[index] ?? '' }));
    answers.giveResults(conversation, node.id, results);
  };
  return (
    <form class="tool-results" onSubmit={submit}>
      {calls.map((call, index) => (
        <label class="field" key={index}>
          <span>{strings.toolResult(call.name)}</span>
          <textarea
            rows={2}
            placeholder={strings.toolResultHint}
            value={texts[index] ?? ''}
            onInput={(event) => {
              const next = calls.map((_, at) => texts[at] ?? '');
              next[index] = event.currentTarget.value;
              setTexts(next);
            }}
          />
        </label>
      ))}
      <button type="submit" class="button" disabled={busy}>
        {strings.sendResults}
      </button>
    </form>
  );
}

export function ToolResults({ conversation, node }: { conversation: Conversation; node: ToolNode }): JSX.Element {
  const strings = useStrings();
  const answer = node.parent === null ? undefined : conversation.nodes[node.parent];
  const calls = answer?.kind === 'answer' ? answer.toolCalls : [];
  return (
    <section class="turn tool">
      {node.results.map((result, index) => (
        <div class="tool-call" key={index}>
          <p class="tool-head">
            <Icon name="check" />
            <span>{strings.toolResult(calls.find((call) => call.id === result.callId)?.name ?? '')}</span>
          </p>
          <pre tabIndex={0}>{result.text}</pre>
        </div>
      ))}
    </section>
  );
}
