/** Report of a chaos run: a document for programs and a plot of rate, lag and faults. */
import { type PlotMark, type PlotPanel, type Shade, timelinePlot } from '../core/plot/timeline.ts';
import type { Reconciliation } from '../outbox/reconcile/run.ts';
import { type FaultOutcome, outcomeText } from './run.ts';
import type { PlannedFault } from './schedule.ts';
import type { ChaosVerdict, UnplannedEnd } from './verdict.ts';

export const REPORT_FORMAT = 'millrace-chaos-1';

/** State of the pipeline at a time. A value that could not be read at that time is the last one. */
export interface ChaosSample {
  /** After the start of the load, in ms. */
  readonly atMs: number;
  /** Final answers of the load client since its start. */
  readonly answered: number;
  readonly answeredPerSecond: number;
  /** Outbox rows that are not marked. */
  readonly pending: number;
  /** Records of the topic that payments has not committed. */
  readonly lag: number;
  /** Records that payments has committed. */
  readonly consumed: number;
  readonly consumedPerSecond: number;
}

export interface ChaosReport extends ChaosVerdict {
  readonly format: typeof REPORT_FORMAT;
  readonly version: string;
  readonly seed: number;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly replay: string;
  readonly seconds: number;
  readonly load: Readonly<Record<string, unknown>>;
  readonly plan: readonly PlannedFault[];
  readonly outcomes: readonly FaultOutcome[];
  readonly unplanned_ends: readonly UnplannedEnd[];
  readonly reconciliation: Reconciliation;
  readonly samples: readonly ChaosSample[];
}

const KINDS: Readonly<Record<string, Shade>> = {
  process: ['#c53030', '#fc8181'],
  server: ['#975a16', '#f6ad55'],
  network: ['#2b6cb0', '#63b3ed'],
  missed: ['#718096', '#a0aec0'],
};

interface Panel extends Omit<PlotPanel, 'points'> {
  readonly of: (sample: ChaosSample) => number;
}

const PANELS: readonly Panel[] = [
  {
    title: 'final answers to requests, /s',
    name: 'answers',
    shade: ['#2f855a', '#68d391'],
    of: (sample) => sample.answeredPerSecond,
  },
  {
    title: 'outbox rows not published and marked',
    name: 'pending',
    shade: ['#b7791f', '#ecc94b'],
    of: (sample) => sample.pending,
  },
  {
    title: 'records not consumed',
    name: 'lag',
    shade: ['#6b46c1', '#b794f4'],
    of: (sample) => sample.lag,
  },
  {
    title: 'records consumed by payments, /s',
    name: 'consumed',
    shade: ['#276749', '#9ae6b4'],
    of: (sample) => sample.consumedPerSecond,
  },
];

function kindOf({ fault, applied }: FaultOutcome): string {
  if (!applied) return 'missed';
  if (fault.lane === 'network') return 'network';
  return fault.lane === 'postgres' || fault.lane === 'kafka' ? 'server' : 'process';
}

/** Plot of a run as SVG. */
export function chaosPlot(
  title: string,
  samples: readonly ChaosSample[],
  outcomes: readonly FaultOutcome[],
): string {
  const marks = [...outcomes]
    .sort((a, b) => a.startMs - b.startMs)
    .map(
      (outcome): PlotMark => ({
        atMs: outcome.startMs,
        untilMs: outcome.endMs,
        kind: kindOf(outcome),
        text: outcomeText(outcome),
      }),
    );
  const panels = PANELS.map(({ of, ...panel }) => ({
    ...panel,
    points: samples.map((sample) => ({ atMs: sample.atMs, value: of(sample) })),
  }));
  return timelinePlot({ title, panels, kinds: KINDS, marks });
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const seconds = (ms: number): string => (ms / 1000).toFixed(1);

/** Page with the verdict, the plot and the list of faults, in one file without references. */
export function chaosPage(title: string, report: ChaosReport): string {
  const rows = report.outcomes.map(
    (outcome) =>
      `<tr class="${kindOf(outcome)}"><td>${outcome.fault.id}</td><td>${seconds(outcome.fault.atMs)}</td><td>${seconds(outcome.startMs)}</td><td>${seconds(outcome.endMs)}</td><td>${escaped(outcomeText(outcome))}</td></tr>`,
  );
  const { produced_intents, distinct_orders, distinct_charges } = report.reconciliation;
  const reasons = report.reasons.map((reason) => `<li>${escaped(reason)}</li>`).join('');
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${escaped(title)}</title>
<style>:root{color-scheme:light dark}body{font-family:sans-serif;max-width:980px;margin:1em auto;padding:0 1em}
table{border-collapse:collapse}td,th{padding:2px 8px;text-align:left;vertical-align:top}svg{max-width:100%;height:auto}
code{overflow-wrap:anywhere}</style></head><body>
<h1>${escaped(title)}</h1>
<p>produced_intents ${produced_intents}, distinct_orders ${distinct_orders}, distinct_charges ${distinct_charges}</p>
<ul>${reasons}</ul>
<p>Replay: <code>${escaped(report.replay)}</code></p>
${chaosPlot(title, report.samples, report.outcomes)}
<table><thead><tr><th>fault</th><th>planned, s</th><th>began, s</th><th>ended, s</th><th>what happened</th></tr></thead>
<tbody>
${rows.join('\n')}
</tbody></table>
</body></html>
`;
}
