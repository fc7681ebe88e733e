/** Report of a crash loop: kills by step, events past the checkpoint, histogram of recovery
 *  times. */

export interface Kill {
  /** `random`, or the name of the step. */
  readonly step: string;
  /** Value of -chaos, or `random`. */
  readonly at: string;
  /** Number of events in the newest checkpoint of the killed process. */
  readonly checkpointed: number;
  /** Lower bound of the events that the killed process had consumed after that checkpoint. */
  readonly past: number;
  /** Time from the start of the next process to its end of restore; `restoreMs` is the restore
   *  alone. */
  readonly backMs: number;
  readonly restoreMs: number;
}

export interface CrashReport {
  readonly kills: readonly Kill[];
  /** Number of kills that interrupted nothing. */
  readonly uncounted: number;
  readonly consumed: number;
  readonly droppedLate: number;
  readonly rows: number;
  /** Number of surplus rows with a key that the sink already holds. */
  readonly duplicates: number;
  /** Difference of sink and counters from the oracle; empty if they are equal. */
  readonly difference: string;
  /** Difference of the HTTP answers from the oracle; empty if they are equal. */
  readonly answersDifference: string;
}

/** Upper edges of the histogram's bars, in ms. */
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

/** Formats quantiles in one line, then one bar for each range that is not empty. */
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

/** Formats one line per step: number of kills, events past the checkpoint, recovery time. */
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
    report.difference === '' ? 'sink and counts equal the oracle' : report.difference,
    report.answersDifference === ''
      ? 'GET /windows and /watermark answer as the oracle'
      : report.answersDifference,
  ].join('\n');
}
