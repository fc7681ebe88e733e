/** What a crash loop found, and how it is told: kills by step, events past the checkpoint, recovery
 *  times as a histogram. */

export interface Kill {
  /** `random`, or the step. */
  readonly step: string;
  /** The value of -chaos, where there was one. */
  readonly at: string;
  /** Events behind the newest checkpoint that the dead process left. */
  readonly checkpointed: number;
  /** Events it had consumed beyond that, at least. */
  readonly past: number;
  /** The next process: its start to reading again, and the restore in it. */
  readonly backMs: number;
  readonly restoreMs: number;
}

export interface CrashReport {
  readonly kills: readonly Kill[];
  /** Kills that interrupted nothing. */
  readonly uncounted: number;
  readonly consumed: number;
  readonly droppedLate: number;
  readonly rows: number;
  /** Keys that stand in the sink more than once. */
  readonly duplicates: number;
  /** How sink and counts part from the oracle; empty where they are equal. */
  readonly parting: string;
  /** How what a process answers over HTTP parts from it. */
  readonly asked: string;
}

/** Upper edges of the histogram's bars, ms. */
const EDGES = [
  25,
  50,
  100,
  200,
  300,
  400,
  500,
  750,
  1000,
  1500,
  2000,
  3000,
  5000,
  10_000,
  Number.POSITIVE_INFINITY,
];
const BAR_MAX = 50;

/** Quantiles in a line, then one bar a range that has any. */
export function histogramText(what: string, ms: readonly number[]): string {
  const sorted = [...ms].sort((a, b) => a - b);
  const quantile = (q: number): string =>
    (sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN).toFixed(0);
  const lines = [
    `${what}: ${sorted.length} times, p50 ${quantile(0.5)} ms, p90 ${quantile(0.9)} ms, p99 ${quantile(0.99)} ms, greatest ${quantile(1)} ms`,
  ];
  const counts = EDGES.map(
    (edge, i) =>
      sorted.filter((one) => one <= edge && one > (EDGES[i - 1] ?? Number.NEGATIVE_INFINITY)).length,
  );
  const most = Math.max(1, ...counts);
  counts.forEach((count, i) => {
    if (count === 0) return;
    const edge = EDGES[i] as number;
    const range = Number.isFinite(edge) ? `to ${edge} ms` : `over ${EDGES[i - 1]} ms`;
    lines.push(`  ${range.padStart(14)} ${'#'.repeat(Math.ceil((count * BAR_MAX) / most))} ${count}`);
  });
  return lines.join('\n');
}

/** A line a step: how many kills, events past the checkpoint, recovery. */
function stepsText(kills: readonly Kill[]): string[] {
  const steps = [...new Set(kills.map(({ step }) => step))].sort();
  return steps.map((step) => {
    const mine = kills.filter((kill) => kill.step === step);
    const past = mine.map((kill) => kill.past).sort((a, b) => a - b);
    const back = Math.max(...mine.map((kill) => kill.backMs));
    return `  ${step.padEnd(24)} ${mine.length} kills, ${past[0]} to ${past.at(-1)} events past the checkpoint, back within ${back} ms`;
  });
}

export function reportText(name: string, report: CrashReport): string {
  const { kills } = report;
  const past = kills.map((kill) => kill.past).sort((a, b) => a - b);
  return [
    `${name}: ${kills.length} kills, ${report.uncounted} more interrupted nothing; ${report.consumed} events, ${report.droppedLate} dropped late, ${report.rows} rows, ${report.duplicates} of them twice`,
    ...kills.map(
      (kill, i) =>
        `  kill ${i + 1} ${kill.at}: ${kill.past} events past the checkpoint at ${kill.checkpointed}, back in ${kill.backMs} ms`,
    ),
    ...stepsText(kills),
    `events past the checkpoint: ${past[0]} to ${past.at(-1)}, median ${past[past.length >> 1]}`,
    histogramText(
      'start of the process to reading again',
      kills.map((kill) => kill.backMs),
    ),
    histogramText(
      'of it the restore',
      kills.map((kill) => kill.restoreMs),
    ),
    report.parting === '' ? 'sink and counts equal the oracle' : report.parting,
    report.asked === '' ? 'GET /windows and /watermark answer as the oracle' : report.asked,
  ].join('\n');
}
