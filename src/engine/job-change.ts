/** A restored state for a job with more aggregates than its checkpoint.
 *
 *  An added aggregate has values in windows that start after the greatest event time of the events
 *  that were read before the change: none of their events was. In all others it has none, so each
 *  result is a function of the log and of that time, which the job keeps. */

import { withAdded } from './aggregate/definition.ts';
import { RowMapping } from './aggregate/row-mapping.ts';
import { convertState } from './durability/checkpoint/conversion.ts';
import type { Restored } from './durability/checkpoint/restore.ts';
import type { PieceStore } from './durability/spill/pieces.ts';
import { addedAggregates, type Job, resumedInput, rowFormOf, withSavedAggregates } from './job.ts';
import { BINARY256 } from './source/input/binary256.ts';
import type { StateBackend } from './state/port.ts';

export interface JobChangeParts {
  readonly job: Job;
  readonly pieces: PieceStore | undefined;
  readonly openState: (job: Job, pieces: PieceStore | undefined) => StateBackend;
}

export interface ChangedState {
  readonly saved: Restored;
  readonly state: StateBackend;
  /** Aggregates of the job from now on. */
  readonly aggregate: string;
  /** Texts of those that were added. */
  readonly added: readonly string[];
  /** Event time after which windows start that have values of them; undefined: all have. */
  readonly since: number | undefined;
}

const NEVER = Number.NEGATIVE_INFINITY;

export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Converts the state to the aggregates of the job; undefined: it has them already. */
export async function withAddedAggregates(
  saved: Restored,
  opened: StateBackend,
  { job, pieces, openState }: JobChangeParts,
): Promise<ChangedState | undefined> {
  const before = saved.manifest.job;
  const added = addedAggregates(before, job);
  if (added.length === 0) return undefined;
  const own = withSavedAggregates(job, before);
  // The form does not depend on the time of the change.
  const { aggregate: wanted } = resumedInput(before.input ?? BINARY256, job);
  const [from, to] = [rowFormOf(own), rowFormOf(jobWith(job, wanted as string))];
  const changed: { state?: StateBackend; aggregate: string; since: number | undefined } = {
    aggregate: '',
    since: undefined,
  };
  const open = (greatest: number): StateBackend['live'] => {
    // With -max-future an event may be beyond all that moved a watermark.
    const last = Math.max(saved.maxSeen, greatest);
    changed.since = last === NEVER ? undefined : last;
    changed.aggregate = withAdded(textOf(own), added, changed.since);
    changed.state = openState(jobWith(job, changed.aggregate), pieces?.withRows(to.bytes));
    return changed.state.live;
  };
  const { ledger } = saved;
  const stores =
    pieces === undefined || ledger === undefined
      ? undefined
      : {
          from: pieces.withRows(from.bytes),
          to: pieces.withRows(to.bytes),
          ledger,
          named: saved.kept.flatMap(({ spill }) => spill?.pieces.map(({ id }) => id) ?? []),
        };
  const converted = await convertState({
    ...{ state: opened.live, mapping: new RowMapping(from, to), pieces: stores, open, turn },
  });
  opened.close();
  const { state, aggregate, since } = changed as { state: StateBackend } & typeof changed;
  const recovery = {
    base: undefined,
    ledger: converted,
    converted: ledger?.pieces.map(({ id }) => id) ?? [],
  };
  return { saved: { ...saved, ...recovery }, state, aggregate, added, since };
}

const textOf = (job: Job): string => job.input?.aggregate as string;

const jobWith = (job: Job, aggregate: string): Job => ({
  ...job,
  input: { ...(job.input as NonNullable<Job['input']>), aggregate },
});
