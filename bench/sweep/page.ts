/** Page and plots of the sweep, made from its JSON alone. */
import { formatDuration } from '../../src/core/quantity.ts';
import type { BenchReport } from '../harness.ts';
import { madeByText } from '../stored.ts';
import {
  AXES,
  type Axis,
  axisValue,
  type Cell,
  cellName,
  cellsOn,
  KINDS,
  type Kind,
  LATENESSES_MS,
  SKEWS_MS,
  usualCell,
  windowName,
} from './cells.ts';
import type { Counts } from './counts.ts';
import type { LiveResults, LiveRun, Quantiles } from './live.ts';
import { type Panel, panelsPlot } from './panels.ts';

export interface SweepCell {
  readonly cell: Cell;
  readonly counts: Counts;
  /** Null: it has not run live. */
  readonly live: LiveRun | null;
}

/** JSON of the bench: a report with its cells. */
export interface SweepReport extends BenchReport {
  /** Events of a cell. */
  readonly events: number;
  /** Events per second of the source. */
  readonly rate: number;
  readonly cells: readonly SweepCell[];
}

/** Values of a live run that differ from the count. */
export function differencesOf(counts: Counts, live: LiveResults): readonly string[] {
  const names = ['events', 'dropped', 'rows', 'rowsCount', 'digest'] as const;
  return names
    .filter((name) => counts[name] !== live[name])
    .map((name) => `${name}: ${live[name]} live, ${counts[name]} counted`);
}

export interface LiveCell extends SweepCell {
  readonly live: LiveRun;
}

/** Cells that have run live. */
export const liveOf = (cells: readonly SweepCell[]): readonly LiveCell[] =>
  cells.flatMap((one) => (one.live === null ? [] : [{ ...one, live: one.live }]));

/** True if the live run has the counted results. */
export const isEqual = ({ counts, live }: Pick<LiveCell, 'counts' | 'live'>): boolean =>
  differencesOf(counts, live.results).length === 0;

const TITLES: Readonly<Record<Kind, string>> = {
  tumbling: 'Tumbling windows',
  sliding: 'Sliding windows',
  session: 'Sessions',
};
const AXIS_TITLES: Readonly<Record<Axis, string>> = {
  lateness: 'skew + lateness',
  checkpoint: 'checkpoint interval',
  window: 'window',
  keys: 'keys',
};
const EVENT_NAMES = ['p50', 'p99', 'p999'] as const;
/** Value of the plot for a quantile beyond the greatest bucket. */
const BEYOND_MS = 60_000;

class Cells {
  private readonly byName: ReadonlyMap<string, SweepCell>;

  constructor({ cells }: SweepReport) {
    this.byName = new Map(cells.map((one) => [cellName(one.cell), one]));
  }

  of(cell: Cell): SweepCell | undefined {
    return this.byName.get(cellName(cell));
  }
}

const share = (part: number, whole: number): number => (whole === 0 ? 0 : (100 * part) / whole);
const percent = (value: number): string => `${Number(value.toPrecision(3))} %`;
const dropRate = ({ dropped, events }: Counts): number => share(dropped, events);
const differing = ({ windowsDiffering, windowsInEither }: Counts): number =>
  share(windowsDiffering, windowsInEither);
const countError = (counts: Counts): number => share(counts.countError, counts.trueCount);
const timeError = ({ jaccardOfTime }: Counts): number => 100 * (1 - (jaccardOfTime ?? 1));

const ms = (value: number | null): string =>
  value === null ? '' : `${Number(value.toPrecision(3)).toLocaleString('en-US')} ms`;
const quantiles = (found: Quantiles): string =>
  found === null ? 'none' : found.map((bound) => (bound === null ? '> 60 s' : ms(bound))).join(', ');

/** Table of skew by lateness. */
function grid(cells: Cells, kind: Kind, value: (counts: Counts) => number): readonly string[] {
  const usual = usualCell(kind);
  const row = (skewMs: number): string => {
    const values = LATENESSES_MS.map((latenessMs) => {
      const found = cells.of({ ...usual, skewMs, latenessMs });
      return found === undefined ? 'not run' : percent(value(found.counts));
    });
    return `| skew ${formatDuration(skewMs)} | ${values.join(' | ')} |`;
  };
  return [
    `| | ${LATENESSES_MS.map((one) => `lateness ${formatDuration(one)}`).join(' | ')} |`,
    `| --- |${LATENESSES_MS.map(() => ' ---: |').join('')}`,
    ...SKEWS_MS.map(row),
    '',
  ];
}

/** Counts of the axes besides skew and lateness. */
function otherCounts(cells: Cells): readonly string[] {
  const rows = KINDS.flatMap((kind) =>
    (['window', 'keys'] as const).flatMap((axis) =>
      cellsOn(kind, axis).flatMap((cell) => {
        const counts = cells.of(cell)?.counts;
        if (counts === undefined) return [];
        const time = kind === 'session' ? percent(timeError(counts)) : '';
        return [
          `| ${kind} | ${axis} ${axisValue(cell, axis)} | ${percent(dropRate(counts))} | ${percent(differing(counts))} | ${percent(countError(counts))} | ${time} | ${counts.windows.toLocaleString('en-US')} |`,
        ];
      }),
    ),
  );
  return [
    '| kind | cell | dropped late | results that differ | error of their counts | time not covered alike | results of the true order |',
    '| --- | --- | ---: | ---: | ---: | ---: | ---: |',
    ...rows,
    '',
  ];
}

function liveRow({ cell, counts, live }: SweepCell, axis: Axis): string {
  if (live === null) return `| ${axisValue(cell, axis)} | not run | | | | | | | |`;
  const held = `${Math.round((100 * live.read) / live.rate)} %`;
  const same = differencesOf(counts, live.results);
  const checkpoints =
    live.checkpointMeanMs === null
      ? 'none'
      : `${ms(live.checkpointMeanMs)}, ${live.checkpointMaxMs === null ? '> 60 s' : ms(live.checkpointMaxMs)} (${live.checkpoints})`;
  return `| ${axisValue(cell, axis)} | ${held} | ${quantiles(live.accumulateMs)} | ${quantiles(live.sinkMs)} | ${checkpoints} | ${ms(live.ageMs)} | ${ms(live.restoreMs)} | ${ms(live.recoveryMs)} | ${live.cpuUs.toFixed(2)} µs | ${same.length === 0 ? 'equal' : `**${same.join('; ')}**`} |`;
}

function liveTables(report: SweepReport, cells: Cells, kind: Kind): readonly string[] {
  return AXES.flatMap((axis) => {
    const rows = cellsOn(kind, axis).flatMap((cell) => cells.of(cell) ?? []);
    if (rows.every(({ live }) => live === null)) return [];
    return [
      `### ${TITLES[kind]}, by ${AXIS_TITLES[axis]}`,
      '',
      `| ${AXIS_TITLES[axis]} | of ${report.rate.toLocaleString('en-US')}/s | event to accumulator | window end to durable | checkpoint | its age at the kill | restore | recovery | CPU an event | results |`,
      '| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | --- |',
      ...rows.map((row) => liveRow(row, axis)),
      '',
    ];
  });
}

/** Builds and machines of the live cells. */
function makers(live: readonly LiveCell[]): readonly string[] {
  const cells = new Map<string, number>();
  for (const { live: run } of live) {
    const text = madeByText(run);
    cells.set(text, (cells.get(text) ?? 0) + 1);
  }
  return [...cells].flatMap(([text, count]) => [`${count} live cells by ${text}.`, '']);
}

function head(report: SweepReport): readonly string[] {
  const { flags = [], cells, events } = report;
  const live = liveOf(cells);
  const equal = live.filter(isEqual);
  return [
    '# Sweep over the settings of the engine',
    '',
    '<!-- Generated from sweep.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench sweep${live.length === 0 ? ' -only=counts' : ''} -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`} makes the cells that are not yet here, each once.`,
    '',
    ...makers(live),
    `A cell is ${events.toLocaleString('en-US')} events (Zipf 1.1, the delays of \`gen -order=delayed\`: 95 % within seconds, a tail of minutes, one in a thousand up to two hours late) over 2.8 hours of event time.`,
    `It differs from the usual cell in one setting, or in skew and lateness: ${KINDS.map((kind) => `${kind} ${windowName(usualCell(kind))}`).join(', ')}, skew 5s, lateness 1m, checkpoint 30s, 1M keys.`,
    '',
    `**${cells.length} cells counted, ${live.length} of them run live; ${equal.length} of ${live.length} live cells have the counted results.** Counts come from the arrival order alone and are the same with every build and on every machine. A live cell is a source on its own`,
    'schedule, a broker and an engine that is killed with SIGKILL half an interval after a checkpoint and restarted; then its dropped events and all its results (key, bounds, count) are compared with',
    'the count. [Why the counts need no engine](../decisions/0106-a-sweep-counts-from-the-arrival-order.md).',
    '',
  ];
}

/** Makes docs/results/sweep.md. */
export function sweepPage(report: SweepReport): string {
  const cells = new Cells(report);
  const lines = [
    ...head(report),
    '## Dropped events and wrong results',
    '',
    '![Dropped events and results that differ from the true order, by skew and lateness](sweep-errors.svg)',
    '',
    'Events dropped late. They depend on the sum of skew and lateness alone, so they are the same for each kind of window.',
    '',
    ...grid(cells, 'tumbling', dropRate),
    ...KINDS.flatMap((kind) => [
      `Results of ${kind} windows (${windowName(usualCell(kind))}) that differ from the batch result of the true order:`,
      '',
      ...grid(cells, kind, differing),
    ]),
    'Time that sessions do not cover alike (1 - Jaccard index):',
    '',
    ...grid(cells, 'session', timeError),
    'By window and number of keys, at skew 5s and lateness 1m:',
    '',
    ...otherCounts(cells),
    '## Latency, checkpoints and recovery',
    '',
  ];
  if (report.cells.some(({ live }) => live !== null))
    lines.push(
      'Latencies are p50, p99 and p999, upper bounds of the buckets of the engine, from a tenth of the events to the kill. Checkpoint: mean, longest at most, and their number',
      'before the kill. Restore: from the start of the restore to the first request for records. Recovery: from the kill until the engine has read as many events as before, the start of the process',
      'included. Event time passes faster than the clock, so more windows fire a second than in production.',
      '',
      '![Latency of an event](sweep-events.svg)',
      '',
      '![Latency of a result](sweep-results.svg)',
      '',
      '![Checkpoints and recovery](sweep-recovery.svg)',
      '',
      ...KINDS.flatMap((kind) => liveTables(report, cells, kind)),
    );
  else lines.push('No cell has run live.', '');
  return `${lines.join('\n').trimEnd()}\n`;
}

const LIVE_AXES = ['checkpoint', 'window', 'keys'] as const;

/** Panels of the kinds by the axes of the live cells. */
function livePanels(
  cells: Cells,
  names: readonly string[],
  values: (live: LiveRun) => readonly (number | null)[],
): readonly (readonly Panel[])[] {
  return KINDS.map((kind) =>
    LIVE_AXES.map((axis) => {
      const own = cellsOn(kind, axis);
      const found = own.map((cell) => cells.of(cell)?.live ?? null);
      return {
        title: `${kind}, ${AXIS_TITLES[axis]}`,
        labels: own.map((cell) => axisValue(cell, axis)),
        lines: names.map((name, at) => ({
          name,
          values: found.map((live) => (live === null ? null : (values(live)[at] ?? null))),
        })),
      };
    }),
  );
}

const drawn = (found: Quantiles): readonly (number | null)[] =>
  found === null ? [null, null, null] : found.map((bound) => bound ?? BEYOND_MS);

/** Plots of the page by their file names. */
export function sweepPlots(report: SweepReport): Readonly<Record<string, string>> {
  const cells = new Cells(report);
  const errors = (title: string, kind: Kind, value: (counts: Counts) => number): Panel => ({
    title,
    labels: LATENESSES_MS.map(formatDuration),
    lines: SKEWS_MS.map((skewMs) => ({
      name: `skew ${formatDuration(skewMs)}`,
      values: LATENESSES_MS.map((latenessMs) => {
        const found = cells.of({ ...usualCell(kind), skewMs, latenessMs });
        return found === undefined ? null : value(found.counts);
      }),
    })),
  });
  const plots: Record<string, string> = {
    'sweep-errors.svg': panelsPlot({
      title: 'Dropped events and results that differ from the true order',
      unit: '%',
      across: 'allowed lateness',
      rows: [
        [
          errors('events dropped late', 'tumbling', dropRate),
          ...KINDS.map((kind) => errors(`results that differ, ${kind}`, kind, differing)),
        ],
      ],
    }),
  };
  if (report.cells.every(({ live }) => live === null)) return plots;
  const unit = 'ms';
  const across = 'checkpoint interval, window and keys';
  plots['sweep-events.svg'] = panelsPlot({
    title: 'From the receipt of an event to its accumulator, at most',
    unit,
    across,
    rows: livePanels(cells, EVENT_NAMES, ({ accumulateMs }) => drawn(accumulateMs)),
  });
  plots['sweep-results.svg'] = panelsPlot({
    title: 'From the end of a window to its durable result, at most',
    unit,
    across,
    rows: livePanels(cells, EVENT_NAMES, ({ sinkMs }) => drawn(sinkMs)),
  });
  plots['sweep-recovery.svg'] = panelsPlot({
    title: 'Checkpoints, and the way back after SIGKILL',
    unit,
    across,
    rows: livePanels(cells, ['checkpoint, mean', 'restore', 'recovery'], (live) => [
      live.checkpointMeanMs,
      live.restoreMs,
      live.recoveryMs,
    ]),
  });
  return plots;
}
