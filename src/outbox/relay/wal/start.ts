/** From whatever slot is met to one whose stream can be believed: what has to be made, and what has to be swept first. */
import type { Logger } from '../../../core/log.ts';
import { outboxError } from '../../errors.ts';
import type { WalMetrics } from './metrics.ts';
import { ID_MAX, type Memory, type SlotState, type SweepReason, type WalSlot } from './slot.ts';

export interface Judgement {
  /** Why the slot must be made, anew where there is one; undefined: it serves. */
  readonly make: SweepReason | undefined;
  /** Why rows below the slot may be pending though it serves. */
  readonly doubt: SweepReason | undefined;
}

/** What a slot that was met means. */
export function judge(
  state: SlotState | undefined,
  memory: Memory | undefined,
  systemIdentifier: string,
  publicationMade: boolean,
): Judgement {
  if (state === undefined)
    return { make: memory === undefined ? 'first_start' : 'slot_missing', doubt: undefined };
  if (state.walStatus === 'lost' || state.invalidation !== null)
    return { make: 'slot_lost', doubt: undefined };
  // The log is decoded with the catalog of its time, in which the publication does not stand.
  if (publicationMade) return { make: 'publication_missing', doubt: undefined };
  const known = memory !== undefined && memory.systemIdentifier === systemIdentifier;
  if (!known || state.confirmed > memory.confirmed) return { make: undefined, doubt: 'slot_foreign' };
  return { make: undefined, doubt: undefined };
}

export interface Arranged {
  readonly unswept: Memory['unswept'];
  /** Reason of a slot that was made. */
  readonly made: SweepReason | undefined;
}

export interface ArrangeOptions {
  readonly log: Logger;
  readonly metrics: WalMetrics;
  /** Waits for a slot to be made, which may take as long as the oldest open transaction. False: nobody needs it any more. */
  readonly whileMaking: (making: Promise<void>, reason: SweepReason) => Promise<boolean>;
}

/** Makes what is missing and remembers what must be swept; only for the relay that owns the outbox. Undefined: it was given up.
 *  @throws wal_not_possible, slot_taken, slot_claimed */
export async function arrange(slot: WalSlot, options: ArrangeOptions): Promise<Arranged | undefined> {
  const publicationMade = await slot.ensurePublication();
  const [state, memory, systemIdentifier] = [
    await slot.look(),
    await slot.claim(),
    await slot.systemIdentifier(),
  ];
  const { make, doubt } = judge(state, memory, systemIdentifier, publicationMade);
  if (make === undefined && doubt === undefined) return { unswept: memory?.unswept ?? null, made: undefined };
  const reason = (make ?? doubt) as SweepReason;
  if (reason !== 'first_start')
    options.log.error(
      { reason, wal_status: state?.walStatus, invalidation: state?.invalidation },
      make === undefined
        ? 'the replication slot was moved or made by somebody else; pending rows are published by row'
        : 'the replication slot cannot serve; it is made anew, and pending rows are published by row',
    );
  if (make === undefined) {
    const to = (await slot.pendingMax()) ?? undefined;
    const unswept = to === undefined ? null : { reason, to };
    await slot.remember({ confirmed: (state as SlotState).confirmed, systemIdentifier, unswept });
    return { unswept, made: undefined };
  }
  // Remembered first: whoever dies in between leaves word that rows may have no place in the stream.
  const confirmed = memory?.systemIdentifier === systemIdentifier ? memory.confirmed : 0n;
  await slot.remember({ confirmed, systemIdentifier, unswept: { reason, to: ID_MAX } });
  if (state !== undefined) await slot.drop();
  const giveUp = new AbortController();
  const making = slot.create(giveUp.signal);
  making.catch(() => {});
  try {
    if (!(await options.whileMaking(making, reason))) {
      // Ends the statement that waits, and with it the slot that is half made.
      await slot.endHolder();
      return undefined;
    }
  } finally {
    // A server that answers nothing else does not answer this either.
    giveUp.abort();
  }
  options.metrics.recreated.add(1, options.metrics.recreated.series(reason));
  const made = await slot.look();
  if (made === undefined)
    throw outboxError('wal_not_possible', 'the replication slot is gone again', {
      next: 'find out who drops it (pg_stat_activity, the log of the server)',
    });
  // What was committed below the slot and is pending can be seen; what comes later has a place in the stream.
  const to = await slot.pendingMax();
  const unswept = to === null ? null : { reason, to };
  await slot.remember({ confirmed: made.confirmed, systemIdentifier, unswept });
  options.log.info({ reason, unswept_to: to?.toString() }, 'replication slot made');
  return { unswept, made: reason };
}

/** True while slot and publication are those that `arrange` left and no other relay has moved the slot since. */
export async function isAsJudged(slot: WalSlot): Promise<boolean> {
  const [published, state, memory, systemIdentifier] = [
    await slot.isPublished(),
    await slot.look(),
    await slot.recall(),
    await slot.systemIdentifier(),
  ];
  const { make, doubt } = judge(state, memory, systemIdentifier, !published);
  return make === undefined && doubt === undefined;
}
