/** Gauges, counters and lines of a running chaos run. */
import type { ChaosSample } from '../../chaos/report.ts';
import { type FaultOutcome, outcomeText } from '../../chaos/run.ts';
import { faultText, type PlannedFault } from '../../chaos/schedule.ts';
import type { UnplannedEnd } from '../../chaos/verdict.ts';
import type { ChaosContext as Context } from './settings.ts';

export const PHASES = ['starting', 'load', 'faults', 'draining', 'judging', 'done'] as const;
export type Phase = (typeof PHASES)[number];

export interface Watch {
  readonly phase: (phase: Phase) => void;
  readonly onStart: (fault: PlannedFault) => void;
  readonly onOutcome: (outcome: FaultOutcome) => void;
  readonly onSample: (sample: ChaosSample) => void;
  readonly onUnplannedEnd: (end: UnplannedEnd) => void;
  readonly onDeltas: (count: number) => void;
  readonly done: () => void;
}

export function watchChaos(context: Context, plan: readonly PlannedFault[]): Watch {
  const { metrics, clock } = context;
  const startMs = clock.monotonicMs();
  const phases = metrics.gauge('chaos_phase', 'Phase of the run: 1 for the current one.', ['phase']);
  const faults = metrics.counter('chaos_faults_total', 'Faults that ended, by kind and outcome.', [
    'kind',
    'outcome',
  ]);
  const planned = metrics.gauge('chaos_faults_planned', 'Faults of the plan.');
  const active = metrics.gauge('chaos_faults_active', 'Faults that have begun and not ended.');
  const answered = metrics.gauge('chaos_answered_requests', 'Final answers to the load client.');
  const pending = metrics.gauge('chaos_pending_rows', 'Outbox rows that are not marked.');
  const lag = metrics.gauge('chaos_lag_records', 'Records that payments has not committed.');
  const consumed = metrics.gauge('chaos_consumed_records', 'Records that payments has committed.');
  const ends = metrics.counter('chaos_unplanned_ends_total', 'Processes that ended without a fault.', [
    'service',
  ]);
  const deltas = metrics.gauge('chaos_deltas', 'Deltas that the reconciler found.');
  planned.set(plan.length);
  for (const phase of PHASES) phases.set(0, phases.series(phase));
  let current: Phase = 'starting';
  let [ended, running, note] = [0, 0, ''];
  const progress = context.progress({
    what: 'chaos',
    unit: 'faults',
    total: plan.length,
    note: () => `${current}${note}`,
  });
  const say = (text: string): void => {
    const seconds = ((clock.monotonicMs() - startMs) / 1000).toFixed(1);
    context.say(`[${seconds.padStart(7)} s] ${text}`);
  };
  return {
    phase: (phase) => {
      phases.set(0, phases.series(current));
      phases.set(1, phases.series(phase));
      current = phase;
      say(phase);
    },
    onStart: (fault) => {
      active.set(++running);
      say(`${fault.id}. ${faultText(fault)}`);
    },
    onOutcome: (outcome) => {
      if (outcome.startMs !== outcome.endMs) active.set(--running);
      faults.add(1, faults.series(outcome.fault.kind, outcome.applied ? 'applied' : 'missed'));
      progress.set(++ended);
      if (!outcome.applied) progress.error();
      say(`${outcome.fault.id}. ${outcomeText(outcome)}`);
    },
    onSample: (sample) => {
      answered.set(sample.answered);
      pending.set(sample.pending);
      lag.set(sample.lag);
      consumed.set(sample.consumed);
      note = `, ${Math.round(sample.answeredPerSecond)} answers/s, ${sample.pending} pending, lag ${sample.lag}`;
    },
    onUnplannedEnd: ({ service, code, signal }) => {
      ends.add(1, ends.series(service));
      say(`${service} ended by itself with ${signal ?? `code ${code}`}`);
    },
    onDeltas: (count) => deltas.set(count),
    done: () => progress.done(),
  };
}
