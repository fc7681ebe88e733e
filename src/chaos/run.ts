/** Carries out the plan of a chaos run: each lane applies its faults one after the other.
 *
 *  Invariants: (1) a fault begins at its time, or the planned pause after the fault before it in
 *  its lane has ended, whichever is later: on a slow machine too, the pipeline works between two
 *  faults; (2) each planned fault has exactly one outcome; (3) after a stop no further fault
 *  begins. */
import { sleep, type Timers } from '../core/clock.ts';
import { faultText, type PlannedFault } from './schedule.ts';

export interface FaultOutcome {
  readonly fault: PlannedFault;
  /** True if the fault met its target; `detail` is the evidence, else the reason. */
  readonly applied: boolean;
  readonly detail: string;
  /** Times after the start, in ms; equal where the fault never began. */
  readonly startMs: number;
  readonly endMs: number;
}

/** Applies a fault, ends it, and waits until its target is healthy.
 *  @returns the evidence that the fault met its target
 *  @throws if it did not */
export type ApplyFault = (fault: PlannedFault, signal: AbortSignal) => Promise<string>;

export interface FaultRunOptions {
  readonly plan: readonly PlannedFault[];
  readonly apply: ApplyFault;
  readonly clock: Timers;
  /** Stops the run. */
  readonly signal: AbortSignal;
  /** Time limit of one fault until its target is healthy, in ms. */
  readonly faultMsMax: number;
  readonly onStart?: (fault: PlannedFault) => void;
  readonly onEnd?: (outcome: FaultOutcome) => void;
}

const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));

/** Applies the whole plan. @returns the outcomes in the order of the plan */
export async function runFaults(options: FaultRunOptions): Promise<readonly FaultOutcome[]> {
  const { plan, clock } = options;
  const startMs = clock.monotonicMs();
  const lanes = new Map<string, PlannedFault[]>();
  for (const fault of plan) lanes.set(fault.lane, [...(lanes.get(fault.lane) ?? []), fault]);
  const outcomes = await Promise.all([...lanes.values()].map((faults) => runLane(options, faults, startMs)));
  return outcomes.flat().sort((a, b) => a.fault.id - b.fault.id);
}

async function runLane(
  options: FaultRunOptions,
  faults: readonly PlannedFault[],
  startMs: number,
): Promise<readonly FaultOutcome[]> {
  const { clock, signal } = options;
  const outcomes: FaultOutcome[] = [];
  const nowMs = (): number => clock.monotonicMs() - startMs;
  for (const [index, fault] of faults.entries()) {
    const dueMs = Math.max(fault.atMs, earliestMs(fault, faults[index - 1], outcomes.at(-1)));
    if (dueMs > nowMs()) await sleep(clock, dueMs - nowMs(), signal);
    const outcome = signal.aborted
      ? { fault, applied: false, detail: 'the run was stopped before', startMs: nowMs(), endMs: nowMs() }
      : await runFault(options, fault, nowMs);
    outcomes.push(outcome);
    options.onEnd?.(outcome);
  }
  return outcomes;
}

/** Longest pause that is kept before a fault that is late, in ms. */
const PAUSE_MS_MAX = 5000;

function earliestMs(
  { atMs }: PlannedFault,
  before: PlannedFault | undefined,
  outcome: FaultOutcome | undefined,
): number {
  if (before === undefined || outcome === undefined) return 0;
  return outcome.endMs + Math.min(PAUSE_MS_MAX, Math.max(0, atMs - before.atMs - before.durationMs));
}

async function runFault(
  { apply, clock, signal, faultMsMax, onStart }: FaultRunOptions,
  fault: PlannedFault,
  nowMs: () => number,
): Promise<FaultOutcome> {
  const startMs = nowMs();
  onStart?.(fault);
  const over = new AbortController();
  const stop = (): void => over.abort();
  signal.addEventListener('abort', stop, { once: true });
  const cancel = clock.after(faultMsMax, stop);
  try {
    const detail = await apply(fault, over.signal);
    return { fault, applied: true, detail, startMs, endMs: nowMs() };
  } catch (thrown) {
    const late = over.signal.aborted && !signal.aborted ? ` (after ${faultMsMax} ms)` : '';
    return { fault, applied: false, detail: `${messageOf(thrown)}${late}`, startMs, endMs: nowMs() };
  } finally {
    cancel();
    signal.removeEventListener('abort', stop);
  }
}

/** Line of an outcome for the log and the report. */
export function outcomeText({ fault, applied, detail }: FaultOutcome): string {
  return `${faultText(fault)}: ${applied ? detail : `NOT APPLIED, ${detail}`}`;
}
