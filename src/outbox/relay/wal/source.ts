/** Source of rows from the write-ahead log: the relay that owns all shards reads the replication
 *  slot, the others are on standby.
 *
 *  Invariants: (1) this process keeps no position: each stream starts at the position of the slot,
 *  and consumers drop duplicates by msg_id; (2) the slot moves only to the end of a transaction up
 *  to which all rows are published and marked, after relay_slots records it; (3) a stream is
 *  trusted only after the rows that it may lack were published from the table; (4) a failure that
 *  repeats at one position leads to a new slot and a sweep, never to a loop.
 */
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { ReplicationDriver, ReplicationStream } from '../../../io/postgres/replication/port.ts';
import type { RowSource } from '../pipeline/contract.ts';
import type { SourceParts } from '../source.ts';
import { type Backlog, WalFeed } from './feed.ts';
import { WalKeeper } from './keeper.ts';
import { parseLsn } from './lsn.ts';
import { type WalMetrics, walMetrics } from './metrics.ts';
import { PARKING_LIMITS, WalParking } from './parking.ts';
import { PAGE_ROWS, ROUND_IDS_MAX } from './round.ts';
import { columnsChanged, OutboxRows } from './rows.ts';
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
import { prepareSlot, remainsUnchanged } from './start.ts';
import { PARK_KEYS_MAX, WalSweep } from './sweep.ts';

export interface WalSourceOptions {
  readonly driver: ReplicationDriver;
  /** Address of the database, for the stream's own connection. */
  readonly url: string;
  readonly names: NameOptions;
  readonly connectTimeoutMs: number;
  /** Time between two heartbeat messages, which move a quiet slot. */
  readonly heartbeatMs: number;
  /** Time between two audits of the table for rows that the stream did not deliver. */
  readonly auditMs: number;
  /** Messages of the stream above this size are skipped; their rows stay pending. */
  readonly messageBytesMax: number;
}

const SWEEP_LIMITS = { idsMax: ROUND_IDS_MAX, pageRows: PAGE_ROWS, parkKeysMax: PARK_KEYS_MAX } as const;

const STANDBY_POLL_MS = 50;
const TICK_MS = 20;
/** Pause between two sweeps while a slot is being created. */
const SWEEP_MS = 200;
/** Feedback interval: a sixth of the server's timeout, within these limits. */
const FEEDBACK_MS_MIN = 100;
const FEEDBACK_MS_MAX = 10_000;
const FEEDBACK_PARTS = 6;
const SILENCE_MS_MIN = 10_000;
const SILENCE_MS_DEFAULT = 60_000;
const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 5000;
/** Failures at one position after which the slot is dropped. */
const STUCK_MAX = 3;
/** SQLSTATE of a slot that is still in use, by a walsender that is ending or by a relay that was
 *  silent. */
const IN_USE = '55006';
/** SQLSTATEs that say nothing about the stream: the server stops or starts, lacks resources, or the
 *  connection failed. */
const PASSING = /^(57|53|55006|08)/;
/** Errors that no retry can fix before the first stream. */
const CONFIGURED_WRONG = new Set(['wal_not_possible', 'slot_taken', 'bad_value']);

/** Source of a relay that reads PostgreSQL's write-ahead log through a replication slot, instead
 *  of polling the table.
 */
export class WalSource implements RowSource {
  private readonly parts: SourceParts;
  private readonly options: WalSourceOptions;
  private readonly metrics: WalMetrics;
  private readonly parking: WalParking;
  private readonly sweeper: WalSweep;
  private lastError: string | undefined = 'no stream has started yet';
  private everHealthy = false;
  private generation = -1;
  private stuckAt: bigint | undefined;
  private stuck = 0;
  private lastStatus = '';

  constructor(parts: SourceParts, options: WalSourceOptions) {
    this.parts = parts;
    this.options = options;
    this.metrics = walMetrics(parts.metrics);
    const { pipeline, log, sleep } = parts;
    const pageBytes = parts.bytesMax;
    this.parking = new WalParking({
      pipeline,
      metrics: this.metrics,
      log,
      limits: { ...PARKING_LIMITS, pageBytes },
    });
    this.sweeper = new WalSweep({
      pipeline,
      metrics: this.metrics,
      parking: this.parking,
      log,
      sleep,
      mayContinue: () => this.mayContinue(),
      limits: { ...SWEEP_LIMITS, pageBytes },
    });
  }

  failureReason(): string | undefined {
    return this.lastError;
  }

  async run(): Promise<void> {
    const { drain, sleep, log, ownership } = this.parts;
    let failures = 0;
    while (!drain.aborted) {
      if (!this.ownsAll()) {
        this.metrics.active.set(0);
        this.lastError = undefined;
        await sleep(STANDBY_POLL_MS);
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
        if (this.lastError === undefined) failures = 0;
        this.lastError = error.message;
        failures++;
        this.metrics.reconnects.add();
        const fields = { code: error.code, error: error.message, sqlstate: sqlstateOf(error), failures };
        log.warn(fields, 'the stream ended; it is started again at the position of the slot');
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

  private mayContinue(): boolean {
    return (
      !this.parts.drain.aborted && this.ownsAll() && this.parts.ownership.generation() === this.generation
    );
  }

  /** Runs one stream, from the preparation of the slot to the end of the stream. True:
   *  `exitWhenDrained` is reached. */
  private async lead(): Promise<boolean> {
    const { pool, table, log } = this.parts;
    // Turns of the previous stream: rows that they read from the table may be older than those that
    // the next stream delivers.
    await this.parking.settled();
    const names = await walNames(pool, table, this.options.names);
    const slot = new WalSlot(pool, names);
    const rows = new OutboxRows(pool, table, names);
    const prepared = await prepareSlot(slot, {
      log,
      metrics: this.metrics,
      whileMaking: (making, reason) => this.sweepWhile(making, rows, reason),
    });
    if (prepared === undefined) return false;
    const { unswept } = prepared;
    if (unswept !== null) {
      if (!(await this.sweeper.sweep(rows, unswept.to, unswept.reason))) return false;
      // Recorded here, so that a crash before the first confirmation does not lose the need for a
      // sweep of parked rows.
      if (this.parking.size > 0) await slot.allow(0n, this.parking.highest());
      else await slot.swept();
    } else if (this.parking.size > 0) {
      // A relay of an earlier release writes without a claim, and so may have cleared the record of
      // rows that are parked here.
      await slot.allow(0n, this.parking.highest());
    }
    this.sweeper.reset();
    if (!this.mayContinue()) return false;
    try {
      return await this.stream(slot, names, rows);
    } catch (thrown) {
      await this.dropStuckSlot(slot, thrown);
      throw thrown;
    }
  }

  /** Publishes pending rows from the table while the server creates a slot, because that waits for
   *  every open transaction. True when the slot exists. */
  private async sweepWhile(making: Promise<void>, rows: OutboxRows, reason: SweepReason): Promise<boolean> {
    let over = false;
    const settled = making.finally(() => {
      over = true;
    });
    settled.catch(() => {});
    while (!over && this.mayContinue()) {
      await Promise.race([settled, this.parts.sleep(SWEEP_MS)]).catch(() => {});
      if (!over) await this.sweeper.sweep(rows, ID_MAX, reason === 'first_start' ? reason : 'no_slot');
    }
    if (!over) return false;
    await settled;
    return true;
  }

  /** Counts failures of the stream at one position. After STUCK_MAX it drops the slot, so that the
   *  table is swept instead. */
  private async dropStuckSlot(slot: WalSlot, thrown: unknown): Promise<void> {
    const error = findMillraceError(thrown);
    const state = sqlstateOf(thrown);
    const atFault =
      error?.code === 'wal_undecodable' ||
      error?.code === 'replication_protocol' ||
      (error?.code === 'replication_failed' && state !== undefined && !PASSING.test(state));
    if (!atFault) return;
    const found = await slot.readState().catch(() => undefined);
    if (found === undefined) return;
    this.stuck = found.confirmed === this.stuckAt ? this.stuck + 1 : 1;
    this.stuckAt = found.confirmed;
    if (this.stuck < STUCK_MAX || !this.mayContinue()) return;
    this.stuck = 0;
    const record = await slot.readRecord();
    if (record === undefined) return;
    this.parts.log.error(
      { code: error.code, error: error.message },
      'the stream cannot be read any further; its slot is dropped',
    );
    await slot.saveRecord({ ...record, unswept: { reason: 'undecodable', to: ID_MAX } });
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
      backlog: await backlogOf(rows),
      sleep,
      verify: async () => {
        if (!(await slot.isPublished())) throw columnsChanged(names.table);
      },
      failed: (thrown) => {
        failure ??= { thrown };
      },
    });
    // The next stream delivers once more, in order, all rows that the previous stream left, so no
    // key may stay blocked.
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
    // Other programs cannot drop or move a slot that is being read, so this check sees the slot of
    // this stream. The check before may have seen another slot of that name.
    const unchanged = await remainsUnchanged(slot).catch(async (thrown: unknown) => {
      await stream.close();
      throw thrown;
    });
    if (over || !unchanged) {
      feed.stop();
      await stream.close();
      if (failure !== undefined) throw failure.thrown;
      return false;
    }
    feed.open();
    this.metrics.active.set(1);
    this.lastError = undefined;
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
    const runs = (): boolean => !over && !done && failure === undefined && this.mayContinue();
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
    // A former owner closes the stream immediately, because its successor waits for the slot.
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

  /** Starts the stream. This relay owns the outbox, so another reader of the slot was silent for
   *  too long and is terminated. */
  private async open(slot: WalSlot, names: WalNames, feed: WalFeed): Promise<ReplicationStream> {
    const { driver, url, connectTimeoutMs, messageBytesMax } = this.options;
    const { log, sleep } = this.parts;
    for (;;) {
      const session = await driver.connect({ url, applicationName: 'millrace relay wal', connectTimeoutMs });
      const { senderTimeoutMs, identity } = session;
      if (identity.systemIdentifier !== (await slot.systemIdentifier())) {
        await session.close();
        throw coreError(
          'unreachable',
          'the replication stream and the SQL statements reach two different servers',
          {
            next: 'give an address in -postgres that leads to one server',
          },
        );
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
              'a message of the stream is too large; its row stays pending until an audit of the table finds it',
            );
          },
        });
      } catch (thrown) {
        await session.close();
        if (sqlstateOf(thrown) !== IN_USE || !this.mayContinue()) throw thrown;
        const pid = await slot.endHolder();
        if (pid !== undefined)
          log.warn({ walsender: pid }, "terminated the walsender of the slot's previous owner");
        await sleep(TICK_MS);
      }
    }
  }

  /** Logs when the slot gets into danger, and when it is safe again. */
  private alarm(names: WalNames, status: string): void {
    if (status === this.lastStatus) return;
    const fields = { slot: names.slot, wal_status: status };
    const { log } = this.parts;
    if (status === 'unreserved' || status === 'lost')
      log.error(
        fields,
        'the server is about to invalidate the slot, or has done so; raise max_slot_wal_keep_size',
      );
    else if (this.lastStatus === 'unreserved' || this.lastStatus === 'lost')
      log.info(fields, 'the slot is safe again');
    this.lastStatus = status;
  }
}

/** Reads where the backlog of a stream ends. No other relay marks rows any more, because this one
 *  owns all shards. */
async function backlogOf(rows: OutboxRows): Promise<Backlog> {
  const end = parseLsn((await rows.sight(0, new Set())).lsn) ?? 0n;
  // Every transaction that committed below `end` has a lower number.
  const above = await rows.numberAbove();
  return { end, published: (asked) => rows.published(asked, above) };
}
