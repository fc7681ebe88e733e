/** Rows as the write-ahead log shows them: the relay that owns all shards reads the slot, the others stand by.
 *
 *  Invariants: (1) no position is kept on this side: each stream starts where the slot stands, and what comes twice is absorbed
 *  by its msg_id; (2) the slot moves only to the end of a transaction before which everything is published and marked, after
 *  relay_slots knows it; (3) a stream is believed only after what it may lack was published by row; (4) a failure that
 *  repeats at one place ends in a new slot and a sweep, never in a loop.
 */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { ReplicationDriver, ReplicationStream } from '../../../io/postgres/replication/port.ts';
import type { Source } from '../pipeline/contract.ts';
import type { SourceParts } from '../source.ts';
import { WalFeed } from './feed.ts';
import { WalKeeper } from './keeper.ts';
import { type WalMetrics, walMetrics } from './metrics.ts';
import { PARKING_LIMITS, WalParking } from './parking.ts';
import { PAGE_ROWS, ROUND_IDS_MAX } from './round.ts';
import { OutboxRows } from './rows.ts';
import {
  ID_MAX,
  ID_MIN,
  type NameOptions,
  type SweepReason,
  sqlstateOf,
  type WalNames,
  WalSlot,
  walNames,
} from './slot.ts';
import { arrange, isAsJudged } from './start.ts';
import { PARK_KEYS_MAX, WalSweep } from './sweep.ts';

export interface WalSourceOptions {
  readonly driver: ReplicationDriver;
  /** The address of the pool, for a connection of the stream's own. */
  readonly url: string;
  readonly names: NameOptions;
  readonly connectTimeoutMs: number;
  /** How often a message is written so that a quiet slot moves. */
  readonly heartbeatMs: number;
  /** How often the table is looked through for rows the stream did not show. */
  readonly auditMs: number;
  /** Messages of the stream above this are passed over; their rows stay pending. */
  readonly messageBytesMax: number;
}

const SWEEP_LIMITS = { idsMax: ROUND_IDS_MAX, pageRows: PAGE_ROWS, parkKeysMax: PARK_KEYS_MAX } as const;

const STANDBY_LOOK_MS = 50;
const TICK_MS = 20;
/** How often a sweep is repeated while a slot is being made. */
const SWEEP_MS = 200;
/** A sixth of the server's patience, within these. */
const FEEDBACK_MS_MIN = 100;
const FEEDBACK_MS_MAX = 10_000;
const FEEDBACK_PARTS = 6;
const SILENCE_MS_MIN = 10_000;
const SILENCE_MS_DEFAULT = 60_000;
const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 5000;
/** Failures at one position, before the slot is given up. */
const STUCK_MAX = 3;
/** The slot is still held, by a sender that ends or by a relay that was silent. */
const IN_USE = '55006';
/** Errors of the server that say nothing about the stream: it stops, starts, or has no connection left. */
const PASSING = /^(57|53|55006|08)/;
/** At the first start no other try can cure these. */
const CONFIGURED_WRONG = new Set(['wal_not_possible', 'slot_taken', 'bad_value']);

export class WalSource implements Source {
  private readonly parts: SourceParts;
  private readonly options: WalSourceOptions;
  private readonly metrics: WalMetrics;
  private readonly parking: WalParking;
  private readonly sweeper: WalSweep;
  private lastTrouble: string | undefined = 'no stream has begun yet';
  private everHealthy = false;
  private generation = -1;
  private stuckAt: bigint | undefined;
  private stuck = 0;
  private lastStatus = '';

  constructor(parts: SourceParts, options: WalSourceOptions) {
    this.parts = parts;
    this.options = options;
    this.metrics = walMetrics(parts.metrics);
    const { pipeline, clock, log, sleep } = parts;
    const pageBytes = parts.bytesMax;
    this.parking = new WalParking({
      pipeline,
      metrics: this.metrics,
      clock,
      log,
      limits: { ...PARKING_LIMITS, pageBytes },
    });
    this.sweeper = new WalSweep({
      pipeline,
      metrics: this.metrics,
      parking: this.parking,
      log,
      sleep,
      goesOn: () => this.goesOn(),
      limits: { ...SWEEP_LIMITS, pageBytes },
    });
  }

  trouble(): string | undefined {
    return this.lastTrouble;
  }

  async run(): Promise<void> {
    const { drain, sleep, log, ownership } = this.parts;
    let failures = 0;
    while (!drain.aborted) {
      if (!this.ownsAll()) {
        this.metrics.active.set(0);
        this.lastTrouble = undefined;
        await sleep(STANDBY_LOOK_MS);
        continue;
      }
      if (this.generation !== ownership.generation()) {
        this.generation = ownership.generation();
        await this.parking.settled();
        this.parking.clear();
      }
      try {
        if (await this.lead()) return;
        failures = 0;
      } catch (thrown) {
        const error = findMillraceError(thrown);
        if (error === undefined || (!this.everHealthy && CONFIGURED_WRONG.has(error.code))) throw thrown;
        if (this.lastTrouble === undefined) failures = 0;
        this.lastTrouble = error.message;
        failures++;
        this.metrics.reconnects.add();
        const fields = { code: error.code, error: error.message, sqlstate: sqlstateOf(error), failures };
        log.warn(fields, 'the stream ended; it is started again where the slot stands');
        await sleep(Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(failures - 1, 10)));
      } finally {
        this.metrics.active.set(0);
      }
    }
  }

  private ownsAll(): boolean {
    const { ownership } = this.parts;
    return ownership.owned().length === ownership.shards;
  }

  private goesOn(): boolean {
    return (
      !this.parts.drain.aborted && this.ownsAll() && this.parts.ownership.generation() === this.generation
    );
  }

  /** One stream, from the slot to its end. True: everything that was asked for is done. */
  private async lead(): Promise<boolean> {
    const { pool, table, log } = this.parts;
    // Of the stream before: what it reads from the table is older than what the next one shows.
    await this.parking.settled();
    const names = await walNames(pool, table, this.options.names);
    const slot = new WalSlot(pool, names);
    const rows = new OutboxRows(pool, table, names.hasTraceparent);
    const arranged = await arrange(slot, {
      log,
      metrics: this.metrics,
      whileMaking: (making, reason) => this.sweepWhile(making, rows, reason),
    });
    if (arranged === undefined) return false;
    const { unswept } = arranged;
    if (unswept !== null) {
      if (!(await this.sweeper.sweep(rows, unswept.to, unswept.reason))) return false;
      // Who parked rows and dies before the first confirmation leaves word of them.
      if (this.parking.size > 0) await slot.allow(0n, this.parking.highest());
      else await slot.swept();
    } else if (this.parking.size > 0) {
      // A relay of an earlier release notes without a claim, and so may have wiped the word of rows that are parked here.
      await slot.allow(0n, this.parking.highest());
    }
    this.sweeper.reset();
    if (!this.goesOn()) return false;
    try {
      return await this.stream(slot, names, rows);
    } catch (thrown) {
      await this.giveUpStuck(slot, thrown);
      throw thrown;
    }
  }

  /** A slot waits for every open transaction; until it is there, rows are published by their state. */
  private async sweepWhile(making: Promise<void>, rows: OutboxRows, reason: SweepReason): Promise<boolean> {
    let over = false;
    const settled = making.finally(() => {
      over = true;
    });
    settled.catch(() => {});
    while (!over && this.goesOn()) {
      await Promise.race([settled, this.parts.sleep(SWEEP_MS)]).catch(() => {});
      if (!over) await this.sweeper.sweep(rows, ID_MAX, reason === 'first_start' ? reason : 'no_slot');
    }
    if (!over) return false;
    await settled;
    return true;
  }

  /** Where the same place fails again and again, the slot is dropped; the table is swept instead. */
  private async giveUpStuck(slot: WalSlot, thrown: unknown): Promise<void> {
    const error = findMillraceError(thrown);
    const state = sqlstateOf(thrown);
    const atFault =
      error?.code === 'wal_undecodable' ||
      error?.code === 'replication_protocol' ||
      (error?.code === 'replication_failed' && state !== undefined && !PASSING.test(state));
    if (!atFault) return;
    const found = await slot.look().catch(() => undefined);
    if (found === undefined) return;
    this.stuck = found.confirmed === this.stuckAt ? this.stuck + 1 : 1;
    this.stuckAt = found.confirmed;
    if (this.stuck < STUCK_MAX || !this.goesOn()) return;
    this.stuck = 0;
    const memory = await slot.recall();
    if (memory === undefined) return;
    this.parts.log.error(
      { code: error.code, error: error.message },
      'the stream cannot be read any further; its slot is given up',
    );
    await slot.remember({ ...memory, unswept: { reason: 'undecodable', to: ID_MAX } });
    await slot.drop();
  }

  private async stream(slot: WalSlot, names: WalNames, rows: OutboxRows): Promise<boolean> {
    const { pipeline, sleep } = this.parts;
    let failure: { readonly thrown: unknown } | undefined;
    const feed = new WalFeed({
      pipeline,
      schema: names.schema,
      table: names.table,
      metrics: this.metrics,
      parking: this.parking,
      waitingBytesMax: this.parts.bytesMax,
      sleep,
      failed: (thrown) => {
        failure ??= { thrown };
      },
    });
    // The stream brings again, in order, whatever was left of the one before: nothing of it waits for anything else.
    await pipeline.idle();
    await pipeline.deliver([], { from: ID_MIN, to: ID_MAX });
    const stream = await this.open(slot, names, feed);
    let over = false;
    stream.ended.then(
      () => {
        over = true;
      },
      (thrown: unknown) => {
        over = true;
        failure ??= { thrown };
      },
    );
    feed.attach(stream);
    // Nobody can drop or move a slot that is read, so this look is at the slot of this stream; the one before may have been
    // at another of that name.
    const asJudged = await isAsJudged(slot).catch(async (thrown: unknown) => {
      await stream.close();
      throw thrown;
    });
    if (over || !asJudged) {
      feed.stop();
      await stream.close();
      if (failure !== undefined) throw failure.thrown;
      return false;
    }
    feed.open();
    this.metrics.active.set(1);
    this.lastTrouble = undefined;
    this.everHealthy = true;
    const keeper = new WalKeeper({
      slot,
      rows,
      feed,
      stream,
      metrics: this.metrics,
      parking: this.parking,
      sweeper: this.sweeper,
      clock: this.parts.clock,
      heartbeatMs: this.options.heartbeatMs,
      auditMs: this.options.auditMs,
      onStatus: (status) => this.alarm(names, status),
    });
    let done = false;
    const runs = (): boolean => !over && !done && failure === undefined && this.goesOn();
    const keeping = (async () => {
      while (runs()) {
        await keeper.keep();
        if (this.parts.exitWhenDrained && runs() && (await keeper.isDrained())) done = true;
        if (runs()) await sleep(TICK_MS);
      }
    })().catch((thrown: unknown) => {
      failure ??= { thrown };
    });
    while (runs()) await sleep(TICK_MS);
    feed.stop();
    // Who owns nothing any more lets the slot go at once; the successor waits for it.
    if (!this.ownsAll() || failure !== undefined) await stream.close();
    await keeping;
    await keeper.settled();
    await feed.idle();
    try {
      if (failure === undefined && this.ownsAll()) await keeper.confirm();
    } finally {
      await stream.close();
    }
    if (failure !== undefined) throw failure.thrown;
    return done;
  }

  /** Starts the stream; whoever holds the slot though this relay owns the outbox was silent for too long, and is ended. */
  private async open(slot: WalSlot, names: WalNames, feed: WalFeed): Promise<ReplicationStream> {
    const { driver, url, connectTimeoutMs, messageBytesMax } = this.options;
    const { log, sleep } = this.parts;
    for (;;) {
      const session = await driver.connect({ url, applicationName: 'millrace relay wal', connectTimeoutMs });
      const { senderTimeoutMs, identity } = session;
      if (identity.systemIdentifier !== (await slot.systemIdentifier())) {
        await session.close();
        throw coreError('unreachable', 'the stream and the statements reach two different servers', {
          next: 'give an address in -postgres that leads to one server',
        });
      }
      const patience = senderTimeoutMs === 0 ? SILENCE_MS_DEFAULT : senderTimeoutMs;
      try {
        return await session.start({
          slot: names.slot,
          publication: names.publication,
          feedbackMs: Math.min(FEEDBACK_MS_MAX, Math.max(FEEDBACK_MS_MIN, patience / FEEDBACK_PARTS)),
          silenceMs: Math.max(SILENCE_MS_MIN, patience),
          messageBytesMax,
          onMessage: feed.onMessage,
          onKeepalive: feed.onKeepalive,
          onOversize: (byteCount) => {
            this.metrics.oversize.add();
            log.error(
              { bytes: byteCount },
              'a message of the stream is too large; its row stays pending for the sweep',
            );
          },
        });
      } catch (thrown) {
        await session.close();
        if (sqlstateOf(thrown) !== IN_USE || !this.goesOn()) throw thrown;
        const pid = await slot.endHolder();
        if (pid !== undefined)
          log.warn({ pid }, 'ended the sender that held the slot for a relay which owns it no more');
        await sleep(TICK_MS);
      }
    }
  }

  /** One line when the slot gets into danger, one when it is out of it. */
  private alarm(names: WalNames, status: string): void {
    if (status === this.lastStatus) return;
    const fields = { slot: names.slot, wal_status: status };
    const { log } = this.parts;
    if (status === 'unreserved' || status === 'lost')
      log.error(fields, 'the server is about to give up the slot, or has: raise max_slot_wal_keep_size');
    else if (this.lastStatus === 'unreserved' || this.lastStatus === 'lost')
      log.info(fields, 'the slot is safe again');
    this.lastStatus = status;
  }
}
