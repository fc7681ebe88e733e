/** The parts put together for one service: its tables, a relay over its outbox, consumers in
 *  inboxes, and the keepers of those. For whoever needs other settings than the defaults, each part
 *  can be made by hand as it is here.
 */
import { type Random, randomUuid, sleep, type Timers } from '../core/clock.ts';
import type { Logger } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { ReplicationDriver } from '../io/postgres/replication/port.ts';
import type { SqlDriver, SqlPool, SqlSession } from '../io/postgres/sql/port.ts';
import type { WakeDriver } from '../io/wake/port.ts';
import { withSettings } from './database/connection.ts';
import { migrationsOf } from './database/migration-files.ts';
import { migrate } from './database/migrations.ts';
import { partMigrations, type ServiceParts } from './database/parts.ts';
import {
  CONSUMER_DEFAULTS,
  HORIZON_DEFAULTS,
  KEEPER_DEFAULTS,
  RELAY_DEFAULTS,
  SERVICE_DEFAULTS,
  WAL_DEFAULTS,
} from './defaults.ts';
import { outboxError } from './errors.ts';
import { InboxConsumer } from './inbox/consumer.ts';
import { inboxNames, plainTableName } from './inbox/names.ts';
import { Inbox } from './inbox/once.ts';
import type { InboxRecord } from './inbox/port.ts';
import { checkTtl } from './inbox/retention/horizon.ts';
import { InboxKeeper, readDatabaseNowMs, readOldestUnmarkedMs } from './inbox/retention/keeper.ts';
import { readTopicAges } from './inbox/retention/topic-ages.ts';
import type { RetrySettings } from './inbox/retries.ts';
import { type KnownNames, refuseUnknown } from './options.ts';
import { Relay, type RelayOptions, type RelaySettings } from './relay/instance.ts';
import { WalSource, type WalSourceOptions } from './relay/wal/source.ts';

export interface ServiceOptions {
  /** Lower-case letters, digits, - and _: names its migrations, clients and consumer groups. */
  readonly name: string;
  readonly brokers: string;
  /** postgres://… */
  readonly postgres: string;
  /** Of the service's tables; created by `migrate`. */
  readonly schema: string;
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  /** How long the database may leave a statement of `pool` unanswered before its connection is
   *  given up, in ms. Default: SERVICE_DEFAULTS. */
  readonly answerTimeoutMs?: number;
  /** Driver of a relay in wal mode. */
  readonly replication?: ReplicationDriver;
  /** Wakes the relay immediately where the service calls `wake` of the same scope; without it the
   *  relay polls. */
  readonly wake?: WakeDriver;
  readonly clock: Timers;
  /** Names of relays and the jitter of retries. */
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Logger;
}

export interface ServiceConsumer {
  readonly topic: string;
  /** Both made by `migrate`. */
  readonly inbox: string;
  readonly parkedTable: string;
  /** How long ids are remembered at least. Default: the redelivery horizon of a topic with this
   *  retention. */
  readonly ttlMs?: number;
  /** Planned retention of the topic; the broker is asked for the one it has. */
  readonly topicRetentionMs?: number;
  /** How long the group waits for this member when it dies or stands still before others get its
   *  partitions. Default: SERVICE_DEFAULTS. */
  readonly sessionTimeoutMs?: number;
  /** Where the publisher's outbox is in the same database: its oldest unmarked row holds expiry
   *  back. */
  readonly outboxTable?: string;
  /** Retries of an effect that fails by itself, where they differ from CONSUMER_DEFAULTS. */
  readonly retry?: Partial<RetrySettings>;
  /** The effect, through this session alone. */
  readonly handle: (session: SqlSession, record: InboxRecord) => Promise<void>;
}

/** A relay of the service: what is left out is as in RELAY_DEFAULTS. */
export type ServiceRelay = Pick<RelaySettings, 'table' | 'topic'> &
  Partial<RelaySettings> & {
    /** With mode `wal`: what is not as in WAL_DEFAULTS. */
    readonly wal?: Partial<Omit<WalSourceOptions, 'driver' | 'url'>>;
  };

const SERVICE_NAMES: KnownNames<ServiceOptions> = {
  name: true,
  brokers: true,
  postgres: true,
  schema: true,
  sql: true,
  broker: true,
  replication: true,
  answerTimeoutMs: true,
  wake: true,
  clock: true,
  random: true,
  metrics: true,
  log: true,
};
const CONSUMER_NAMES: KnownNames<ServiceConsumer & ServiceParts> = {
  topic: true,
  inbox: true,
  parkedTable: true,
  ttlMs: true,
  topicRetentionMs: true,
  sessionTimeoutMs: true,
  retry: true,
  outboxTable: true,
  handle: true,
};
const RETRY_NAMES: KnownNames<RetrySettings> = {
  firstDelayMs: true,
  maxDelayMs: true,
  budgetMs: true,
  waitingRowsMax: true,
  waitingBytesMax: true,
};
const RELAY_NAMES: KnownNames<ServiceRelay> = {
  postgres: true,
  brokers: true,
  schema: true,
  table: true,
  topic: true,
  source: true,
  mode: true,
  name: true,
  shards: true,
  leaseMs: true,
  fence: true,
  rowsMax: true,
  pollIntervalMs: true,
  rescanMs: true,
  inFlightBytesMax: true,
  answerTimeoutMs: true,
  deliveryTimeoutMs: true,
  horizonWarnMs: true,
  createTopic: true,
  exitWhenDrained: true,
  wal: true,
};
const WAL_NAMES: KnownNames<Required<ServiceRelay>['wal']> = {
  names: true,
  connectTimeoutMs: true,
  heartbeatMs: true,
  auditMs: true,
  messageBytesMax: true,
};

const CONNECT_TIMEOUT_MS = 5000;
const CONNECTIONS = 6;
/** Of the broker, when it is asked how old what it has is. */
const AGES_TIMEOUT_MS = 10_000;

const poolOf = (name: string, url: string, connectionsMax: number) => ({
  url,
  connectionsMax,
  applicationName: name,
  connectTimeoutMs: CONNECT_TIMEOUT_MS,
});

/** @throws bad_option */
function retryOf(given: Partial<RetrySettings> = {}): RetrySettings {
  refuseUnknown('retry of Service.consume', given, RETRY_NAMES);
  const retry = { ...CONSUMER_DEFAULTS.retry, ...given };
  const wrong = Object.entries(retry).find(([, value]) => !(Number.isFinite(value) && value >= 0));
  if (wrong === undefined) return retry;
  throw outboxError(
    'bad_option',
    `retry.${wrong[0]} of Service.consume is ${wrong[1]}, not a number from 0 on`,
    {
      next: 'give times in ms, rows and bytes',
    },
  );
}

/** One service with an outbox and an inbox: a pool, relays and consumers with one start, one
 *  health check and one orderly end.
 */
export class Service {
  /** Connections with the schema first in their search path; a statement that is not answered in
   *  `answerTimeoutMs` is unreachable. */
  readonly pool: SqlPool;
  private readonly options: ServiceOptions;
  private readonly url: string;
  private readonly drain = new AbortController();
  private readonly running: Promise<unknown>[] = [];
  private readonly closers: Array<() => Promise<void> | void> = [];

  private constructor(options: ServiceOptions, url: string, pool: SqlPool) {
    this.options = options;
    this.url = url;
    this.pool = pool;
  }

  /** @throws unreachable, bad_value */
  static async open(options: ServiceOptions): Promise<Service> {
    refuseUnknown('Service.open', options, SERVICE_NAMES);
    const url = withSettings(options.postgres, { schema: options.schema });
    const pool = await options.sql.connect({
      ...poolOf(options.name, url, CONNECTIONS),
      answerTimeoutMs: options.answerTimeoutMs ?? SERVICE_DEFAULTS.answerTimeoutMs,
    });
    return new Service(options, url, pool);
  }

  /** The address for clients of the service's own, with its schema in it. */
  get postgres(): string {
    return this.url;
  }

  /** Applies what is missing of these scripts, the first being number 1, and of the library's own
   *  for the parts that are named, under a lock and for as long as it takes. A script that was
   *  applied is never edited.
   *  @throws migration_changed, bad_table_name, unreachable, sql_failed */
  async migrate(scripts: readonly string[], parts: ServiceParts = {}): Promise<void> {
    const { name, schema, sql: driver } = this.options;
    const migrations = scripts.map((sql, index) => ({
      number: index + 1,
      name: `${name} ${index + 1}`,
      sql,
    }));
    const all = [{ owner: name, migrations }, ...partMigrations(parts)];
    const patient = await driver.connect(poolOf(name, this.url, 1));
    try {
      for (const one of all) await migrate(patient, schema, one.owner, one.migrations);
    } finally {
      await patient.close();
    }
  }

  /** Opens a relay over this table and runs it until `close`; makes the relay's own tables and the
   *  topic where they are missing. With mode `wal` it follows a replication slot, which needs the
   *  driver `replication`.
   *  @throws bad_option; what Relay.open throws */
  async relay({ wal, ...settings }: ServiceRelay): Promise<void> {
    const { name, brokers, postgres, schema, sql, broker, wake, clock, random, metrics, log } = this.options;
    refuseUnknown('Service.relay', settings, RELAY_NAMES);
    const relay = new Relay({
      makeSource: this.sourceOf(settings, wal),
      sql,
      broker,
      wake,
      clock,
      metrics,
      log,
      migrations: migrationsOf('relay'),
      settings: {
        ...RELAY_DEFAULTS,
        brokers,
        postgres,
        schema,
        source: `/${name}`,
        name: `${name}-${randomUuid(random)}`,
        ...settings,
      },
    });
    this.closers.push(() => relay.close());
    await relay.open();
    this.start(relay.run(this.drain.signal));
  }

  /** Joins the group `name-inbox` and carries each message out once until `close`, with a keeper of
   *  its inbox beside it.
   *  @throws ttl_below_horizon, bad_table_name */
  consume(consumer: ServiceConsumer): void {
    const { name, brokers, broker, clock, random, metrics, log } = this.options;
    refuseUnknown('Service.consume', consumer, CONSUMER_NAMES);
    const { topic, handle, parkedTable, sessionTimeoutMs } = consumer;
    const names = inboxNames(consumer.inbox);
    const group = `${name}-${names.local}`;
    const keeper = this.keeperOf(consumer, group);
    const reader = new InboxConsumer({
      ...CONSUMER_DEFAULTS,
      clock,
      random,
      metrics,
      log,
      pool: this.pool,
      inbox: new Inbox(consumer.inbox),
      retry: retryOf(consumer.retry),
      parkedTable,
      topics: [topic],
      handle,
      drain: this.drain.signal,
      connect: (hooks) =>
        broker.consumer({
          ...hooks,
          brokers,
          clientId: name,
          group,
          autoOffsetReset: 'earliest',
          properties: { 'session.timeout.ms': sessionTimeoutMs ?? SERVICE_DEFAULTS.sessionTimeoutMs },
        }),
    });
    this.start(reader.run());
    this.start(keeper.run());
  }

  /** Rejects with the first failure of a part; resolves at `close`. */
  async failure(): Promise<void> {
    await Promise.all(this.running);
  }

  /** Ends what runs, finishing what is in flight, and closes the connections. @throws the first
   *  failure of a part */
  async close(): Promise<void> {
    this.drain.abort();
    const ended = await Promise.allSettled(this.running);
    for (const closer of this.closers) await closer();
    await this.pool.close();
    for (const one of ended) if (one.status === 'rejected') throw one.reason;
  }

  private start(run: Promise<unknown>): void {
    // Told by failure() and close(); until one of them is called it is not unheard.
    run.catch(() => {});
    this.running.push(run);
  }

  /** Undefined: the relay polls. */
  private sourceOf(
    { mode, postgres, schema }: Partial<RelaySettings>,
    wal: ServiceRelay['wal'],
  ): RelayOptions['makeSource'] {
    if (mode !== 'wal') {
      if (wal === undefined) return undefined;
      throw outboxError('bad_option', 'the options wal of Service.relay have no effect without mode: wal', {
        next: "give mode: 'wal', or leave them out",
      });
    }
    refuseUnknown('wal of Service.relay', wal ?? {}, WAL_NAMES);
    const { replication: driver } = this.options;
    if (driver === undefined) {
      throw outboxError(
        'bad_option',
        'a relay in wal mode needs the driver `replication`, which the service was opened without',
        {
          next: 'give Service.open replication: await openReplication() of millrace/drivers',
        },
      );
    }
    const url = withSettings(postgres ?? this.options.postgres, { schema: schema ?? this.options.schema });
    return (parts) => new WalSource(parts, { ...WAL_DEFAULTS, ...wal, driver, url });
  }

  private keeperOf(consumer: ServiceConsumer, group: string): InboxKeeper {
    const { brokers, broker, clock, metrics, log } = this.options;
    const { topic, outboxTable } = consumer;
    const signal = this.drain.signal;
    const topicRetentionMs = consumer.topicRetentionMs ?? RELAY_DEFAULTS.createTopic.retentionMs;
    const { ttlMs } = checkTtl(consumer.ttlMs, { ...HORIZON_DEFAULTS, topicRetentionMs }, false);
    const table =
      outboxTable === undefined ? undefined : plainTableName(outboxTable, 'a plain name of an outbox table');
    return new InboxKeeper({
      ...KEEPER_DEFAULTS,
      pool: this.pool,
      names: inboxNames(consumer.inbox),
      ttlMs,
      parts: HORIZON_DEFAULTS,
      sources: {
        databaseNowMs: () => readDatabaseNowMs(this.pool),
        processNowMs: () => clock.wallNowMs(),
        topic: () => readTopicAges({ driver: broker, brokers, topic, group, timeoutMs: AGES_TIMEOUT_MS }),
        ...(table === undefined ? {} : { outbox: () => readOldestUnmarkedMs(this.pool, table) }),
      },
      metrics,
      log,
      drain: signal,
      sleep: (ms) => sleep(clock, ms, signal),
    });
  }
}
