// A comparison of bench results, from the data that the program put into the page.
import 'uplot/dist/uPlot.min.css';
import './report.css';
import { Chart, type Scales } from './charts';
import { type Data, type Result, sourceTitle } from './data';
import { badge, element, section } from './dom';
import * as format from './format';
import { agreementTable, environmentTable, figureTable, runTable, tokenTable } from './tables';

const paperWidth = 660; // of A4 with its margins, in CSS pixels

function linked(text: string): (Node | string)[] {
  return format.linkPieces(text).map((piece) =>
    piece.href === undefined ? piece.text : element('a', { href: piece.href, rel: 'noreferrer noopener', target: '_blank' }, piece.text),
  );
}

function card(result: Result, index: number): HTMLElement {
  const machine = [result.machine, result.cpu, result.gpu].filter((part) => part !== undefined).join(', ');
  const facts: [string, string | undefined][] = [
    ['machine', machine === '' ? undefined : machine],
    ['engine', result.engine],
    ['settings', result.details],
    ['pack', result.pack],
    ['prompts', result.variant === undefined ? undefined : format.variant(result.variant)],
    ['measured', result.created === undefined ? undefined : format.time(result.created)],
  ];
  const list = facts.flatMap(([name, value]) => (value === undefined ? [] : [element('dt', {}, name), element('dd', {}, value)]));
  return element(
    'li',
    { class: 'card' },
    element('h3', {}, badge(result.letter, index), element('span', { class: 'name' }, result.name), result.kind === 'published' ? element('span', { class: 'mark' }, 'published') : null),
    element('dl', {}, ...list),
    result.origin === undefined ? null : element('p', { class: 'origin' }, ...linked(result.origin)),
    result.remarks.length === 0
      ? null
      : element('details', {}, element('summary', {}, `${result.remarks.length} ${result.remarks.length === 1 ? 'remark' : 'remarks'}`), element('ul', {}, ...result.remarks.map((remark) => element('li', {}, ...linked(remark))))),
  );
}

function warnings(data: Data): HTMLElement | null {
  if (data.warnings.length === 0) return null;
  const items = data.warnings.map((warning) =>
    element('li', {}, element('span', { class: 'badges' }, ...warning.results.map((index) => badge(data.results[index]?.letter ?? '', index))), element('span', {}, warning.text)),
  );
  const title = data.results.length > 1 ? 'Before comparing' : 'Before using these figures';
  return element('section', { class: 'warnings', 'aria-labelledby': 'warnings-title' }, element('h2', { id: 'warnings-title' }, title), element('ul', {}, ...items));
}

/** Buttons of which one is chosen. */
function choice(label: string, options: string[], chosen: number, choose: (index: number) => void): HTMLElement {
  const buttons = options.map((text, index) => element('button', { type: 'button', 'aria-pressed': String(index === chosen) }, text));
  buttons.forEach((button, index) =>
    button.addEventListener('click', () => {
      buttons.forEach((other) => other.setAttribute('aria-pressed', String(other === button)));
      choose(index);
    }),
  );
  return element('div', { class: 'choice', role: 'group', 'aria-label': label }, element('span', {}, label), ...buttons);
}

function cellsOf(data: Data, metric: string): number {
  return data.rows.filter((row) => row.metric === metric && row.context > 0).reduce((sum, row) => sum + row.cells.filter((cell) => cell !== null).length, 0);
}

function charts(data: Data): { node: HTMLElement | null; all: Chart[] } {
  const scales: Scales = { contextIsLog: true, speedIsLog: false };
  const formulas = ['generation_f1_tokens_per_s', 'generation_f2_tokens_per_s'].filter((name) => cellsOf(data, name) > 0);
  const groups = [['prefill_tokens_per_s'].filter((name) => cellsOf(data, name) > 0), formulas].filter((group) => group.length > 0);
  const shown = groups.map((group) => ({ metric: group.reduce((best, name) => (cellsOf(data, name) > cellsOf(data, best) ? name : best)) }));
  const all = shown.map(({ metric }) => new Chart(data, metric, scales));
  if (all.length === 0) return { node: null, all };
  const redraw = () => all.forEach((chart, index) => chart.show(shown[index]?.metric ?? '', { ...scales }));
  const figures = groups.map((group, index) => {
    // In words too: on paper there are no buttons.
    const caption = element('span');
    const entitle = (name: string) => {
      caption.textContent = `${data.metrics.find((metric) => metric.name === name)?.title ?? name}, tokens/s against context`;
    };
    entitle(shown[index]?.metric ?? '');
    const pick = (name: string) => {
      const one = shown[index];
      if (one !== undefined) one.metric = name;
      entitle(name);
      redraw();
    };
    const chooser = group.length < 2 ? null : choice('formula', ['F1', 'F2'], group.indexOf(shown[index]?.metric ?? ''), (chosen) => pick(group[chosen] ?? ''));
    return element('figure', {}, element('figcaption', {}, caption, chooser), all[index]?.node ?? null);
  });
  const controls = element(
    'div',
    { class: 'controls' },
    choice('context', ['log', 'linear'], 0, (index) => {
      scales.contextIsLog = index === 0;
      redraw();
    }),
    choice('speed', ['from 0', 'log'], 0, (index) => {
      scales.speedIsLog = index === 1;
      redraw();
    }),
  );
  const hint = element('p', { class: 'hint' }, 'Bars are the 95 % interval of the mean where there are two runs or more; thick bars are ranges of a publication. Arrow keys move along a chart.');
  return { node: section('charts', 'Speed', controls, element('div', { class: 'figures-row' }, ...figures), hint), all };
}

function notes(data: Data): HTMLElement | null {
  if (data.notes.length === 0) return null;
  const items = data.notes.map((note) => {
    const state = [note.excluded ? 'excluded' : '', note.disturbed ? 'disturbed' : ''].filter((word) => word !== '').join(', ');
    const head = `${sourceTitle(note.source)}, run ${note.number}${note.begun === '' ? '' : `, ${format.time(note.begun)}`}${state === '' ? '' : ` (${state})`}`;
    return element('li', {}, badge(data.results[note.result]?.letter ?? '', note.result), ' ', head, element('ul', {}, ...note.reasons.map((reason) => element('li', {}, reason))));
  });
  return element('ul', { class: 'notes' }, ...items);
}

function explanations(data: Data): HTMLElement {
  const letter = data.results[0]?.letter ?? '';
  const texts = [
    'Prefill: evaluated tokens / (sent to first token). Generation F1: n / (end of prefill to last token). Generation F2: (n − 1) / (first to last token).',
    'A figure is the mean of the runs that are not excluded; ± is the standard deviation (n − 1), the percentage its share of the mean, n the number of runs.',
    `× is the ratio to ${letter}; in brackets its 95 % interval by Fieller’s theorem with Welch’s degrees of freedom. Coloured where the interval leaves out 1.`,
    'The first four gaps begin with the one from the end of prefill to the first token. Percentiles are of the gaps after those, by linear interpolation.',
    'A stage’s prompt holds the outputs of the stages before it: where outputs part, later stages answer other prompts and are not compared.',
  ];
  return section('method', 'How to read this', element('ul', { class: 'method' }, ...texts.map((text) => element('li', {}, text))));
}

function filled(id: string, title: string, parts: (HTMLElement | null)[]): HTMLElement | null {
  return parts.every((part) => part === null) ? null : section(id, title, ...parts);
}

function render(data: Data, root: HTMLElement): Chart[] {
  document.title = `Bench report: ${data.results.map((result) => result.name).join(', ')}`;
  const { node: chartSection, all } = charts(data);
  const main = ['prefill_tokens_per_s', 'first_token_s', 'generation_f1_tokens_per_s', 'generation_f2_tokens_per_s', 'total_s'];
  const tables = data.metrics.filter((metric) => main.includes(metric.name)).map((metric) => figureTable(data, metric));
  const sections = [
    chartSection,
    filled('figures', 'Figures', tables),
    filled('tokens', 'Tokens', [tokenTable(data)]),
    filled('outputs', 'Outputs', [agreementTable(data)]),
    filled('environment', 'Environment', [environmentTable(data)]),
    filled('runs', 'Runs', [runTable(data), notes(data)]),
    explanations(data),
  ].filter((part) => part !== null);
  const links = sections.map((part) => element('a', { href: `#${part.id}` }, part.querySelector('h2')?.textContent ?? ''));
  root.replaceChildren(
    element('header', {}, element('p', { class: 'brand' }, 'Fathom'), element('h1', {}, 'Bench report'), element('ul', { class: 'cards' }, ...data.results.map(card))),
    ...[warnings(data)].filter((part) => part !== null),
    element('nav', { 'aria-label': 'Parts of the report' }, ...links),
    ...sections,
  );
  return all;
}

const data = JSON.parse(document.getElementById('data')?.textContent ?? '{}') as Data;
const root = document.getElementById('report');
if (root !== null) {
  const all = render(data, root);
  all.forEach((chart) => chart.start());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => all.forEach((chart) => chart.redraw(null)));
  // Paper is white and has one width.
  addEventListener('beforeprint', () => {
    document.documentElement.dataset.theme = 'light';
    document.querySelectorAll('details').forEach((details) => (details.open = true));
    all.forEach((chart) => chart.redraw(paperWidth));
  });
  addEventListener('afterprint', () => {
    delete document.documentElement.dataset.theme;
    all.forEach((chart) => chart.redraw(null));
  });
}
