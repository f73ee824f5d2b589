// Speed against context: one line a result and source, with the 95 % interval of each mean.
import uPlot from 'uplot';
import { type Cell, type Data, sourceTitle } from './data';
import { element } from './dom';
import * as format from './format';

export interface Scales {
  contextIsLog: boolean;
  speedIsLog: boolean;
}

interface Line {
  result: number;
  label: string;
  dash: number[];
  cells: (Cell | null)[]; // [contexts]
}

const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const height = () => (window.innerWidth < 600 ? 250 : 320);

function linesOf(data: Data, metric: string): { contexts: number[]; lines: Line[] } {
  const rows = data.rows.filter((row) => row.metric === metric && row.context > 0);
  const contexts = [...new Set(rows.map((row) => row.context))].sort((a, b) => a - b);
  const sources = [...new Set(rows.map((row) => row.source))];
  const lines: Line[] = [];
  data.results.forEach((result, index) => {
    sources.forEach((source, order) => {
      const cells = contexts.map((context) => {
        const row = rows.find((one) => one.source === source && one.context === context && !one.stage.endsWith(' alone'));
        return row?.cells[index] ?? null;
      });
      if (cells.every((cell) => cell === null)) return;
      const label = `${result.letter} ${sourceTitle(source)}`;
      lines.push({ result: index, label, dash: dashes[order % dashes.length] ?? [], cells });
    });
  });
  return { contexts, lines };
}

/** Ends of the bar of a cell: the interval of its mean, or what a publication gives. */
function ends(cell: Cell): [number, number] | null {
  if (cell.low !== undefined && cell.high !== undefined) return [cell.low, cell.high];
  if (cell.publishedLow !== undefined && cell.publishedHigh !== undefined) return [cell.publishedLow, cell.publishedHigh];
  return null;
}

/** 1, 2 and 5 times the powers of ten between two values. */
export function logTicks(low: number, high: number): number[] {
  const ticks: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const step of [1, 2, 5]) ticks.push(step * 10 ** power);
  return ticks.filter((tick) => tick >= low && tick <= high);
}

/** Leaves out ticks that would touch the one before. */
export function spacedTicks(ticks: number[], position: (tick: number) => number, apart: number): number[] {
  const kept: number[] = [];
  for (const tick of ticks) {
    const last = kept.at(-1);
    if (last === undefined || Math.abs(position(tick) - position(last)) >= apart) kept.push(tick);
  }
  return kept;
}

function color(name: string): string {
  const probe = element('span', { style: `color: var(${name})` });
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

export class Chart {
  readonly node: HTMLElement;
  private plot: uPlot | null = null;
  private readonly stage = element('div', { class: 'plot', tabindex: '0', role: 'img' });
  private readonly tip = element('div', { class: 'tip', hidden: true });
  private readonly legend = element('div', { class: 'legend' });
  private contexts: number[] = [];
  private lines: Line[] = [];
  private readonly hidden = new Set<string>();
  private printWidth: number | null = null;

  constructor(
    private readonly data: Data,
    private metric: string,
    private scales: Scales,
  ) {
    this.stage.append(this.tip);
    this.node = element('div', { class: 'chart' }, this.stage, this.legend);
    this.stage.addEventListener('keydown', (event) => this.step(event));
    this.stage.addEventListener('blur', () => this.plot?.setCursor({ left: -10, top: -10 }));
    this.read();
  }

  /** To be called once the node is in the page, whose width it takes. */
  start(): void {
    this.draw();
    let width = this.stage.clientWidth;
    new ResizeObserver(() => {
      if (this.printWidth !== null || this.stage.clientWidth === width) return;
      width = this.stage.clientWidth;
      this.draw();
    }).observe(this.stage);
  }

  show(metric: string, scales: Scales): void {
    this.metric = metric;
    this.scales = scales;
    this.read();
    this.draw();
  }

  /** Width on paper, or null for the screen's. */
  redraw(printWidth: number | null): void {
    this.printWidth = printWidth;
    this.draw();
  }

  private read(): void {
    ({ contexts: this.contexts, lines: this.lines } = linesOf(this.data, this.metric));
    const unit = this.unit();
    const spoken = this.lines.map((line) => `${line.label}: ${this.spoken(line)}`).join('. ');
    this.stage.setAttribute('aria-label', `${unit.title} in ${unit.unit} against context. ${spoken}`);
    this.legend.replaceChildren(...this.lines.map((line, index) => this.legendButton(line, index)));
  }

  private unit() {
    return this.data.metrics.find((metric) => metric.name === this.metric) ?? { title: this.metric, unit: '' };
  }

  private spoken(line: Line): string {
    const parts = line.cells.map((cell, index) => {
      const figure = cell === null ? '' : format.figure(cell, this.digits());
      return figure === '' ? '' : `${format.context(this.contexts[index] ?? 0)} ${figure}`;
    });
    return parts.filter((part) => part !== '').join(', ');
  }

  private digits(): number {
    return format.sharedDecimals(this.lines.flatMap((line) => line.cells.map((cell) => cell?.mean ?? cell?.publishedHigh ?? NaN)));
  }

  private legendButton(line: Line, index: number): HTMLElement {
    const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    svg.setAttribute('viewBox', '0 0 28 10');
    svg.setAttribute('aria-hidden', 'true');
    svg.setAttribute('class', `line-${line.result % 8}`);
    const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
    path.setAttribute('d', 'M1 5h26');
    path.setAttribute('stroke-dasharray', line.dash.join(' '));
    svg.append(path);
    const button = element('button', { type: 'button', 'aria-pressed': String(!this.hidden.has(line.label)) }, svg, line.label);
    button.addEventListener('click', () => {
      const isShown = this.hidden.has(line.label);
      if (isShown) this.hidden.delete(line.label);
      else this.hidden.add(line.label);
      button.setAttribute('aria-pressed', String(isShown));
      this.plot?.setSeries(index + 1, { show: isShown });
    });
    return button;
  }

  private shown(): Line[] {
    return this.lines.filter((line) => !this.hidden.has(line.label));
  }

  private speedRange(): [number, number] {
    const values = this.shown().flatMap((line) =>
      line.cells.flatMap((cell) => (cell === null ? [] : [...(cell.mean === undefined ? [] : [cell.mean]), ...(ends(cell) ?? [])])),
    );
    const largest = Math.max(...values.filter(Number.isFinite), 0);
    if (!this.scales.speedIsLog) return [0, largest === 0 ? 1 : largest * 1.08];
    const smallest = Math.min(...values.filter((value) => value > 0));
    if (!Number.isFinite(smallest)) return [1, 10];
    return [smallest / 1.25, largest * 1.25];
  }

  private contextRange(): [number, number] {
    const first = this.contexts[0] ?? 1;
    const last = this.contexts.at(-1) ?? 1;
    if (this.scales.contextIsLog) return [first / 1.2, last * 1.2];
    const pad = Math.max(last - first, first * 0.2) * 0.05;
    return [Math.max(0, first - pad), last + pad];
  }

  private draw(): void {
    this.plot?.destroy();
    const width = this.printWidth ?? this.stage.clientWidth;
    if (width === 0 || this.contexts.length === 0) return;
    const ink = color('--soft');
    const line = color('--line');
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: ink, font, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 } };
    const keep = (_: uPlot, splits: number[]) => splits;
    const options: uPlot.Options = {
      width,
      height: height(),
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, y: false, points: { size: 9 } },
      scales: {
        x: { time: false, distr: this.scales.contextIsLog ? 3 : 1, log: 2, range: () => this.contextRange() },
        y: { distr: this.scales.speedIsLog ? 3 : 1, range: () => this.speedRange() },
      },
      axes: [
        {
          ...axis,
          size: 30,
          filter: keep,
          splits: (plot) => spacedTicks(this.contexts, (tick) => plot.valToPos(tick, 'x'), 38),
          values: (_, splits) => splits.map(format.context),
        },
        {
          ...axis,
          size: 56,
          filter: keep,
          ...(this.scales.speedIsLog ? { splits: (_plot: uPlot, _axis: number, low: number, high: number) => logTicks(low, high) } : {}),
          values: (_, splits) => splits.map((value) => format.number(value, Number.isInteger(value) ? 0 : format.decimals(value))),
        },
      ],
      series: [
        {},
        ...this.lines.map((one) => ({
          label: one.label,
          show: !this.hidden.has(one.label),
          stroke: color(`--line-${one.result % 8}`),
          width: 2,
          dash: one.dash,
          spanGaps: true,
          points: { show: true, size: 7, fill: color('--paper'), width: 2 },
        })),
      ],
      hooks: { draw: [(plot) => this.drawBars(plot)], setCursor: [(plot) => this.showTip(plot)] },
    };
    const values = this.lines.map((one) => one.cells.map((cell) => cell?.mean ?? null));
    this.plot = new uPlot(options, [this.contexts, ...values], this.stage);
    this.stage.append(this.tip);
  }

  private drawBars(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const scale = window.devicePixelRatio;
    const cap = 4 * scale;
    this.lines.forEach((one) => {
      if (this.hidden.has(one.label)) return;
      ctx.strokeStyle = color(`--line-${one.result % 8}`);
      one.cells.forEach((cell, index) => {
        const bar = cell === null ? null : ends(cell);
        if (bar === null) return;
        // A range without a middle has no point: it is drawn as what is known.
        ctx.lineWidth = (cell?.mean === undefined ? 3 : 1.25) * scale;
        const x = plot.valToPos(this.contexts[index] ?? 0, 'x', true);
        const [low, high] = bar.map((value) => plot.valToPos(Math.max(value, this.scales.speedIsLog ? 1e-9 : -1e9), 'y', true));
        if (low === undefined || high === undefined) return;
        ctx.beginPath();
        ctx.moveTo(x, low);
        ctx.lineTo(x, high);
        // Caps inside of the point would only fill it.
        for (const end of Math.abs(low - high) > 8 * scale ? [low, high] : []) {
          ctx.moveTo(x - cap, end);
          ctx.lineTo(x + cap, end);
        }
        ctx.stroke();
      });
    });
    ctx.restore();
  }

  private step(event: KeyboardEvent): void {
    const plot = this.plot;
    if (plot === null) return;
    if (event.key === 'Escape') plot.setCursor({ left: -10, top: -10 });
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const from = plot.cursor.idx ?? (by > 0 ? -1 : this.contexts.length);
    const index = Math.min(this.contexts.length - 1, Math.max(0, from + by));
    plot.setCursor({ left: plot.valToPos(this.contexts[index] ?? 0, 'x'), top: 10 });
  }

  private showTip(plot: uPlot): void {
    const index = plot.cursor.idx;
    const left = plot.cursor.left ?? -10;
    if (index === null || index === undefined || left < 0) {
      this.tip.hidden = true;
      return;
    }
    const digits = this.digits();
    const at = this.shown()
      .map((line) => ({ line, cell: line.cells[index] ?? null }))
      .filter((one): one is { line: Line; cell: Cell } => one.cell !== null)
      .sort((a, b) => (b.cell.mean ?? b.cell.publishedHigh ?? 0) - (a.cell.mean ?? a.cell.publishedHigh ?? 0));
    this.tip.replaceChildren(
      element('strong', {}, `${format.context(this.contexts[index] ?? 0)}, ${this.unit().unit}`),
      ...at.map(({ line, cell }) =>
        element('div', {}, element('span', { class: `dot line-${line.result % 8}` }), element('span', {}, line.label), element('span', { class: 'value' }, format.figure(cell, digits)), element('span', { class: 'faint' }, format.spread(cell, digits))),
      ),
    );
    this.tip.hidden = at.length === 0;
    const offset = plot.over.offsetLeft + left;
    const isRight = offset > this.stage.clientWidth / 2;
    this.tip.style.left = isRight ? '' : `${offset + 12}px`;
    this.tip.style.right = isRight ? `${this.stage.clientWidth - offset + 12}px` : '';
  }
}
