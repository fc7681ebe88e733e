/** Relay over an outbox table: connects leases, a source of rows, the publishing pipeline and the
 *  marker. The caller supplies the drivers, so that any service can run a relay beside its own
 *  work.
 *
 *      const drivers = { sql: pgDriver, broker: librdkafkaDriver };
 *      const relay = new Relay({ ...drivers, clock, metrics, log, settings });
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
import type { RowSource } from './pipeline/contract.ts';
import { EventEncoder, RELAY_MODES, type RelayMode } from './pipeline/event.ts';
import { Marker } from './pipeline/marker.ts';
import { ProducerWatchdog } from './pipeline/producer-watchdog.ts';
import { type Entry, Publisher } from './pipeline/publisher.ts';
import type { Sender } from './pipeline/sender.ts';
import { RECORD_BYTES_MOST, TopicClient, type TopicSettings } from './pipeline/topic-client.ts';
import { checkRules, routingText, TopicRouter, type TopicRules } from './pipeline/topic-router.ts';
import { type PollParts, PollSource } from './poll/source.ts';
import { isShardCount } from './shards.ts';
import type { RelayCrashPoint, SourceParts } from './source.ts';
import { describeOutbox, type OutboxTable } from './store.ts';
import { RELAY_TABLES } from './tables.ts';
import { LagMeter, XminMonitor } from './xmin-monitor.ts';

export interface RelaySettings {
  readonly postgres: string;
  readonly brokers: string;
  /** Schema of the relay's own tables, and of the outbox where `table` has no schema. */
  readonly schema: string;
  /** Outbox table, `table` or `schema.table`. */
  readonly table: string;
  readonly topic: string;
  /** Topics of event types, instead of `topic`: the same for all relays of an outbox. A row that
   *  names a topic goes there. */
  readonly topics?: TopicRules;
  /** Value of the header ce_source. */
  readonly source: string;
  readonly mode: RelayMode;
  /** Name of this relay, unique among all relays and their earlier runs. */
  readonly name: string;
  readonly shards: number;
  readonly leaseMs: number;
  /** mark: leases, and each mark checks the epoch. broker: also one Kafka transaction for each
   *  batch, which fences a relay whose lease has expired. */
  readonly fence: 'mark' | 'broker';
  readonly rowsMax: number;
  readonly pollIntervalMs: number;
  /** Shortest time between two reads that are not full: rows that arrive within it share a read, a
   *  batch and a mark. */
  readonly readEveryMs: number;
  readonly rescanMs: number;
  /** Payload bytes in memory, read and not yet marked; a single larger row still passes, alone. */
  readonly inFlightBytesMax: number;
  /** Time that the database may take to answer a statement; then its connection is closed and
   *  opened again. */
  readonly answerTimeoutMs: number;
  /** Time that a batch may wait for the broker. After it the relay is not ready, and checks whether
   *  the partitions have leaders. */
  readonly deliveryTimeoutMs: number;
  readonly horizonWarnMs: number;
  /** Absent: the topic must exist. */
  readonly createTopic: TopicSettings | undefined;
  readonly exitWhenDrained: boolean;
}

export interface RelayOptions {
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  /** Absent: the relay polls every poll interval. */
  readonly wake?: WakeDriver | undefined;
  readonly clock: Timers;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly settings: RelaySettings;
  /** Migrations that `open` applies; absent: none. */
  readonly migrations?: readonly Migration[] | undefined;
  /** Absent: the relay polls pending rows. */
  readonly makeSource?: ((parts: SourceParts, table: OutboxTable) => RowSource) | undefined;
  /** Ends the process at this point once `after` rows are published; for crash tests. */
  readonly crash?:
    | { readonly point: RelayCrashPoint; readonly after: number; readonly end: () => void }
    | undefined;
}

/** Every statement has one right plan: an index scan from a start value. Statistics of a table that
 *  fills before its first ANALYZE would suggest another plan, and a cached plan stays. */
const PLANNER = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_bitmapscan: 'off',
  jit: 'off',
} as const;

const CONNECT_TIMEOUT_MS = 5000;
/** Added to the statement_timeout of the server, which must fire first, so that the server does not
 *  continue a statement whose caller has gone. */
const ANSWER_GRACE_MS = 1000;
/** Lower bound of the answer timeout: a short lease is no reason to close the connection of a
 *  database that is slow for a moment. */
const ANSWER_LEAST_MS = 1000;
/** Connections for reads, for the polls of lag and horizon, and for the sweep. */
const CONNECTIONS = 3;
const POLL_EVERY_MS = 1000;
const HORIZON_EVERY_MS = 5000;
const SLOTS_EVERY_MS = 60_000;
const MARK_ROWS_MAX = 2000;
const MARK_WITHIN_MS = 25;
const MARK_MISSING_MS = 30_000;
const IN_FLIGHT_ROWS_MAX = 16_384;
const ROW_OVERHEAD_BYTES = 1024;
const PAYLOAD_BYTES_TYPICAL = 1024;
/** Bytes of one batch for the broker; a larger record enlarges it. */
const FLIGHT_BYTES_MAX = 16 * 1024 * 1024;
/** Share of the bytes in memory that one read may fill; a source waits while the rest is in
 *  flight. */
const READ_PART = 0.25;
const STRAGGLER_AFTER_MS = 1000;
const BACKOFF_MAX_MS = 5000;
/** Time that the drain waits for rows in flight; after it they stay pending. */
const DRAIN_TIMEOUT_MS = 10_000;
const HEARTBEAT_RETRY_MS = 500;

interface PublishingParts {
  readonly sender: Sender;
  readonly marker: Marker<Entry>;
  readonly publishing: Publisher;
  readonly overdue: ProducerWatchdog;
}

/** Relay of one outbox: publishes its rows to a topic, those of a key in order, at least once.
 *  Several relays share an outbox by leases on its shards.
 */
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
  private source: RowSource | undefined;
  private woken: (() => void) | undefined;
  private failed: (thrown: unknown) => void = () => {};
  private wakePending = false;
  /** Number of connections that the pool of the reads has opened. */
  private connections = 0;
  private heartbeatError: string | undefined = 'no heartbeat was answered yet';
  private readonly drain = new AbortController();

  constructor(options: RelayOptions) {
    this.options = options;
    if (!isShardCount(options.settings.shards)) {
      throw coreError('bad_value', `-shards=${options.settings.shards} is not a power of two up to 256`, {
        next: 'give 1, 2, 4, … 256',
      });
    }
    checkMode(options);
    checkRules(options.settings.topics ?? {});
  }

  /** Connects, checks the tables and creates the topic. @throws unreachable, tables_missing,
   *  table_unusable, lease_mismatch */
  async open(): Promise<void> {
    const { sql, settings, metrics, log } = this.options;
    const { schema } = settings;
    await this.migrate();
    const pool = await this.connect(CONNECTIONS, true, settings.answerTimeoutMs, () => {
      this.connections++;
    });
    const table = await describeOutbox(pool, settings.table);
    await requireTables(pool, schema, RELAY_TABLES, 'relay');
    await requireColumn(pool, schema, 'relay_leases', 'unfenced', 'relay');
    if (table.sequence === undefined)
      log.warn(
        { table: table.fullName },
        'ids do not come from one sequence that the relay may read, with CACHE 1: every read begins at the lowest pending id',
      );
    log.debug({ driver: sql.name, table: table.fullName }, 'outbox found');
    const topicClient = new TopicClient(this.options, (ms) => this.sleep(ms), this.drain.signal);
    const leases = await this.openLeases(table, topicClient);
    // Checked before it creates a topic that this relay may not publish to.
    await leases.check();
    this.parts = { pool, table, leases, ...(await this.openPublishing(topicClient, table, leases)) };
    await leases.heartbeat(() => true);
    this.heartbeatError = undefined;
    exposeLeases(leases, metrics);
    await this.listen(pool, table);
  }

  /** Opens the leases of the relay's shards. */
  private async openLeases(table: OutboxTable, topicClient: TopicClient): Promise<Leases> {
    const { settings, log, clock } = this.options;
    return new Leases({
      // An answer later than the lease would be useless.
      pool: await this.connect(
        1,
        true,
        Math.min(settings.answerTimeoutMs, Math.max(settings.leaseMs, ANSWER_LEAST_MS)),
      ),
      outbox: table.fullName,
      shards: settings.shards,
      topic: routingText(settings.topic, settings.topics ?? {}),
      relay: settings.name,
      mode: settings.mode,
      exclusive: settings.mode === 'wal',
      leaseMs: settings.leaseMs,
      clock,
      log,
      ...(settings.fence === 'broker'
        ? {
            transactionalId: topicClient.transactionalId(table),
            fence: (ids: readonly string[]) => topicClient.fence(ids),
          }
        : {}),
    });
  }

  /** Creates the topic and opens the producer, the marker and the publisher. */
  private async openPublishing(
    topicClient: TopicClient,
    table: OutboxTable,
    leases: Leases,
  ): Promise<PublishingParts> {
    const { settings, metrics, log, clock } = this.options;
    const crashAt = (point: RelayCrashPoint, unfinished: number): void => this.crashAt(point, unfinished);
    const topics = new TopicRouter({
      topic: settings.topic,
      rules: settings.topics ?? {},
      ensure: (topic) => topicClient.ensureTopic(topic),
      clock,
      log,
      metrics,
    });
    await topics.open();
    const recordBytesMax = Math.max(...topics.names.map((_, place) => topics.recordBytesMax(place)));
    const markPool = await this.connect(1, false, settings.answerTimeoutMs);
    const sender = await topicClient.sender(table, recordBytesMax, topics.names);
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
      topics,
      marker,
      leases,
      metrics,
      log,
      clock,
      flightRowsMax: settings.rowsMax,
      flightBytesMax: Math.max(typical, Math.min(recordBytesMax, RECORD_BYTES_MOST) + ROW_OVERHEAD_BYTES),
      recordBytesMax,
      inFlight: {
        rows: Math.max(IN_FLIGHT_ROWS_MAX, 4 * settings.rowsMax),
        bytes: settings.inFlightBytesMax * (1 - READ_PART),
      },
      crashAt,
      onTopicMissing: () => topicClient.topicMissing(),
      onFenced: () => leases.forget(),
      onFailed: (thrown) => this.failed(thrown),
    });
    const overdue = new ProducerWatchdog({
      publishing,
      sender,
      topicClient,
      clock,
      metrics,
      log,
      patienceMs: settings.deliveryTimeoutMs,
    });
    return { sender, marker, publishing, overdue };
  }

  /** Publishes until the signal is aborted, or with exitWhenDrained until no row is pending. */
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
      connections: () => this.connections,
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
    const renewing = this.renewLeases(parts.leases, parts.publishing).catch(failed);
    const monitoring = this.monitor(parts.pool, parts.table).catch(failed);
    // Not awaited: a query that the broker does not answer ends by its own timeout.
    this.watchProducer(parts.overdue).catch(failed);
    const forcedEnd = new Promise<void>((resolve) => {
      this.drain.signal.addEventListener('abort', () => {
        options.clock.after(DRAIN_TIMEOUT_MS, resolve, 'background');
      });
    }).then(async () => {
      await parts.sender.close();
      parts.marker.stop();
      parts.publishing.abandon();
    });
    forcedEnd.catch(failed);
    try {
      await this.source.run();
    } finally {
      stop();
      drain.removeEventListener('abort', stop);
      await Promise.all([renewing, monitoring]);
      // Without the database the lease expires by itself.
      await parts.leases.leave().catch(() => {});
    }
    if (failure !== undefined) throw failure.thrown;
  }

  /** Readiness: did database, broker and leases answer recently? A standby is ready. */
  isReady(): boolean {
    return this.unreadyReason() === undefined;
  }

  /** Reason why the relay is not ready; undefined while it is. */
  unreadyReason(): string | undefined {
    const { parts, source } = this;
    const { leaseMs, deliveryTimeoutMs } = this.options.settings;
    if (parts === undefined || source === undefined) return 'the relay has not started';
    const { leases, marker, sender, publishing } = parts;
    if (this.heartbeatError !== undefined) return `the leases are not renewed: ${this.heartbeatError}`;
    if (leases.hasLapsed())
      return `the database has not answered a heartbeat of the leases for ${leaseMs} ms`;
    const read = source.failureReason();
    if (read !== undefined) return `rows are not read: ${read}`;
    const mark = marker.failureReason();
    if (mark !== undefined) return `rows are not marked: ${mark}`;
    if (!sender.isHealthy()) return 'the broker did not acknowledge the last batch';
    const waitedMs = Math.round(publishing.oldestFlightMs());
    if (waitedMs >= deliveryTimeoutMs) return `the broker has not acknowledged a batch for ${waitedMs} ms`;
    return undefined;
  }

  async close(): Promise<void> {
    for (const close of this.closers.splice(0).reverse()) await close();
  }

  private pollSource(parts: PollParts, table: OutboxTable): RowSource {
    const { settings } = this.options;
    return new PollSource(parts, table, {
      rowsMax: settings.rowsMax,
      bytesMax: parts.bytesMax,
      intervalMs: settings.pollIntervalMs,
      spacingMs: settings.readEveryMs,
      rescanMs: settings.rescanMs,
      stragglerAfterMs: STRAGGLER_AFTER_MS,
      backoffMaxMs: BACKOFF_MAX_MS,
    });
  }

  private readBytesMax(): number {
    return Math.floor(this.options.settings.inFlightBytesMax * READ_PART);
  }

  /** Runs the migrations over a connection without a statement timeout. */
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
    onConnect?: () => void,
  ): Promise<SqlPool> {
    const { sql, settings, metrics } = this.options;
    const overdue = metrics.counter(
      'relay_answers_overdue_total',
      'Statements that the database left unanswered; their connections were closed and opened again.',
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
      ...(onConnect === undefined ? {} : { onConnect }),
    });
    this.closers.push(() => pool.close());
    return pool;
  }

  private async listen(pool: SqlPool, table: OutboxTable): Promise<void> {
    const { wake, log, metrics } = this.options;
    if (wake === undefined) return;
    const wakes = metrics.counter(
      'relay_wakes_total',
      'Wake-ups from processes on this host that committed rows.',
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
        'wake-ups are not available; the relay polls every poll interval',
      );
      return;
    }
    this.closers.push(() => listener.close());
  }

  private async renewLeases(leases: Leases, publishing: Publisher): Promise<void> {
    const { clock, log } = this.options;
    while (!this.drain.signal.aborted || publishing.inFlight() > 0) {
      if (this.drain.signal.aborted) await sleep(clock, Math.min(leases.heartbeatWithinMs(), 100));
      else await this.sleep(leases.heartbeatWithinMs());
      try {
        await leases.heartbeat((shard) => publishing.isShardIdle(shard));
        this.heartbeatError = undefined;
      } catch (thrown) {
        const error = findMillraceError(thrown);
        this.heartbeatError = error?.message ?? String(thrown);
        if (error === undefined || error.code === 'lease_mismatch') throw thrown;
        log.warn(
          { code: error.code, error: error.message },
          'the leases could not be renewed; the heartbeat is repeated',
        );
        await sleep(clock, HEARTBEAT_RETRY_MS);
      }
    }
  }

  private async watchProducer(overdue: ProducerWatchdog): Promise<void> {
    for (; !this.drain.signal.aborted; await this.sleep(POLL_EVERY_MS)) await overdue.poll();
  }

  private async monitor(pool: SqlPool, table: OutboxTable): Promise<void> {
    const { clock, metrics, log, settings } = this.options;
    const lag = new LagMeter(pool, table, clock, metrics);
    const horizon = new XminMonitor(pool, clock, metrics, log, settings.horizonWarnMs);
    const slots = settings.mode === 'poll' ? new IdleSlots(pool, table, clock, metrics, log) : undefined;
    let horizonMs = Number.NEGATIVE_INFINITY;
    let slotsMs = Number.NEGATIVE_INFINITY;
    while (!this.drain.signal.aborted) {
      try {
        await lag.poll();
        if (clock.monotonicMs() - horizonMs >= HORIZON_EVERY_MS) {
          horizonMs = clock.monotonicMs();
          await horizon.poll();
        }
        if (clock.monotonicMs() - slotsMs >= SLOTS_EVERY_MS) {
          slotsMs = clock.monotonicMs();
          await slots?.check();
        }
      } catch (thrown) {
        // The source reads the same database and reports the error.
        if (findMillraceError(thrown) === undefined) throw thrown;
      }
      await this.sleep(POLL_EVERY_MS);
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

  /** Sleeps until a wake-up or the time limit; one sleeper at a time. A wake-up between two sleeps
   *  ends the next sleep immediately. */
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

/** Refuses wal mode without a WAL source: such a relay would poll, while its leases and record
 *  headers name wal, and nothing would read its slot. */
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
