/** Report of a chaos run: a document for programs and a plot of rate, lag and faults. */
import { type PlotMark, type PlotPanel, type Shade, timelinePlot } from '../core/plot/timeline.ts';
import type { Reconciliation } from '../outbox/reconcile/run.ts';
import { type ChaosCoverage, coverageText } from './coverage.ts';
import { FAULTS } from './faults.ts';
import { type FaultOutcome, outcomeText } from './run.ts';
import type { PlannedFault } from './schedule.ts';
import type { Violations } from './target/judge.ts';
import type { ChaosVerdict, UnplannedEnd } from './verdict.ts';

export const REPORT_FORMAT = 'millrace-chaos-1';
export const TARGET_REPORT_FORMAT = 'millrace-chaos-target-1';

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

/** Document of a run, whatever its target. */
interface RunReport extends ChaosVerdict {
  readonly version: string;
  readonly seed: number;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly replay: string;
  readonly seconds: number;
  readonly load: Readonly<Record<string, unknown>>;
  readonly plan: readonly PlannedFault[];
  readonly outcomes: readonly FaultOutcome[];
  readonly unplanned_ends: readonly UnplannedEnd[];
  readonly samples: readonly ChaosSample[];
}

export interface ChaosReport extends RunReport {
  readonly format: typeof REPORT_FORMAT;
  readonly reconciliation: Reconciliation;
  /** Absent in reports of earlier versions. */
  readonly coverage?: ChaosCoverage;
}

/** Document of a run against a target of the user. */
export interface TargetReport extends RunReport {
  readonly format: typeof TARGET_REPORT_FORMAT;
  readonly violations: Violations;
  /** Keys with two different answers; absent: answers were not compared. */
  readonly changed_answers?: readonly string[] | undefined;
}

const KINDS: Readonly<Record<string, Shade>> = {
  process: ['#c53030', '#fc8181'],
  server: ['#975a16', '#f6ad55'],
  network: ['#2b6cb0', '#63b3ed'],
  missed: ['#718096', '#a0aec0'],
};

interface Panel extends Omit<PlotPanel, 'points'> {
  readonly of: (sample: ChaosSample) => number;
  /** Title in the plot of a target. */
  readonly ofTarget: string;
}

const PANELS: readonly Panel[] = [
  {
    title: 'final answers to requests, /s',
    ofTarget: 'final answers to requests, /s',
    name: 'answers',
    shade: ['#2f855a', '#68d391'],
    of: (sample) => sample.answeredPerSecond,
  },
  {
    title: 'outbox rows not published and marked',
    ofTarget: 'units that the query pending counts',
    name: 'pending',
    shade: ['#b7791f', '#ecc94b'],
    of: (sample) => sample.pending,
  },
  {
    title: 'records not consumed',
    ofTarget: 'records not consumed by the groups',
    name: 'lag',
    shade: ['#6b46c1', '#b794f4'],
    of: (sample) => sample.lag,
  },
  {
    title: 'records consumed by payments, /s',
    ofTarget: 'records consumed by the groups, /s',
    name: 'consumed',
    shade: ['#276749', '#9ae6b4'],
    of: (sample) => sample.consumedPerSecond,
  },
];

function kindOf({ fault, applied }: FaultOutcome): string {
  if (!applied) return 'missed';
  if (fault.lane === 'network' || FAULTS[fault.kind].need === 'cluster') return 'network';
  return fault.lane === 'postgres' || fault.lane === 'kafka' ? 'server' : 'process';
}

/** Plot of a run as SVG. */
export function chaosPlot(
  title: string,
  { format, samples, outcomes }: Pick<ChaosReport | TargetReport, 'format' | 'samples' | 'outcomes'>,
): string {
  const isTarget = format === TARGET_REPORT_FORMAT;
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
  const panels = PANELS.map(({ of, ofTarget, ...panel }) => ({
    ...panel,
    title: isTarget ? ofTarget : panel.title,
    points: samples.map((sample) => ({ atMs: sample.atMs, value: of(sample) })),
  }));
  return timelinePlot({ title, panels, kinds: KINDS, marks });
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
const seconds = (ms: number): string => (ms / 1000).toFixed(1);

function summaryOf(report: ChaosReport | TargetReport): string {
  if (report.format === TARGET_REPORT_FORMAT) {
    const { count, isMore } = report.violations;
    return `${count}${isMore ? ' or more' : ''} violations`;
  }
  const { produced_intents, distinct_orders, distinct_charges } = report.reconciliation;
  const counts = `produced_intents ${produced_intents}, distinct_orders ${distinct_orders}, distinct_charges ${distinct_charges}`;
  return report.coverage === undefined ? counts : `${counts}; ${coverageText(report.coverage)}`;
}

function violationsOf(report: ChaosReport | TargetReport): string {
  if (report.format !== TARGET_REPORT_FORMAT || report.violations.count === 0) return '';
  const lines = report.violations.rows.map((row) => `<li><code>${escaped(JSON.stringify(row))}</code></li>`);
  return `<ol>${lines.join('')}</ol>\n`;
}

/** Page with the verdict, the plot and the list of faults, in one file without references. */
export function chaosPage(title: string, report: ChaosReport | TargetReport): string {
  const rows = report.outcomes.map(
    (outcome) =>
      `<tr class="${kindOf(outcome)}"><td>${outcome.fault.id}</td><td>${seconds(outcome.fault.atMs)}</td><td>${seconds(outcome.startMs)}</td><td>${seconds(outcome.endMs)}</td><td>${escaped(outcomeText(outcome))}</td></tr>`,
  );
  const reasons = report.reasons.map((reason) => `<li>${escaped(reason)}</li>`).join('');
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${escaped(title)}</title>
<style>:root{color-scheme:light dark}body{font-family:sans-serif;max-width:980px;margin:1em auto;padding:0 1em}
table{border-collapse:collapse}td,th{padding:2px 8px;text-align:left;vertical-align:top}svg{max-width:100%;height:auto}
code{overflow-wrap:anywhere}</style></head><body>
<h1>${escaped(title)}</h1>
<p>${escaped(summaryOf(report))}</p>
<ul>${reasons}</ul>
<p>Replay: <code>${escaped(report.replay)}</code></p>
${violationsOf(report)}${chaosPlot(title, report)}
<table><thead><tr><th>fault</th><th>planned, s</th><th>began, s</th><th>ended, s</th><th>what happened</th></tr></thead>
<tbody>
${rows.join('\n')}
</tbody></table>
</body></html>
`;
}
