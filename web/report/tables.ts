// The tables of the report.
import { type Cell, type Data, type Metric, type Row, bySource, sourceTitle, stageTitle } from './data';
import { badge, element, scrolling } from './dom';
import * as format from './format';

function resultHeads(data: Data): HTMLElement[] {
  const width = `width: ${Math.floor(92 / data.results.length)}%`;
  return data.results.map((result, index) =>
    element('th', { scope: 'col', style: width }, badge(result.letter, index), element('span', { class: 'name' }, result.name)),
  );
}

function sourceHead(source: string, columns: number): HTMLElement {
  return element('tr', { class: 'group' }, element('th', { colspan: String(columns), scope: 'rowgroup' }, sourceTitle(source)));
}

function figureCell(cell: Cell | null, digits: number, metric: Metric): HTMLElement {
  if (cell === null) return element('td', { class: 'none' }, '–');
  const ratio = format.ratio(cell);
  return element(
    'td',
    {},
    element('div', { class: 'figure' }, format.figure(cell, digits)),
    element('div', { class: 'faint' }, format.spread(cell, digits)),
    ratio === '' ? null : element('div', { class: `ratio ${format.verdict(cell, metric.more)}` }, ratio),
  );
}

/** Stages against results: mean, spread and ratio of one figure. */
export function figureTable(data: Data, metric: Metric): HTMLElement | null {
  const rows = data.rows.filter((row) => row.metric === metric.name);
  if (rows.length === 0) return null;
  const better = metric.more ? 'more is better' : 'less is better';
  const title = `${metric.title}, ${metric.unit} (${better})`;
  const bodies = bySource(rows).map(([source, ofSource]) => {
    const digits = format.sharedDecimals(ofSource.flatMap((row) => row.cells.map((cell) => cell?.mean ?? cell?.publishedHigh ?? NaN)));
    const lines = ofSource.map((row) =>
      element('tr', {}, element('th', { scope: 'row' }, stageTitle(row.stage)), ...row.cells.map((cell) => figureCell(cell, digits, metric))),
    );
    return element('tbody', {}, sourceHead(source, data.results.length + 1), ...lines);
  });
  const head = element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'stage'), ...resultHeads(data)));
  return scrolling(title, element('table', { class: 'figures', 'data-metric': metric.name }, element('caption', {}, title), head, ...bodies));
}

const tokenMetrics = ['first_gap_1_ms', 'first_gap_2_ms', 'first_gap_3_ms', 'first_gap_4_ms', 'gap_p50_ms', 'gap_p90_ms', 'gap_p99_ms', 'gap_max_ms'];

/** The first four tokens and the percentiles of the gaps after them: means over the runs. */
export function tokenTable(data: Data): HTMLElement | null {
  const metrics = tokenMetrics.map((name) => data.metrics.find((metric) => metric.name === name)).filter((metric) => metric !== undefined);
  const rows = data.rows.filter((row) => tokenMetrics.includes(row.metric));
  if (rows.length === 0) return null;
  const digits = 1;
  const bodies = bySource(rows).map(([source, ofSource]) => {
    const lines = [...new Set(ofSource.map((row) => row.stage))].flatMap((stage) => {
      const of = (name: string, result: number): Cell | null =>
        ofSource.find((row: Row) => row.stage === stage && row.metric === name)?.cells[result] ?? null;
      const holders = data.results.flatMap((_, result) => (tokenMetrics.some((name) => of(name, result) !== null) ? [result] : []));
      return holders.map((result, order) =>
        element(
          'tr',
          { class: order === 0 ? 'first' : '' },
          element('th', { scope: 'row' }, element('span', { class: order === 0 ? 'stage' : 'stage unseen' }, stageTitle(stage)), ' ', badge(data.results[result]?.letter ?? '', result)),
          ...tokenMetrics.map((name) => {
            const cell = of(name, result);
            return cell === null ? element('td', { class: 'none' }, '–') : element('td', {}, format.figure(cell, digits));
          }),
        ),
      );
    });
    return element('tbody', {}, sourceHead(source, tokenMetrics.length + 1), ...lines);
  });
  const title = 'First tokens and gaps between later ones, ms';
  const head = element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'stage'), ...metrics.map((metric) => element('th', { scope: 'col' }, metric.title))));
  return scrolling(title, element('table', { class: 'tokens' }, element('caption', {}, title), head, ...bodies));
}

/** Whether runs of a result generated the same, and the same as the first result's. */
export function agreementTable(data: Data): HTMLElement | null {
  if (data.agreements.length === 0) return null;
  const bodies = bySource(data.agreements).map(([source, ofSource]) => {
    const lines = [...new Set(ofSource.map((one) => one.stage))].map((stage) => {
      const cells = data.results.map((_, result) => {
        const own = ofSource.filter((one) => one.stage === stage && one.result === result);
        if (own.length === 0) return element('td', { class: 'none' }, '–');
        const lineOf = (withFirst: boolean) => {
          const one = own.find((candidate) => candidate.withFirst === withFirst);
          if (one === undefined) return null;
          const isEqual = one.pairs > 0 && one.equal === one.pairs;
          const text = (withFirst ? `with ${data.results[0]?.letter}: ` : 'own runs: ') + format.agreement(one);
          return element('div', { class: one.pairs === 0 ? 'faint' : isEqual ? 'better' : 'worse' }, text);
        };
        return element('td', { class: 'text' }, lineOf(false), lineOf(true));
      });
      return element('tr', {}, element('th', { scope: 'row' }, stageTitle(stage)), ...cells);
    });
    return element('tbody', {}, sourceHead(source, data.results.length + 1), ...lines);
  });
  const title = 'Generated tokens, each pair of runs compared';
  const head = element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, 'stage'), ...resultHeads(data)));
  return scrolling(title, element('table', { class: 'agreements' }, element('caption', {}, title), head, ...bodies));
}

export function environmentTable(data: Data): HTMLElement | null {
  if (data.environment.length === 0) return null;
  const lines = data.environment.map((row) =>
    element(
      'tr',
      { class: row.differs ? 'differs' : '' },
      element('th', { scope: 'row' }, row.name, row.differs ? element('span', { class: 'mark' }, 'differs') : null),
      ...row.values.map((value) => (value === '' ? element('td', { class: 'none' }, 'not known') : element('td', { class: 'text' }, value))),
    ),
  );
  const title = 'Machines, engines and packs';
  const head = element('thead', {}, element('tr', {}, element('th', { scope: 'col' }, ''), ...resultHeads(data)));
  return scrolling(title, element('table', { class: 'environment' }, element('caption', {}, title), head, element('tbody', {}, ...lines)));
}

export function runTable(data: Data): HTMLElement | null {
  const counted = data.runs.filter((count) => count.measured > 0);
  if (counted.length === 0) return null;
  const lines = counted.map((count) =>
    element(
      'tr',
      {},
      element('th', { scope: 'row' }, badge(data.results[count.result]?.letter ?? '', count.result), ' ', sourceTitle(count.source)),
      ...[count.planned, count.measured, count.excluded, count.disturbed, count.failed].map((value) => element('td', {}, String(value))),
    ),
  );
  const title = 'Runs by result and source';
  const heads = ['', 'planned', 'measured', 'excluded', 'disturbed, kept', 'not whole'].map((text) => element('th', { scope: 'col' }, text));
  const head = element('thead', {}, element('tr', {}, ...heads));
  return scrolling(title, element('table', { class: 'runs' }, element('caption', {}, title), head, element('tbody', {}, ...lines)));
}
