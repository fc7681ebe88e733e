/** Preparation of a replication slot: decides what must be created, and what must be swept before
 *  its stream is trusted. */
import type { Logger } from '../../../core/log.ts';
import { outboxError } from '../../errors.ts';
import type { WalMetrics } from './metrics.ts';
import { ID_MAX, type SlotRecord, type SlotState, type SweepReason, type WalSlot } from './slot.ts';

export interface SlotVerdict {
  /** Reason why the slot must be created, after a drop where one exists; undefined: the slot can be
   *  used. */
  readonly make: SweepReason | undefined;
  /** Reason why rows below the position of a usable slot may be pending; undefined: none. */
  readonly doubt: SweepReason | undefined;
}

/** Decides whether an existing slot can be used. */
export function judge(
  state: SlotState | undefined,
  record: SlotRecord | undefined,
  systemIdentifier: string,
  publicationMade: boolean,
): SlotVerdict {
  if (state === undefined)
    return { make: record === undefined ? 'first_start' : 'slot_missing', doubt: undefined };
  if (state.walStatus === 'lost' || state.invalidation !== null)
    return { make: 'slot_lost', doubt: undefined };
  // The log is decoded with the catalog of its time, which lacks a publication that was created
  // later.
  if (publicationMade) return { make: 'publication_missing', doubt: undefined };
  const known = record !== undefined && record.systemIdentifier === systemIdentifier;
  if (!known || state.confirmed > record.confirmed) return { make: undefined, doubt: 'slot_foreign' };
  return { make: undefined, doubt: undefined };
}

export interface PreparedSlot {
  readonly unswept: SlotRecord['unswept'];
  /** Reason why the slot was created; undefined where it existed. */
  readonly made: SweepReason | undefined;
}

export interface PrepareOptions {
  readonly log: Logger;
  readonly metrics: WalMetrics;
  /** Waits for the creation of a slot, which may take as long as the oldest open transaction.
   *  False: the relay no longer needs the slot. */
  readonly whileMaking: (making: Promise<void>, reason: SweepReason) => Promise<boolean>;
}

/** Creates what is missing and records what must be swept; only for the relay that owns the outbox.
 *  Undefined: the relay no longer needs the slot.
 *  @throws wal_not_possible, slot_taken, slot_claimed */
export async function prepareSlot(slot: WalSlot, options: PrepareOptions): Promise<PreparedSlot | undefined> {
  const publicationMade = await slot.ensurePublication();
  const [state, record, systemIdentifier] = [
    await slot.readState(),
    await slot.claim(),
    await slot.systemIdentifier(),
  ];
  const { make, doubt } = judge(state, record, systemIdentifier, publicationMade);
  if (make === undefined && doubt === undefined) return { unswept: record?.unswept ?? null, made: undefined };
  const reason = (make ?? doubt) as SweepReason;
  if (reason !== 'first_start')
    options.log.error(
      { reason, wal_status: state?.walStatus, invalidation: state?.invalidation },
      make === undefined
        ? 'the replication slot was moved or created by another program; pending rows are published from the table'
        : 'the replication slot cannot be used; it is created again, and pending rows are published from the table',
    );
  if (make === undefined) {
    const to = (await slot.pendingMax()) ?? undefined;
    const unswept = to === undefined ? null : { reason, to };
    await slot.saveRecord({ confirmed: (state as SlotState).confirmed, systemIdentifier, unswept });
    return { unswept, made: undefined };
  }
  // Recorded first: after a crash the next owner knows that rows may have no position in the
  // stream.
  const confirmed = record?.systemIdentifier === systemIdentifier ? record.confirmed : 0n;
  await slot.saveRecord({ confirmed, systemIdentifier, unswept: { reason, to: ID_MAX } });
  if (state !== undefined) await slot.drop();
  const giveUp = new AbortController();
  const making = slot.create(giveUp.signal);
  making.catch(() => {});
  try {
    if (!(await options.whileMaking(making, reason))) {
      // Terminates the waiting statement, and so removes the unfinished slot.
      await slot.endHolder();
      return undefined;
    }
  } finally {
    // A server that answers no other statement does not answer this one either.
    giveUp.abort();
  }
  options.metrics.recreated.add(1, options.metrics.recreated.series(reason));
  const made = await slot.readState();
  if (made === undefined)
    throw outboxError('wal_not_possible', 'the replication slot was dropped after its creation', {
      next: 'find out who drops it (pg_stat_activity, the log of the server)',
    });
  // Rows committed below the slot's position are visible now if they are pending; later rows have a
  // position in the stream.
  const to = await slot.pendingMax();
  const unswept = to === null ? null : { reason, to };
  await slot.saveRecord({ confirmed: made.confirmed, systemIdentifier, unswept });
  options.log.info({ reason, unswept_to: to?.toString() }, 'replication slot created');
  return { unswept, made: reason };
}

/** True while slot and publication are unchanged since `prepareSlot`, and no other relay has moved
 *  the slot. */
export async function remainsUnchanged(slot: WalSlot): Promise<boolean> {
  const [published, state, record, systemIdentifier] = [
    await slot.isPublished(),
    await slot.readState(),
    await slot.readRecord(),
    await slot.systemIdentifier(),
  ];
  const { make, doubt } = judge(state, record, systemIdentifier, !published);
  return make === undefined && doubt === undefined;
}
