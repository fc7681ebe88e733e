/** A relay over an outbox table: leases, a source of rows, the pipeline and the marks put together. The drivers are handed in, so
 *  that any service can run one beside its own work.
 *
 *      const relay = new Relay({ sql: pgDriver, broker: librdkafkaDriver, clock, metrics, log, settings });
 *      await relay.open();
 *      await relay.run(drain);     // until the signal is aborted
 *      await relay.close();
 */

import { type Cancel, sleep, type Timers } from '../../core/clock.ts';
import { coreError, findMillraceError } from '../../core/errors.ts';
import type { Logger } from '../../core/log.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import type { SqlDriver, SqlPool } from '../../io/postgres/sql/port.ts';
import type { WakeDriver, WakeListener } from '../../io/wake/port.ts';
import { withSettings } from '../database/connection.ts';
import { type Migration, migrate, requireColumn, requireTables } from '../database/migrations.ts';
import { outboxError } from '../errors.ts';
import { IdleSlots } from './idle-slots.ts';
import { exposeLeases } from './lease-metrics.ts';
import { Leases } from './leases.ts';
import type { Source } from './pipeline/contract.ts';
import { EventEncoder, RELAY_MODES, type RelayMode } from './pipeline/event.ts';
import { Marker } from './pipeline/marker.ts';
import { ProducerWatchdog } from './pipeline/producer-watchdog.ts';
import { type Entry, Publisher } from './pipeline/publisher.ts';
import type { Sender } from './pipeline/sender.ts';
import { RECORD_BYTES_MOST, TopicClient, type TopicSettings } from './pipeline/topic-client.ts';
import { type PollParts, PollSource } from './poll/source.ts';
import { isShardCount } from './shards.ts';
import type { RelayCrashPoint, SourceParts } from './source.ts';
import { describeOutbox, type OutboxTable } from './store.ts';
import { RELAY_TABLES } from './tables.ts';
import { LagMeter, XminMonitor } from './xmin-monitor.ts';

export interface RelaySettings {
  readonly postgres: string;
  readonly brokers: string;
  /** Of the relay's own tables, and of the outbox where `table` names none. */
  readonly schema: string;
  /** `table` or `schema.table`. */
  readonly table: string;
  readonly topic: string;
  /** Header ce_source. */
  readonly source: string;
  readonly mode: RelayMode;
  /** A name that no other relay has, also not the one before a restart. */
  readonly name: string;
  readonly shards: number;
  readonly leaseMs: number;
  /** mark: leases and the epoch of each mark; broker: a transaction a batch as well, which shuts out a relay whose lease has expired. */
  readonly fence: 'mark' | 'broker';
  readonly rowsMax: number;
  readonly pollIntervalMs: number;
  readonly rescanMs: number;
  /** Payload bytes in memory, read and not yet marked; one row above it still passes, alone. */
  readonly inFlightBytesMax: number;
  /** How long the database may leave a statement unanswered before its connection is given up and made again. */
  readonly answerTimeoutMs: number;
  /** How long a batch may wait for the broker before the relay is not ready, and asks whether the topic has its leaders. */
  readonly deliveryTimeoutMs: number;
  readonly horizonWarnMs: number;
  /** Absent: the topic must be there. */
  readonly createTopic: TopicSettings | undefined;
  readonly exitWhenDrained: boolean;
}

export interface RelayOptions {
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  /** Absent: the relay looks every poll interval. */
  readonly wake?: WakeDriver | undefined;
  readonly clock: Timers;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly settings: RelaySettings;
  /** Applied by `open` when given. */
  readonly migrations?: readonly Migration[] | undefined;
  /** Absent: pending rows are polled. */
  readonly makeSource?: ((parts: SourceParts, table: OutboxTable) => Source) | undefined;
  /** For chaos runs: ends the process at this point once `crashAfter` rows are published. */
  readonly crash?:
    | { readonly point: RelayCrashPoint; readonly after: number; readonly end: () => void }
    | undefined;
}

/** Every statement has one right plan: along an index, from where it begins. Statistics of a table that fills while nobody has analysed
 *  it would say otherwise, and a plan is kept. */
const PLANNER = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  jit: 'off',
} as const;

const CONNECT_TIMEOUT_MS = 5000;
/** The server's own limit comes first, so that it does not continue a statement whose caller has gone. */
const ANSWER_GRACE_MS = 1000;
/** A short lease is no reason to give up a database that is slow for a moment. */
const ANSWER_LEAST_MS = 1000;
/** Reads, looks at lag and horizon, the sweep. */
const CONNECTIONS = 3;
const LOOK_EVERY_MS = 1000;
const HORIZON_EVERY_MS = 5000;
const SLOTS_EVERY_MS = 60_000;
const MARK_ROWS_MAX = 2000;
const MARK_WITHIN_MS = 25;
const MARK_MISSING_MS = 30_000;
const UNDER_WAY_ROWS_MAX = 16_384;
const ROW_OVERHEAD_BYTES = 1024;
const PAYLOAD_BYTES_TYPICAL = 1024;
/** Of a batch for the broker, where no record needs more. */
const FLIGHT_BYTES_MAX = 16 * 1024 * 1024;
/** Share of the bytes in memory that a source reads together. It waits while the rest of them is in flight. */
const READ_PART = 0.25;
/** Rows that come within it share a read, a flight and a mark. */
const SPACING_MS = 5;
const STRAGGLER_AFTER_MS = 1000;
const BACKOFF_MAX_MS = 5000;
/** At the drain, rows in flight are waited for this long, then given up: they stay pending. */
const GIVE_UP_MS = 10_000;
const BEAT_AGAIN_MS = 500;

interface PublishingParts {
  readonly sender: Sender;
  readonly marker: Marker<Entry>;
  readonly publishing: Publisher;
  readonly overdue: ProducerWatchdog;
}

export class Relay {
  private readonly options: RelayOptions;
  private readonly closers: Array<() => Promise<void> | void> = [];
  private parts:
    | ({
        readonly pool: SqlPool;
        readonly table: OutboxTable;
        readonly leases: Leases;
      } & PublishingParts)
    | undefined;
  private source: Source | undefined;
  private woken: (() => void) | undefined;
  private failed: (thrown: unknown) => void = () => {};
  private wakePending = false;
  private beatTrouble: string | undefined = 'no beat yet';
  private readonly drain = new AbortController();

  constructor(options: RelayOptions) {
    this.options = options;
    if (!isShardCount(options.settings.shards)) {
      throw coreError('bad_value', `-shards=${options.settings.shards} is no power of two up to 256`, {
        next: 'give 1, 2, 4, … 256',
      });
    }
    checkMode(options);
  }

  /** Connects, checks the tables and makes the topic. @throws unreachable, tables_missing, table_unusable, lease_mismatch */
  async open(): Promise<void> {
    const { sql, settings, metrics, log } = this.options;
    const { schema } = settings;
    await this.migrate();
    const pool = await this.connect(CONNECTIONS, true, settings.answerTimeoutMs);
    const table = await describeOutbox(pool, settings.table);
    await requireTables(pool, schema, RELAY_TABLES, 'relay');
    await requireColumn(pool, schema, 'relay_leases', 'topic', 'relay');
    if (table.sequence === undefined)
      log.warn(
        { table: table.fullName },
        'ids do not come from one sequence that the relay may read, with CACHE 1: every read begins at the lowest pending id',
      );
    log.debug({ driver: sql.name, table: table.fullName }, 'outbox found');
    const side = new TopicClient(this.options, (ms) => this.sleep(ms), this.drain.signal);
    const leases = await this.openLeases(table, side);
    // Before a topic is made that no relay here may publish to.
    await leases.check();
    this.parts = { pool, table, leases, ...(await this.openPublishing(side, table, leases)) };
    await leases.beat(() => true);
    this.beatTrouble = undefined;
    exposeLeases(leases, metrics);
    await this.listen(pool, table);
  }

  /** Opens the leases of the relay's shards. */
  private async openLeases(table: OutboxTable, side: TopicClient): Promise<Leases> {
    const { settings, log, clock } = this.options;
    return new Leases({
      // An answer that is later than the lease would come too late.
      pool: await this.connect(
        1,
        true,
        Math.min(settings.answerTimeoutMs, Math.max(settings.leaseMs, ANSWER_LEAST_MS)),
      ),
      outbox: table.fullName,
      shards: settings.shards,
      topic: settings.topic,
      relay: settings.name,
      mode: settings.mode,
      exclusive: settings.mode === 'wal',
      leaseMs: settings.leaseMs,
      clock,
      log,
      ...(settings.fence === 'broker'
        ? { transactionalId: side.transactionalId(table), fence: (ids: readonly string[]) => side.fence(ids) }
        : {}),
    });
  }

  /** Makes the topic and opens what publishes into it. */
  private async openPublishing(
    side: TopicClient,
    table: OutboxTable,
    leases: Leases,
  ): Promise<PublishingParts> {
    const { settings, metrics, log, clock } = this.options;
    const crashAt = (point: RelayCrashPoint, unfinished: number): void => this.crashAt(point, unfinished);
    const recordBytesMax = await side.ensureTopic();
    const markPool = await this.connect(1, false, settings.answerTimeoutMs);
    const sender = await side.sender(table, recordBytesMax);
    this.closers.push(() => sender.close());
    const marker = new Marker<Entry>({
      pool: markPool,
      table,
      metrics,
      log,
      clock,
      rowsMax: MARK_ROWS_MAX,
      withinMs: MARK_WITHIN_MS,
      missingAfterMs: MARK_MISSING_MS,
      crashAt,
    });
    const typical = Math.min(
      FLIGHT_BYTES_MAX,
      settings.rowsMax * (ROW_OVERHEAD_BYTES + PAYLOAD_BYTES_TYPICAL),
    );
    const publishing = new Publisher({
      sender,
      encoder: new EventEncoder(settings.mode, settings.source),
      marker,
      leases,
      metrics,
      log,
      clock,
      flightRowsMax: settings.rowsMax,
      flightBytesMax: Math.max(typical, Math.min(recordBytesMax, RECORD_BYTES_MOST) + ROW_OVERHEAD_BYTES),
      recordBytesMax,
      underWay: {
        rows: Math.max(UNDER_WAY_ROWS_MAX, 4 * settings.rowsMax),
        bytes: settings.inFlightBytesMax * (1 - READ_PART),
      },
      crashAt,
      onTopicMissing: () => side.topicMissing(),
      onFenced: () => leases.forget(),
      onFailed: (thrown) => this.failed(thrown),
    });
    const overdue = new ProducerWatchdog({
      publishing,
      sender,
      side,
      clock,
      metrics,
      log,
      patienceMs: settings.deliveryTimeoutMs,
    });
    return { sender, marker, publishing, overdue };
  }

  /** Publishes until the signal is aborted, or with exitWhenDrained until nothing is pending. */
  async run(drain: AbortSignal): Promise<void> {
    const { options, parts } = this;
    if (parts === undefined) throw coreError('internal', 'the relay is not open');
    const stop = (): void => {
      this.drain.abort();
      this.woken?.();
    };
    if (drain.aborted) stop();
    drain.addEventListener('abort', stop, { once: true });
    const sourceParts: PollParts = {
      pool: parts.pool,
      table: parts.table.name,
      pipeline: parts.publishing,
      ownership: parts.leases,
      metrics: options.metrics,
      log: options.log,
      clock: options.clock,
      sleep: (ms) => this.sleep(ms),
      sleepUntilWoken: (ms) => this.sleepUntilWoken(ms),
      drain: this.drain.signal,
      bytesMax: this.readBytesMax(),
      crashAt: (point, unfinished) => this.crashAt(point, unfinished),
      exitWhenDrained: options.settings.exitWhenDrained,
    };
    this.source = options.makeSource?.(sourceParts, parts.table) ?? this.pollSource(sourceParts, parts.table);
    let failure: { readonly thrown: unknown } | undefined;
    const failed = (thrown: unknown): void => {
      failure ??= { thrown };
      stop();
    };
    this.failed = failed;
    const beating = this.keepBeating(parts.leases, parts.publishing).catch(failed);
    const looking = this.keepLooking(parts.pool, parts.table).catch(failed);
    // Not awaited: a broker that does not answer it ends by itself.
    this.keepMoving(parts.overdue).catch(failed);
    const giveUp = new Promise<void>((resolve) => {
      this.drain.signal.addEventListener('abort', () => {
        options.clock.after(GIVE_UP_MS, resolve, 'background');
      });
    }).then(async () => {
      await parts.sender.close();
      parts.marker.stop();
      parts.publishing.abandon();
    });
    giveUp.catch(failed);
    try {
      await this.source.run();
    } finally {
      stop();
      drain.removeEventListener('abort', stop);
      await Promise.all([beating, looking]);
      // Without the database the lease runs out by itself.
      await parts.leases.leave().catch(() => {});
    }
    if (failure !== undefined) throw failure.thrown;
  }

  /** Whether database, broker and leases answered lately. A standby is ready. */
  isReady(): boolean {
    return this.unreadyReason() === undefined;
  }

  /** What did not answer lately; undefined where all did. */
  unreadyReason(): string | undefined {
    const { parts, source } = this;
    const { leaseMs, deliveryTimeoutMs } = this.options.settings;
    if (parts === undefined || source === undefined) return 'the relay has not started';
    const { leases, marker, sender, publishing } = parts;
    if (this.beatTrouble !== undefined) return `the leases are not renewed: ${this.beatTrouble}`;
    if (leases.hasLapsed()) return `the database has answered no beat of the leases for ${leaseMs} ms`;
    const read = source.trouble();
    if (read !== undefined) return `rows are not read: ${read}`;
    const mark = marker.trouble();
    if (mark !== undefined) return `rows are not marked: ${mark}`;
    if (!sender.isHealthy()) return 'the broker did not take the last batch';
    const waitedMs = Math.round(publishing.oldestFlightMs());
    if (waitedMs >= deliveryTimeoutMs) return `the broker has not acknowledged a batch for ${waitedMs} ms`;
    return undefined;
  }

  async close(): Promise<void> {
    for (const close of this.closers.splice(0).reverse()) await close();
  }

  private pollSource(parts: PollParts, table: OutboxTable): Source {
    const { settings } = this.options;
    return new PollSource(parts, table, {
      rowsMax: settings.rowsMax,
      bytesMax: parts.bytesMax,
      intervalMs: settings.pollIntervalMs,
      spacingMs: SPACING_MS,
      rescanMs: settings.rescanMs,
      stragglerAfterMs: STRAGGLER_AFTER_MS,
      backoffMaxMs: BACKOFF_MAX_MS,
    });
  }

  private readBytesMax(): number {
    return Math.floor(this.options.settings.inFlightBytesMax * READ_PART);
  }

  /** Over a connection whose statements may take long. */
  private async migrate(): Promise<void> {
    const { sql, settings, migrations, log } = this.options;
    const { schema, postgres } = settings;
    if (migrations === undefined) return;
    const pool = await sql.connect({
      url: withSettings(postgres, { schema }),
      connectionsMax: 1,
      applicationName: 'millrace relay',
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
    });
    try {
      const applied = await migrate(pool, schema, 'relay', migrations);
      log.info({ schema, applied }, 'migrated');
    } finally {
      await pool.close();
    }
  }

  private async connect(
    connectionsMax: number,
    synchronousCommit: boolean,
    answerTimeoutMs: number,
  ): Promise<SqlPool> {
    const { sql, settings, metrics } = this.options;
    const overdue = metrics.counter(
      'relay_answers_overdue_total',
      'Statements that the database left unanswered; their connections were given up and made again.',
    );
    const pool = await sql.connect({
      url: withSettings(settings.postgres, {
        schema: settings.schema,
        synchronousCommit,
        more: { ...PLANNER, statement_timeout: String(Math.ceil(answerTimeoutMs)) },
      }),
      connectionsMax,
      applicationName: 'millrace relay',
      connectTimeoutMs: Math.min(CONNECT_TIMEOUT_MS, Math.max(answerTimeoutMs, ANSWER_LEAST_MS)),
      answerTimeoutMs: answerTimeoutMs + ANSWER_GRACE_MS,
      onOverdue: () => overdue.add(),
    });
    this.closers.push(() => pool.close());
    return pool;
  }

  private async listen(pool: SqlPool, table: OutboxTable): Promise<void> {
    const { wake, log, metrics } = this.options;
    if (wake === undefined) return;
    const wakes = metrics.counter(
      'relay_wakes_total',
      'Times a process on this host said that it committed rows.',
    );
    let listener: WakeListener;
    try {
      const { rows } = await pool.query<{ name: string }>('SELECT current_database() AS name');
      listener = await wake.listen(
        {
          systemIdentifier: await pool.systemIdentifier(),
          database: rows[0]?.name ?? '',
          table: table.fullName,
        },
        () => {
          wakes.add();
          this.wakePending = true;
          this.woken?.();
        },
      );
    } catch (thrown) {
      const error = findMillraceError(thrown);
      if (error === undefined) throw thrown;
      log.warn(
        { code: error.code, error: error.message },
        'nobody wakes this relay; it looks every poll interval',
      );
      return;
    }
    this.closers.push(() => listener.close());
  }

  private async keepBeating(leases: Leases, publishing: Publisher): Promise<void> {
    const { clock, log } = this.options;
    while (!this.drain.signal.aborted || publishing.underWay() > 0) {
      if (this.drain.signal.aborted) await sleep(clock, Math.min(leases.beatWithinMs(), 100));
      else await this.sleep(leases.beatWithinMs());
      try {
        await leases.beat((shard) => publishing.isShardIdle(shard));
        this.beatTrouble = undefined;
      } catch (thrown) {
        const error = findMillraceError(thrown);
        this.beatTrouble = error?.message ?? String(thrown);
        if (error === undefined || error.code === 'lease_mismatch') throw thrown;
        log.warn({ code: error.code, error: error.message }, 'the leases could not be renewed; trying again');
        await sleep(clock, BEAT_AGAIN_MS);
      }
    }
  }

  private async keepMoving(overdue: ProducerWatchdog): Promise<void> {
    for (; !this.drain.signal.aborted; await this.sleep(LOOK_EVERY_MS)) await overdue.look();
  }

  private async keepLooking(pool: SqlPool, table: OutboxTable): Promise<void> {
    const { clock, metrics, log, settings } = this.options;
    const lag = new LagMeter(pool, table, clock, metrics);
    const horizon = new XminMonitor(pool, clock, metrics, log, settings.horizonWarnMs);
    const slots = settings.mode === 'poll' ? new IdleSlots(pool, table, clock, metrics, log) : undefined;
    let horizonMs = Number.NEGATIVE_INFINITY;
    let slotsMs = Number.NEGATIVE_INFINITY;
    while (!this.drain.signal.aborted) {
      try {
        await lag.look();
        if (clock.monotonicMs() - horizonMs >= HORIZON_EVERY_MS) {
          horizonMs = clock.monotonicMs();
          await horizon.look();
        }
        if (clock.monotonicMs() - slotsMs >= SLOTS_EVERY_MS) {
          slotsMs = clock.monotonicMs();
          await slots?.check();
        }
      } catch (thrown) {
        // The source meets the same database and reports it.
        if (findMillraceError(thrown) === undefined) throw thrown;
      }
      await this.sleep(LOOK_EVERY_MS);
    }
  }

  private crashAt(point: RelayCrashPoint, unfinished: number): void {
    const { crash, log, metrics } = this.options;
    if (crash?.point !== point || unfinished === 0) return;
    const published = metrics.counter('relay_published_total', '').value();
    if (published < crash.after) return;
    log.warn({ point, unfinished }, 'crash point reached');
    crash.end();
  }

  private sleep(ms: number): Promise<void> {
    return sleep(this.options.clock, ms, this.drain.signal);
  }

  /** One sleeper at a time; a wake-up that came between two sleeps ends the next one immediately. */
  private async sleepUntilWoken(ms: number): Promise<void> {
    if (!this.wakePending) {
      let cancel: Cancel | undefined;
      await new Promise<void>((resolve) => {
        this.woken = resolve;
        cancel = this.options.clock.after(this.drain.signal.aborted ? 0 : ms, resolve);
      });
      cancel?.();
      this.woken = undefined;
    }
    this.wakePending = false;
  }
}

/** A relay that leases and labels its records as wal, and polls, would hide that its slot is not read. */
function checkMode({ settings: { mode }, makeSource }: RelayOptions): void {
  if (!RELAY_MODES.includes(mode)) {
    throw outboxError('bad_option', `a relay has no mode ${JSON.stringify(mode)}`, {
      next: `use one of ${RELAY_MODES.join(', ')}`,
    });
  }
  if (mode === 'wal' && makeSource === undefined) {
    throw outboxError(
      'bad_option',
      'a relay in wal mode needs makeSource, which reads the replication slot',
      {
        next: 'hand in makeSource: (parts) => new WalSource(parts, { driver: await openReplication(), url, ...WAL_DEFAULTS })',
      },
    );
  }
}
