/** Verdict of a chaos run, and the command that runs its plan again. */
import type { Reconciliation } from '../outbox/reconcile/run.ts';
import { type ChaosCoverage, type CoverageShares, missingCoverage } from './coverage.ts';
import type { FaultOutcome } from './run.ts';
import { faultText } from './schedule.ts';

/** End of a process that no fault planned. */
export interface UnplannedEnd {
  readonly service: string;
  readonly code: number | null;
  readonly signal: string | null;
  readonly atMs: number;
  readonly logPath: string;
}

export interface RunFacts {
  readonly reconciliation: Reconciliation;
  readonly outcomes: readonly FaultOutcome[];
  readonly ends: readonly UnplannedEnd[];
  /** Reason why the pipeline did not drain; undefined: it did. */
  readonly undrained: string | undefined;
  readonly coverage: ChaosCoverage;
  /** Shares that the settings ask for. */
  readonly shares: CoverageShares;
}

export interface ChaosVerdict {
  readonly holds: boolean;
  /** Everything that keeps the verdict from holding; empty if it holds. */
  readonly reasons: readonly string[];
}

/** Exit code of a dependency that is unreachable, which a service may use while its servers are
 *  down: an orchestrator starts it again. */
const UNREACHABLE = 3;

/** Judges a run: zero deltas, every planned fault applied, no process that ended by a bug, a
 *  drained pipeline, and the duplicates, repeats and transports that the settings ask for. A run
 *  without intents shows nothing. */
export function judge(facts: RunFacts): ChaosVerdict {
  const { reconciliation, outcomes, ends, undrained, coverage, shares } = facts;
  const reasons: string[] = [];
  if (reconciliation.produced_intents === 0) reasons.push('no intent was produced');
  for (const { class: name, count, meaning, ids } of reconciliation.deltas)
    reasons.push(`${name}: ${count}, ${meaning} (${ids.slice(0, 3).join(', ')})`);
  const { produced_intents: intents, distinct_orders: orders, distinct_charges: charges } = reconciliation;
  if (reconciliation.deltas.length === 0 && !reconciliation.holds)
    reasons.push(`the counts differ: ${intents} intents, ${orders} orders, ${charges} charges`);
  if (reconciliation.unanswered_intents > 0)
    reasons.push(`${reconciliation.unanswered_intents} intents have no answer and no order`);
  for (const { fault, applied, detail } of outcomes)
    if (!applied) reasons.push(`fault ${fault.id}, ${faultText(fault)}, was not applied: ${detail}`);
  for (const { service, code, signal, logPath } of ends)
    if (code !== UNREACHABLE)
      reasons.push(`${service} ended by itself with ${signal ?? `code ${code}`}; see ${logPath}`);
  if (undrained !== undefined) reasons.push(undrained);
  reasons.push(...missingCoverage(shares, coverage, { intents, charges }));
  return { holds: reasons.length === 0, reasons };
}

/** Values of the flags that determine the plan and the load, in the order of the command line. */
export type ReplaySettings = ReadonlyArray<readonly [flag: string, value: string | undefined]>;

const PLAIN = /^[\w@%+=:,./-]*$/;

/** Command line that repeats the plan of a run. @param settings undefined values are left out */
export function replayCommand(settings: ReplaySettings): string {
  const words = settings.flatMap(([flag, value]) => (value === undefined ? [] : [`-${flag}=${value}`]));
  const quoted = words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`));
  return ['millrace chaos', ...quoted].join(' ');
}
