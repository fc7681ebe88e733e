/** Lease of a job in a checkpoint store: the process that holds it computes the job, and no other.
 *
 *  The holder replaces the lease once a second by its tag. Another process takes it when it has
 *  seen no replacement for LEASE_MS by its own clock, with the next epoch. A holder whose last
 *  renewal began more than HOLD_MS ago writes nothing until the next one succeeds; one that was
 *  replaced is fenced. Clocks are compared with themselves alone. */
import { hostname } from 'node:os';
import type { Clock } from '../../../core/clock.ts';
import { findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import { engineError } from '../../../engine/errors.ts';
import type { ObjectStore } from '../../../io/objects/port.ts';
import { decodeLease, encodeLease, LEASE, type Lease } from './head.ts';

export const RENEW_MS = 1_000;
/** Time without a renewal after which another process takes the lease. */
export const LEASE_MS = 6_000;
/** Time since the begin of the last renewal during which a holder writes results. */
const HOLD_MS = 4_000;
const POLL_MS = 500;

export interface LeaseParts {
  readonly store: ObjectStore;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly sleep: (ms: number) => Promise<void>;
  readonly log: Logger;
}

const fenced = (where: string, lease: Lease | undefined): Error =>
  engineError(
    'store_fenced',
    `the job in ${where} was taken over${lease === undefined ? '' : ` by ${lease.owner}, epoch ${lease.epoch}`}`,
    {
      next: 'let that engine run; this one wrote nothing since',
    },
  );

const ownerText = (): string => `process ${process.pid} on ${hostname()}`;

export class StoreLease {
  readonly epoch: number;
  /** Rejects when another process has taken the lease. */
  readonly lost: Promise<never>;
  private readonly parts: LeaseParts;
  private lease: Lease;
  private tag: string;
  private renewedMs: number;
  private failure: Error | undefined;
  private isOver = false;
  private fail: (thrown: Error) => void = () => {};
  private readonly renewing: Promise<void>;

  private constructor(parts: LeaseParts, lease: Lease, tag: string, renewedMs: number) {
    this.parts = parts;
    this.lease = lease;
    this.tag = tag;
    this.renewedMs = renewedMs;
    this.epoch = lease.epoch;
    this.lost = new Promise((_, reject) => {
      this.fail = reject;
    });
    this.lost.catch(() => {});
    this.renewing = this.renew();
  }

  /** Takes the lease. With `waits` it waits as long as another process renews it; `onWait` runs
   *  between two looks at it.
   *  @returns undefined if the signal was aborted while it waited
   *  @throws state_locked without `waits`, if another process renews it */
  static async take(
    parts: LeaseParts,
    {
      waits,
      signal,
      onWait,
    }: { readonly waits: boolean; readonly signal: AbortSignal; readonly onWait: () => Promise<void> },
  ): Promise<StoreLease | undefined> {
    const { store, clock, sleep, log } = parts;
    let seenTag: string | undefined;
    let seenMs = clock.monotonicMs();
    let isFirst = true;
    while (!signal.aborted) {
      const startedMs = clock.monotonicMs();
      const found = await store.get(LEASE).catch((thrown: unknown) => {
        if (!waits || findMillraceError(thrown)?.code !== 'store_unavailable') throw thrown;
        log.warn(
          { error: findMillraceError(thrown)?.toLine() },
          'standby: the checkpoint store does not answer',
        );
        // Renewals may be missed meanwhile, so the time of the holder begins again.
        seenTag = undefined;
        return 'away' as const;
      });
      if (found === 'away') {
        await sleep(POLL_MS);
        continue;
      }
      const lease = found && decodeLease(found);
      if (found !== undefined && lease === undefined)
        throw engineError('state_corrupt', `${store.where} has no valid ${LEASE}`, {
          next: 'give another -checkpoint-store, or remove the object if no engine runs this job',
        });
      if (found?.tag !== seenTag) {
        const isRenewed = !isFirst && lease?.released === false;
        if (isRenewed && !waits)
          throw engineError('state_locked', `the job in ${store.where} is run by ${lease?.owner}`, {
            next: 'stop that engine, or give -standby to wait for its end',
          });
        if (isFirst && waits && lease?.released === false)
          log.info({ owner: lease.owner, epoch: lease.epoch }, 'standby: another engine runs the job');
        [seenTag, seenMs] = [found?.tag, startedMs];
      }
      const isFree = lease === undefined || lease.released || clock.monotonicMs() - seenMs >= LEASE_MS;
      if (isFree) {
        const next = { epoch: (lease?.epoch ?? 0) + 1, owner: ownerText(), renewals: 0, released: false };
        const tag = await store.replace(LEASE, encodeLease(next), found?.tag).catch((thrown: unknown) => {
          // A process that was stopped inside of a replacement holds the lock of a folder.
          if (!waits || findMillraceError(thrown)?.code !== 'state_locked') throw thrown;
          log.warn({ error: findMillraceError(thrown)?.toLine() }, 'standby: the lease cannot be taken yet');
          return undefined;
        });
        if (tag !== undefined) {
          log.info(
            { store: store.where, epoch: next.epoch, after: lease?.owner ?? null },
            'lease of the job taken',
          );
          return new StoreLease(parts, next, tag, startedMs);
        }
      }
      isFirst = false;
      await onWait();
      await sleep(POLL_MS);
    }
    return undefined;
  }

  /** Settles while the lease is held: results may be written. @throws store_fenced */
  async held(): Promise<void> {
    for (;;) {
      if (this.failure !== undefined) throw this.failure;
      if (this.parts.clock.monotonicMs() - this.renewedMs < HOLD_MS) return;
      await this.parts.sleep(POLL_MS / 5);
    }
  }

  /** Notes that another process has taken the job. */
  fence(lease: Lease | undefined): Error {
    this.failure ??= fenced(this.parts.store.where, lease);
    this.fail(this.failure);
    return this.failure;
  }

  /** Ends the renewals, and lets another process take the lease immediately. */
  async release(): Promise<void> {
    this.isOver = true;
    await this.renewing;
    if (this.failure !== undefined) return;
    await this.parts.store
      .replace(LEASE, encodeLease({ ...this.lease, released: true }), this.tag)
      .catch(() => {});
  }

  private async renew(): Promise<void> {
    const { store, clock, sleep, log } = this.parts;
    while (!this.isOver && this.failure === undefined) {
      await sleep(RENEW_MS);
      if (this.isOver) return;
      const startedMs = clock.monotonicMs();
      const next = { ...this.lease, renewals: this.lease.renewals + 1 };
      try {
        const tag = await store.replace(LEASE, encodeLease(next), this.tag);
        if (tag === undefined) {
          const found = await store.get(LEASE);
          this.fence(found && decodeLease(found));
          return;
        }
        this.lease = next;
        this.tag = tag;
        this.renewedMs = startedMs;
      } catch (thrown) {
        log.warn(
          { error: findMillraceError(thrown)?.toLine() ?? String(thrown) },
          'the lease of the job was not renewed',
        );
        await this.adoptLostAnswer(next);
      }
    }
  }

  /** A renewal whose answer was lost may have been written. */
  private async adoptLostAnswer(next: Lease): Promise<void> {
    const found = await this.parts.store.get(LEASE).catch(() => undefined);
    const lease = found && decodeLease(found);
    if (found === undefined || lease === undefined) return;
    if (lease.epoch !== this.epoch) this.fence(lease);
    else if (lease.renewals === next.renewals && found.tag !== this.tag) {
      this.lease = next;
      this.tag = found.tag;
    }
  }
}
