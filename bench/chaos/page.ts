/** Page about the runs of the chaos bench, made from its JSON alone. */

import type { ChaosCoverage } from '../../src/chaos/coverage.ts';
import type { BenchReport } from '../harness.ts';
import type { MadeBy } from '../stored.ts';
import { type ChaosCell, cellName } from './cells.ts';

/** A finished run with its verdict. */
export interface ChaosRun extends MadeBy {
  readonly cell: ChaosCell;
  readonly holds: boolean;
  readonly reasons: readonly string[];
  readonly replay: string;
  readonly seconds: number;
  readonly intents: number;
  readonly orders: number;
  readonly charges: number;
  /** Sum over all classes of deltas. */
  readonly deltas: number;
  /** Messages that the inbox recognised and did not charge again. */
  readonly suppressed: number;
  readonly planned: number;
  readonly applied: number;
  /** Applied faults by kind. */
  readonly kinds: Readonly<Record<string, number>>;
  readonly unplannedEnds: number;
  /** Highest values of the timeline. */
  readonly pendingMax: number;
  readonly lagMax: number;
  /** Absent in runs of earlier builds. */
  readonly coverage?: ChaosCoverage;
}

/** JSON of the bench: a report with its runs, which may be of several builds and machines. */
export interface ChaosBenchReport extends BenchReport {
  readonly runs: readonly ChaosRun[];
}

const count = (value: number): string => value.toLocaleString('en-US');
const escaped = (text: string): string => text.replaceAll('|', '\\|').replace(/\s+/g, ' ');

/** Columns of the coverage. */
const COVERED: ReadonlyArray<readonly [title: string, of: (coverage: ChaosCoverage) => string]> = [
  ['injected', (one) => count(one.injected_duplicates)],
  ['redelivered', (one) => count(one.redelivered)],
  ['repeats', (one) => count(one.repeats)],
  ['gRPC', (one) => `${count(one.answers_over_grpc)} of ${count(one.answers)}`],
];

/** Table of the coverage; empty where no run has any. A run of an earlier build has no row. */
function coverageLines(runs: readonly ChaosRun[]): readonly string[] {
  const rows = runs.flatMap(({ cell, coverage }) =>
    coverage === undefined
      ? []
      : [`| ${cellName(cell)} | ${COVERED.map(([, of]) => of(coverage)).join(' | ')} |`],
  );
  if (rows.length === 0) return [];
  return [
    '## Duplicates, repeats and answers over gRPC',
    '',
    '`injected` and `redelivered` count the messages that payments received again, by injection and by a fault. A run without an injected duplicate, a repeat or an answer over gRPC does not hold.',
    '',
    `| run | ${COVERED.map(([title]) => title).join(' | ')} |`,
    `| --- |${' --- |'.repeat(COVERED.length)}`,
    ...rows,
    '',
  ];
}

function row(run: ChaosRun): string {
  const { cell } = run;
  const verdict = run.holds ? 'holds' : `**broken**: ${escaped(run.reasons.join('; '))}`;
  return `| ${cellName(cell)} | ${cell.seed} | ${cell.durationMs / 60_000} min | ${Math.round(run.seconds)} s | ${count(run.intents)} | ${count(run.orders)} | ${count(run.charges)} | ${run.deltas} | ${count(run.suppressed)} | ${run.applied} of ${run.planned} | ${run.unplannedEnds} | ${count(run.pendingMax)} | ${count(run.lagMax)} | ${run.build} | ${run.machine.cores} x ${run.machine.cpu} | ${verdict} |`;
}

/** Faults by kind over all runs. */
function faultLines(runs: readonly ChaosRun[]): readonly string[] {
  const sums = new Map<string, number>();
  for (const { kinds } of runs)
    for (const [kind, number] of Object.entries(kinds)) sums.set(kind, (sums.get(kind) ?? 0) + number);
  return [...sums]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([kind, number]) => `| ${kind} | ${count(number)} |`);
}

/** Makes docs/results/chaos.md. */
export function chaosRunsPage({ flags = [], runs }: ChaosBenchReport): string {
  const sum = (of: (run: ChaosRun) => number): string =>
    count(runs.reduce((total, run) => total + of(run), 0));
  const lines = [
    '# Effects under faults, run by run',
    '',
    '<!-- Generated from chaos.json by `npm run generate`; do not edit. -->',
    '',
    `\`millrace bench chaos -out=docs/results\`${flags.length === 0 ? '' : ` with ${flags.join(' ')}`} makes the runs that are not yet here. Each run was made once and names the build and the machine that made it.`,
    '',
    'Each run is [`millrace chaos`](../how-to/chaos.md) on servers of its own with every fault that fits the relay, and of the crash points the one of its name.',
    'Its plan is a function of the seed. The verdict is that of `reconcile` over the ledger of the load client: it holds with zero deltas, every planned fault applied,',
    'and no process that ended by a bug. `seen` counts messages that payments received again and did not charge.',
    '',
    `${runs.filter(({ holds }) => holds).length} of ${runs.length} runs hold: ${sum(({ intents }) => intents)} intents, ${sum(({ charges }) => charges)} charges, ${sum(({ deltas }) => deltas)} deltas, ${sum(({ applied }) => applied)} faults.`,
    '',
    '| crash point, relay, duplicates | seed | planned | took | intents | orders | charges | deltas | seen | faults | unplanned ends | most pending | most lag | build | machine | verdict |',
    '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
    ...runs.map(row),
    '',
    '## Faults over all runs',
    '',
    '| fault | applied |',
    '| --- | --- |',
    ...faultLines(runs),
    '',
    ...coverageLines(runs),
    '## Replay',
    '',
    'The plan of a seed is that of the build of its run: a later build may plan other faults for it.',
    '',
    ...runs.map(({ cell, replay }) => `- ${cellName(cell)}: \`${replay}\``),
  ];
  return `${lines.join('\n')}\n`;
}
