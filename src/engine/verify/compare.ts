/** Compares the windows of the oracle with the results in a sink. */
import { shapeOfKeys } from '../output/columns.ts';
import type { WindowResult } from '../window/accumulator.ts';
import { keyName, type OracleWindow } from './oracle.ts';

/** Differences that are kept to be shown. */
export const DIFFERENCES_MAX = 20;

export interface WindowDifference {
  readonly key: readonly string[];
  readonly window_start: string;
  readonly window_end: string;
  readonly what: 'missing' | 'unexpected' | 'twice' | 'values';
  /** Columns that differ, with the value of the sink and the expected one. */
  readonly columns?: Readonly<Record<string, { readonly sink: string; readonly expected: string }>>;
}

export class SinkComparison {
  compared = 0;
  differing = 0;
  readonly differences: WindowDifference[] = [];
  private readonly expected = new Map<string, OracleWindow>();
  private readonly seen = new Set<string>();
  private readonly read: ReadonlyMap<string, (row: WindowResult) => unknown>;
  private readonly isDue: (startMs: bigint, endMs: bigint) => boolean;

  /** @param isDue true for windows that must be in the sink, or must not */
  constructor(
    windows: Iterable<OracleWindow>,
    aggregate: string | undefined,
    isDue: (startMs: bigint, endMs: bigint) => boolean,
  ) {
    this.isDue = isDue;
    const { columns } = shapeOfKeys([{ name: 'key', kind: 'i64' }], aggregate);
    this.read = new Map(columns.map(({ name, read }) => [name, read]));
    for (const window of windows)
      if (isDue(window.startMs, window.endMs)) this.expected.set(nameOf(window.key, window), window);
  }

  get expectedCount(): number {
    return this.expected.size + this.compared;
  }

  /** Compares a row of the sink. @param key texts of its key's parts */
  row(key: readonly string[], row: WindowResult): void {
    const bounds = { startMs: BigInt(row.windowStart), endMs: BigInt(row.windowEnd) };
    if (row.isEarly === true || !this.isDue(bounds.startMs, bounds.endMs)) return;
    const name = nameOf(keyName(key), bounds);
    const window = this.expected.get(name);
    if (window === undefined) {
      this.note({ ...head(key, bounds), what: this.seen.has(name) ? 'twice' : 'unexpected' });
      return;
    }
    this.expected.delete(name);
    this.seen.add(name);
    this.compared++;
    const columns = Object.fromEntries(
      window.accumulator.expected(row.windowStart).flatMap(({ name: column, error, expected }) => {
        const read = (one: string): unknown => this.read.get(one)?.(row);
        const value = column === 'last_update_ts' ? row.lastUpdateTs : read(column);
        if (expected.matches(value, error === undefined ? undefined : read(error))) return [];
        return [[column, { sink: String(value), expected: expected.text }]];
      }),
    );
    if (Object.keys(columns).length > 0) this.note({ ...head(key, bounds), what: 'values', columns });
  }

  /** Reports the windows that the sink does not have. */
  finish(): void {
    for (const window of this.expected.values())
      this.note({ ...head(JSON.parse(window.key) as string[], window), what: 'missing' });
  }

  private note(difference: WindowDifference): void {
    this.differing++;
    if (this.differences.length < DIFFERENCES_MAX) this.differences.push(difference);
  }
}

interface Bounds {
  readonly startMs: bigint;
  readonly endMs: bigint;
}

const nameOf = (key: string, { startMs, endMs }: Bounds): string => `${startMs} ${endMs} ${key}`;

const head = (key: readonly string[], { startMs, endMs }: Bounds) => ({
  key,
  window_start: String(startMs),
  window_end: String(endMs),
});

/** A line for people. */
export function differenceLine({ key, window_start, window_end, what, columns }: WindowDifference): string {
  const window = `  key ${key.join()} [${window_start}, ${window_end})`;
  if (what === 'missing') return `${window}: not in the sink`;
  if (what === 'unexpected') return `${window}: in the sink, but no event is in it`;
  if (what === 'twice') return `${window}: in the sink twice`;
  const texts = Object.entries(columns ?? {}).map(
    ([name, { sink, expected }]) => `${name} is ${sink} instead of ${expected}`,
  );
  return `${window}: ${texts.join(', ')}`;
}
