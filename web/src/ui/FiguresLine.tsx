// Figures of the answer that is being written, or of the last one.
import type { JSX } from 'preact';
import type { AnswerNode, ChatNode } from '../model';
import type { Live } from '../state/app';
import { useClock } from './clock';
import { useApp, useStrings } from './context';
import { formatCount, formatRate, formatTokens } from './format';

interface Shown {
  prefill: string | null;
  decode: string | null;
  cached: string | null;
  usedTokens: number | null;
}

const noFigures: Shown = { prefill: null, decode: null, cached: null, usedTokens: null };

/** Exact, as the server counted. */
function finalFigures(node: AnswerNode | undefined): Shown {
  const figures = node?.figures;
  if (!figures) return noFigures;
  return {
    prefill: figures.prefillRate === null ? null : formatRate(figures.prefillRate),
    decode: figures.decodeRate === null ? null : formatRate(figures.decodeRate),
    cached: figures.cachedTokens === null ? null : formatCount(figures.cachedTokens),
    usedTokens: figures.promptTokens + figures.completionTokens,
  };
}

function about(count: number, ms: number): string | null {
  return count < 2 || ms < 250 ? null : `≈ ${formatRate((count / ms) * 1000)}`;
}

/** Estimates from what has arrived: a chunk is about a token. `before`: tokens of the context until now. */
export function liveFigures(live: Live, before: number | null, now: number): Shown {
  const { prefill, firstTokenAt } = live;
  const prompt = prefill?.total ?? before;
  return {
    prefill: prefill && about(prefill.done - prefill.doneAtFirst, prefill.lastAt - prefill.firstAt),
    decode: firstTokenAt === null ? null : about(live.pieces, now - firstTokenAt),
    cached: null,
    usedTokens: prompt === null ? null : prompt + live.pieces,
  };
}

function Figure({ name, value }: { name: string; value: string | null }): JSX.Element | null {
  if (value === null) return null;
  return (
    <div class={`figure figure-${name}`}>
      <FigureName name={name} />
      <dd>{value}</dd>
    </div>
  );
}

function FigureName({ name }: { name: string }): JSX.Element {
  const { figures } = useStrings();
  const names: Record<string, string> = {
    prefill: figures.prefill,
    decode: figures.decode,
    cached: figures.cached,
    context: figures.context,
    queue: figures.queue,
    busy: figures.busy,
  };
  return <dt>{names[name]}</dt>;
}

export function FiguresLine({
  conversationId,
  path,
}: {
  conversationId: string | null;
  path: ChatNode[];
}): JSX.Element {
  const strings = useStrings();
  const live = useApp((state) => (conversationId === null ? null : (state.live[conversationId] ?? null)));
  const context = useApp((state) => state.server.props?.contextTokens ?? null);
  const load = useApp((state) => state.server.load);
  const now = useClock(live !== null);
  const counted = path.findLast((node): node is AnswerNode => node.kind === 'answer' && node.figures !== null);
  const last = finalFigures(counted);
  const shown = live === null ? last : liveFigures(live, last.usedTokens, now);
  const { figures } = strings;
  const used = shown.usedTokens ?? 0;
  const knowsUsed = live === null || shown.usedTokens !== null;
  const mark = live === null ? '' : '≈ ';
  return (
    <dl class="figures" aria-label={figures.title} title={figures.explain}>
      <Figure name="prefill" value={shown.prefill && figures.rate(shown.prefill)} />
      <Figure name="decode" value={shown.decode && figures.rate(shown.decode)} />
      <Figure name="cached" value={shown.cached} />
      {context !== null && knowsUsed && (
        <Figure name="context" value={figures.ofTokens(mark + formatTokens(used), formatTokens(context))} />
      )}
      {context !== null && used > 0 && (
        <meter class="context-meter" min={0} max={context} high={context * 0.85} value={used} aria-hidden="true" />
      )}
      {load !== null && load.slots > 1 && <Figure name="busy" value={figures.slots(load.busy, load.slots)} />}
      {load !== null && <Figure name="queue" value={formatCount(load.waiting)} />}
    </dl>
  );
}
