/** Common parts of all benchmarks: the form of a result, alternating runs, medians, and the table.
 *
 *  Rules: (1) the peer or the raw limit is measured in the same run, alternating with Millrace, so
 *  that the ratio holds on any machine; (2) inputs are created outside the timed part; (3) a result
 *  is the median of several runs with its spread; (4) a benchmark checks a digest of its answer, so
 *  that a faster side cannot win with a different answer. */
import { arch, cpus, platform, release, totalmem } from 'node:os';
import { Bench as Tinybench } from 'tinybench';
import { invariant } from '../src/core/errors.ts';
import type { Logger } from '../src/core/log.ts';
import type { Metrics } from '../src/core/metrics.ts';

/** JSON form of a result; the names are those of `-json`. */
export interface BenchResult {
  readonly metric: string;
  readonly unit: string;
  /** Median of Millrace's runs. */
  readonly value: number;
  /** (largest - smallest) / median of Millrace's runs. */
  readonly spread: number;
  /** Values of Millrace's runs in execution order; absent if they are not listed. */
  readonly runs?: readonly number[];
  /** The peer or limit measured in the same run; null if there is none. */
  readonly against: string | null;
  readonly against_value: number | null;
  /** value / against_value if larger is better, against_value / value if smaller is better: above 1
   *  Millrace is better. */
  readonly ratio: number | null;
  /** Goal, such as `ratio >= 0.9` or `value <= 8`; null if there is none. */
  readonly goal: string | null;
  /** Null if there is no goal. */
  readonly met: boolean | null;
}

export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly memory_bytes: number;
  readonly os: string;
  readonly arch: string;
  readonly node: string;
}

export interface BenchReport {
  readonly bench: string;
  /** Digest of the measured code, as `millrace version` prints it; null in reports from before it
   *  was recorded. */
  readonly build: string | null;
  readonly machine: Machine;
  /** Flags that affect the measurement; absent if there are none. */
  readonly flags?: readonly string[];
  readonly results: readonly BenchResult[];
}

export interface BenchContext {
  /** A short run (seconds): the answers are checked, the numbers are not meaningful. */
  readonly smoke: boolean;
  /** Number of runs of each side. */
  readonly repeats: number;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Settings that drivers.ts reads from a context. */
  readonly settings: { readonly native: string };
  /** Cluster to use; undefined: the benchmark starts one. */
  readonly brokers: string | undefined;
  /** Properties of its clients, by the names of librdkafka; only for a bench that takes them. */
  readonly brokerProperties?: Readonly<Record<string, string>> | undefined;
  /** URL of another server that gets the same load. */
  readonly vs?: string | undefined;
  /** Database to use; undefined: the benchmark starts one. */
  readonly postgres?: string | undefined;
  /** Parts to run; undefined: all. */
  readonly only?: readonly string[] | undefined;
  /** Peers to compare with; undefined: all. */
  readonly peers?: readonly string[] | undefined;
  /** Length of a measured run under steady load. */
  readonly durationMs?: number | undefined;
  /** Rate of the steady load, in requests or rows per second. */
  readonly rate?: number | undefined;
  /** Rows in a backlog. */
  readonly rows?: number | undefined;
  /** Events of a cell. */
  readonly events?: number | undefined;
  /** Idempotency keys, or inbox rows, inserted before the load. */
  readonly preload?: number | undefined;
  /** Number of brokers of a cluster that the benchmark starts. */
  readonly brokerCount?: number | undefined;
  /** Time after each start at which a process under load is killed and restarted. */
  readonly killAfterMs?: number | undefined;
  /** Load during a live rollout; undefined: no rollout. */
  readonly liveRolloutMs?: number | undefined;
  /** True to keep a transaction open during the load, which pins the xmin horizon. */
  readonly heldXmin?: boolean | undefined;
  /** Number of random cases. */
  readonly cases?: number | undefined;
  /** Seed of the first random case. */
  readonly seed?: number | undefined;
  /** Folder that gets the JSON and the page of a benchmark that has cells. */
  readonly out?: string | undefined;
  /** Aborted when the process has to end. */
  readonly drain: AbortSignal;
  /** Prints a line that describes the current step to stderr. */
  say(line: string): void;
  onClose(close: () => Promise<void> | void): void;
}

export interface Bench {
  readonly name: string;
  /** One sentence: what is measured, and against what. */
  readonly summary: string;
  /** True: the bench uses `brokerProperties`. Any other refuses to run with them. */
  readonly takesBrokerProperties?: boolean;
  /** True: the bench stores its report in `out` itself, while it runs. */
  readonly storesReport?: boolean;
  run(context: BenchContext): Promise<readonly BenchResult[]>;
}

/** Measurements of one side. */
export interface Series {
  readonly values: readonly number[];
  readonly median: number;
  /** (largest - smallest) / median. */
  readonly spread: number;
}

export function median(values: readonly number[]): number {
  invariant(values.length > 0, 'a median needs a value');
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const upper = sorted[middle] as number;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] as number) + upper) / 2;
}

export function seriesOf(values: readonly number[]): Series {
  const middle = median(values);
  const range = Math.max(...values) - Math.min(...values);
  return { values: [...values], median: middle, spread: middle === 0 ? 0 : range / Math.abs(middle) };
}

/** Runs every side `repeats` times, alternating (A B, B A, A B, …), so that warm-up and throttling
 *  affect both. Each call returns its measurement. */
export async function takeTurns<const S extends Readonly<Record<string, () => Promise<number> | number>>>(
  sides: S,
  repeats: number,
): Promise<{ readonly [K in keyof S]: Series }> {
  const names = Object.keys(sides);
  const measured = new Map<string, number[]>(names.map((name) => [name, []]));
  for (let round = 0; round < repeats; round++) {
    const order = round % 2 === 0 ? names : [...names].reverse();
    for (const name of order) {
      measured.get(name)?.push(await (sides[name] as () => Promise<number> | number)());
    }
  }
  const series = names.map((name) => [name, seriesOf(measured.get(name) as number[])] as const);
  return Object.fromEntries(series) as { readonly [K in keyof S]: Series };
}

/** Nanoseconds per row of synchronous functions, each called repeatedly by tinybench, alternating.
 *  A call handles `rows` rows; its inputs are created before. */
export async function microTurns<const S extends Readonly<Record<string, () => unknown>>>(
  sides: S,
  options: { readonly rows: number; readonly smoke: boolean; readonly repeats: number },
): Promise<{ readonly [K in keyof S]: Series }> {
  const timeMs = options.smoke ? 20 : 400;
  const turns = Object.fromEntries(
    Object.entries(sides).map(([name, call]) => [
      name,
      () => nanosecondsARow(name, call, options.rows, timeMs),
    ]),
  );
  return (await takeTurns(turns, options.repeats)) as { readonly [K in keyof S]: Series };
}

function nanosecondsARow(name: string, call: () => unknown, rows: number, timeMs: number): number {
  const bench = new Tinybench({
    time: timeMs,
    iterations: 3,
    warmupTime: timeMs / 4,
    warmupIterations: 2,
    throws: true,
  });
  bench.add(name, call);
  const [task] = bench.runSync();
  const result = task?.result;
  invariant(result !== undefined && result.state === 'completed', `tinybench completes ${name}`);
  return (result.latency.p50 * 1e6) / rows;
}

export interface ResultOptions {
  readonly metric: string;
  readonly unit: string;
  readonly ours: Series;
  readonly against?: { readonly name: string; readonly series: Series };
  /** Direction of improvement: `more` for rates, `less` for times and bytes. */
  readonly better: 'more' | 'less';
  /** True if the result lists each run. */
  readonly list?: boolean;
  /** Minimum ratio to the peer, or a bound of the value itself. `onReference` is a bound on the
   *  reference machine; `factor` says how many times slower this machine is (unit.ts). */
  readonly goal?:
    | { readonly ratioAtLeast: number }
    | { readonly valueAtLeast: number }
    | { readonly valueAtMost: number }
    | { readonly valueBelow: number }
    | { readonly onReference: number; readonly factor: number };
}

interface Judged {
  readonly goal: string | null;
  readonly met: boolean | null;
}

function judge(options: ResultOptions, value: number, ratio: number | null): Judged {
  const { goal, metric, better } = options;
  if (goal === undefined) return { goal: null, met: null };
  if ('ratioAtLeast' in goal) {
    invariant(ratio !== null, `the goal of ${metric} is a ratio, so it needs a peer`);
    return { goal: `ratio >= ${goal.ratioAtLeast}`, met: ratio >= goal.ratioAtLeast };
  }
  if ('valueAtLeast' in goal)
    return { goal: `value >= ${goal.valueAtLeast}`, met: value >= goal.valueAtLeast };
  if ('valueBelow' in goal) return { goal: `value < ${goal.valueBelow}`, met: value < goal.valueBelow };
  if ('valueAtMost' in goal) return { goal: `value <= ${goal.valueAtMost}`, met: value <= goal.valueAtMost };
  const { onReference, factor } = goal;
  const times = factor.toFixed(2);
  return better === 'more'
    ? { goal: `value >= ${onReference} / ${times}`, met: value >= onReference / factor }
    : { goal: `value <= ${onReference} x ${times}`, met: value <= onReference * factor };
}

/** Builds the result of one comparison. */
export function result(options: ResultOptions): BenchResult {
  const { metric, unit, ours, against } = options;
  const value = ours.median;
  const peer = against?.series.median ?? null;
  const ratio = peer === null ? null : options.better === 'more' ? value / peer : peer / value;
  return {
    metric,
    unit,
    value,
    spread: ours.spread,
    ...(options.list === true ? { runs: ours.values } : {}),
    against: against?.name ?? null,
    against_value: peer,
    ratio,
    ...judge(options, value, ratio),
  };
}

export function machine(): Machine {
  const all = cpus();
  return {
    cpu: all[0]?.model.trim() ?? 'unknown',
    cores: all.length,
    memory_bytes: totalmem(),
    os: `${platform()} ${release()}`,
    arch: arch(),
    node: process.version,
  };
}

/** Formats four significant figures, with a separator between thousands. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return '-';
  const rounded = Number(value.toPrecision(4));
  return Math.abs(rounded) >= 1000 ? Math.round(rounded).toLocaleString('en-US') : String(rounded);
}

const cellsOf = (one: BenchResult): string[] => [
  one.metric,
  one.unit,
  figure(one.value),
  `${(one.spread * 100).toFixed(1)}%`,
  one.against ?? '',
  one.against_value === null ? '' : figure(one.against_value),
  one.ratio === null ? '' : one.ratio.toFixed(2),
  one.goal ?? '',
  one.met === null ? '' : one.met ? 'yes' : 'NO',
];

const HEAD: readonly string[] = [
  'metric',
  'unit',
  'value',
  'spread',
  'against',
  'its value',
  'ratio',
  'goal',
  'met',
];
const RIGHT = new Set([2, 3, 5, 6]);

/** Values of the runs, if a result lists them. */
const runsOf = ({ runs = [] }: BenchResult): string => (runs.length > 1 ? runs.map(figure).join(' ') : '');

/** Renders the report as a text table, which is also a valid Markdown table. */
export function renderTable(report: BenchReport): string {
  const lists = report.results.some((one) => runsOf(one) !== '');
  const head = lists ? [...HEAD, 'runs'] : HEAD;
  const cells = (one: BenchResult): string[] => (lists ? [...cellsOf(one), runsOf(one)] : cellsOf(one));
  const rows = [head, ...report.results.map(cells)];
  const widths = head.map((_, column) =>
    Math.max(3, ...rows.map((row) => [...(row[column] as string)].length)),
  );
  const pad = (text: string, column: number): string =>
    RIGHT.has(column) ? text.padStart(widths[column] as number) : text.padEnd(widths[column] as number);
  const line = (row: readonly string[]): string => `| ${row.map(pad).join(' | ')} |`;
  const rule = `|${widths.map((width, column) => (RIGHT.has(column) ? `${'-'.repeat(width + 1)}:` : '-'.repeat(width + 2))).join('|')}|`;
  const { cpu, cores, node, os } = report.machine;
  const title = `${report.bench}, build ${report.build}, ${cores} x ${cpu}, ${os}, Node ${node}`;
  return [title, '', line(head), rule, ...rows.slice(1).map(line)].join('\n');
}
