// What the program puts into the page (src/measure/report.cc). Members that are not there are unknown.

export interface Result {
  letter: string;
  name: string;
  kind: string;
  created?: string;
  origin?: string;
  engine?: string;
  address?: string;
  details?: string;
  variant?: string;
  formula?: string;
  pack?: string;
  machine?: string;
  cpu?: string;
  gpu?: string;
  remarks: string[];
}

export interface Metric {
  name: string;
  title: string;
  unit: string;
  more: boolean;
}

export interface Cell {
  n: number;
  mean?: number;
  deviation?: number;
  variation?: number;
  low?: number;
  high?: number;
  smallest?: number;
  largest?: number;
  publishedLow?: number;
  publishedHigh?: number;
  ratio?: number;
  ratioLow?: number;
  ratioHigh?: number;
}

export interface Row {
  source: string;
  stage: string;
  context: number;
  metric: string;
  cells: (Cell | null)[];
}

export interface Agreement {
  source: string;
  stage: string;
  result: number;
  withFirst: boolean;
  pairs: number;
  equal: number;
  otherPrompts: number;
  divergence?: number;
}

export interface RunCount {
  result: number;
  source: string;
  planned: number;
  measured: number;
  excluded: number;
  disturbed: number;
  failed: number;
}

export interface RunNote {
  result: number;
  source: string;
  number: number;
  begun: string;
  disturbed: boolean;
  excluded: boolean;
  reasons: string[];
}

export interface Data {
  results: Result[];
  metrics: Metric[];
  warnings: { text: string; results: number[] }[];
  rows: Row[];
  agreements: Agreement[];
  runs: RunCount[];
  notes: RunNote[];
  environment: { name: string; values: string[]; differs: boolean }[];
}

/** Rows that share a source, in their order. */
export function bySource<T extends { source: string }>(rows: T[]): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const row of rows) groups.set(row.source, [...(groups.get(row.source) ?? []), row]);
  return [...groups];
}

export function sourceTitle(source: string): string {
  return source === '' ? 'source not told' : source;
}

export function stageTitle(stage: string): string {
  return stage === '' ? 'stage not told' : stage;
}
