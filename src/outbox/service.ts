/** Combines the parts for one service: its tables, a relay over its outbox, consumers with inboxes,
 *  and the keepers of the inboxes. A service that needs other settings can construct each part as
 *  this file does. */
import { type Random, randomUuid, sleep, type Timers } from '../core/clock.ts';
import { findMillraceError } from '../core/errors.ts';
import type { LogFields, Logger } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { ReplicationDriver } from '../io/postgres/replication/port.ts';
import type { SqlDriver, SqlPool, SqlSession } from '../io/postgres/sql/port.ts';
import type { WakeDriver, Waker } from '../io/wake/port.ts';
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
import { EffectRunner, type EffectRunnerOptions } from './effects/runner.ts';
import { outboxError } from './errors.ts';
import type { TransactionRunner } from './inbox/client-transaction.ts';
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
import type { TopicSettings } from './relay/pipeline/topic-client.ts';
import { openWaker } from './relay/waker.ts';
import { WalSource, type WalSourceOptions } from './relay/wal/source.ts';

export interface ServiceOptions {
  /** Lower-case letters, digits, - and _; prefix of the names of migrations, clients and groups. */
  readonly name: string;
  readonly brokers: string;
  /** postgres://… */
  readonly postgres: string;
  /** Schema of the service's tables; `migrate` creates it. */
  readonly schema: string;
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  /** Timeout of a statement of `pool`, ms, after which its connection is closed. Default:
   *  SERVICE_DEFAULTS. */
  readonly answerTimeoutMs?: number;
  /** Driver for a relay in wal mode. */
  readonly replication?: ReplicationDriver;
  /** Lets a `waker` of this host wake the relays of the service. Without it, they poll. */
  readonly wake?: WakeDriver;
  readonly clock: Timers;
  /** Source of relay names and of the jitter of retries. */
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Logger;
}

export interface ServiceConsumer<T = SqlSession> {
  readonly topic: string;
  /** `migrate` creates both tables. */
  readonly inbox: string;
  readonly parkedTable: string;
  /** Minimum time that the inbox remembers an id, ms. Default: the redelivery horizon of a topic
   *  with this retention. */
  readonly ttlMs?: number;
  /** Planned retention of the topic, ms. The keeper reads the actual retention from the broker. */
  readonly topicRetentionMs?: number;
  /** Session timeout, ms: the group reassigns this member's partitions after that silence. Default:
   *  SERVICE_DEFAULTS. */
  readonly sessionTimeoutMs?: number;
  /** Outbox of the publisher, if it is in the same database: its oldest unmarked row delays expiry.
   */
  readonly outboxTable?: string;
  /** Retries of an effect that fails outside the database. Default: CONSUMER_DEFAULTS. */
  readonly retry?: Partial<RetrySettings>;
  /** Runs each batch in a transaction of the service's own database client, on the same database.
   *  Default: a transaction of `pool`. */
  readonly transaction?: TransactionRunner<T>;
  /** Applies the effect; it must write only through this session, or through the handle of the
   *  client's transaction. */
  readonly handle: (session: T, record: InboxRecord) => Promise<void>;
}

/** Options of one relay of the service. Default: RELAY_DEFAULTS. */
export type ServiceRelay = Pick<RelaySettings, 'table' | 'topic'> &
  Partial<Omit<RelaySettings, 'createTopic'>> & {
    /** Settings of a topic that does not exist and is created; those that are absent have the
     *  values of RELAY_DEFAULTS. `false` or undefined: every topic must exist. */
    readonly createTopic?: Partial<TopicSettings> | false | undefined;
    /** Options for mode `wal`. Default: WAL_DEFAULTS. */
    readonly wal?: Partial<Omit<WalSourceOptions, 'driver' | 'url'>>;
  };

/** Options of the runner of the service's effects. Default: EFFECT_TIMES. */
export type ServiceEffects = Pick<EffectRunnerOptions, 'handlers' | 'leaseMs' | 'pollMs' | 'keepMs'> & {
  /** `migrate` creates the table. */
  readonly effectsTable: string;
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
  effectsTable: true,
  idempotencyTable: true,
  transaction: true,
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
  topics: true,
  source: true,
  mode: true,
  name: true,
  shards: true,
  leaseMs: true,
  fence: true,
  rowsMax: true,
  pollIntervalMs: true,
  readEveryMs: true,
  rescanMs: true,
  inFlightBytesMax: true,
  answerTimeoutMs: true,
  deliveryTimeoutMs: true,
  horizonWarnMs: true,
  createTopic: true,
  exitWhenDrained: true,
  wal: true,
};
const TOPIC_NAMES: KnownNames<TopicSettings> = {
  partitions: true,
  replicationFactor: true,
  retentionMs: true,
};
const EFFECTS_NAMES: KnownNames<ServiceEffects & ServiceParts> = {
  effectsTable: true,
  outboxTable: true,
  inbox: true,
  parkedTable: true,
  idempotencyTable: true,
  handlers: true,
  leaseMs: true,
  pollMs: true,
  keepMs: true,
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
/** Timeout of the broker queries for the age of a topic's records. */
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

/** Least values of the settings of a created topic. Infinite retention is -1. */
const TOPIC_LEAST: Readonly<Record<keyof TopicSettings, number>> = {
  partitions: 1,
  replicationFactor: 0,
  retentionMs: -1,
};

/** Settings of the topics that a relay creates; undefined: it creates none. @throws bad_option */
function topicOf(settings: ServiceRelay): TopicSettings | undefined {
  if (!Object.hasOwn(settings, 'createTopic')) return RELAY_DEFAULTS.createTopic;
  const { createTopic: given } = settings;
  if (given === undefined || given === false) return undefined;
  refuseUnknown('createTopic of Service.relay', given, TOPIC_NAMES);
  const topic: TopicSettings = { ...RELAY_DEFAULTS.createTopic, ...given };
  const names = Object.keys(TOPIC_LEAST) as Array<keyof TopicSettings>;
  const wrong = names.find(
    (name) => !(Number.isSafeInteger(topic[name]) && topic[name] >= TOPIC_LEAST[name]),
  );
  if (wrong === undefined) return topic;
  throw outboxError(
    'bad_option',
    `createTopic.${wrong} of Service.relay is ${topic[wrong]}, not an integer from ${TOPIC_LEAST[wrong]} on`,
    { next: 'give replicationFactor: 0 for three replicas, and retentionMs: -1 for infinite retention' },
  );
}

/** One service with an outbox and an inbox: a pool, relays and consumers with one start, one
 *  health check and one orderly end.
 */
export class Service {
  /** Connections with the schema first in their search path. A statement without an answer in
   *  `answerTimeoutMs` fails with `unreachable`. */
  readonly pool: SqlPool;
  private readonly options: ServiceOptions;
  private readonly url: string;
  private readonly drain = new AbortController();
  private readonly running: Promise<unknown>[] = [];
  private readonly closers: Array<() => Promise<void> | void> = [];
  private fail: (thrown: unknown) => void = () => {};
  private finish: () => void = () => {};
  /** Number of parts that run, or ended with an error. */
  private unended = 0;
  private end = this.openEnd();

  private constructor(options: ServiceOptions, url: string, pool: SqlPool) {
    this.options = options;
    this.url = url;
    this.pool = pool;
  }

  /** Connects to the database.
   *  @throws unreachable, bad_value, bad_option */
  static async open(options: ServiceOptions): Promise<Service> {
    refuseUnknown('Service.open', options, SERVICE_NAMES);
    const url = withSettings(options.postgres, { schema: options.schema });
    const pool = await options.sql.connect({
      ...poolOf(options.name, url, CONNECTIONS),
      answerTimeoutMs: options.answerTimeoutMs ?? SERVICE_DEFAULTS.answerTimeoutMs,
    });
    return new Service(options, url, pool);
  }

  /** Database URL for the service's own clients; it sets the schema. */
  get postgres(): string {
    return this.url;
  }

  /** Applies the missing scripts of the service, the first being number 1, and the library's own
   *  migrations of the named parts. It holds a lock and has no statement timeout. Never edit a
   *  script that was applied.
   *  @throws migration_changed, bad_table_name, unreachable, sql_failed */
  async migrate(scripts: readonly string[], parts: ServiceParts = {}): Promise<void> {
    const { name, schema, sql: driver } = this.options;
    const migrations = scripts.map((sql, index) => ({
      number: index + 1,
      name: `${name} ${index + 1}`,
      sql,
    }));
    const all = [{ owner: name, migrations }, ...partMigrations(parts)];
    const untimed = await driver.connect(poolOf(name, this.url, 1));
    try {
      for (const part of all) await migrate(untimed, schema, part.owner, part.migrations);
    } finally {
      await untimed.close();
    }
  }

  /** Opens a relay over this table and runs it until `close`. Creates the relay's own tables, and
   *  the topic if it does not exist. Mode `wal` follows a replication slot and needs the driver
   *  `replication`.
   *  @throws bad_option; errors of Relay.open */
  async relay({ wal, ...settings }: ServiceRelay): Promise<void> {
    const { name, brokers, postgres, schema, sql, broker, wake, clock, random, metrics, log } = this.options;
    refuseUnknown('Service.relay', settings, RELAY_NAMES);
    const createTopic = topicOf(settings);
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
        createTopic,
      },
    });
    this.closers.push(() => relay.close());
    await relay.open();
    const { table, topic } = settings;
    this.start({ part: 'relay', table, topic }, relay.run(this.drain.signal));
  }

  /** Opens a sender of hints to the relays of this outbox on this host, which then read it without
   *  waiting for their next poll. Call its `wake` after each commit that appended. Needs the option
   *  `wake`.
   *  @throws bad_option, bad_table_name, tables_missing, unreachable */
  async waker(table: string): Promise<Waker> {
    const { wake } = this.options;
    if (wake === undefined) {
      throw outboxError(
        'bad_option',
        'Service.waker needs the driver `wake`, which the service was opened without',
        { next: 'give Service.open wake: await openWake() of millrace/drivers' },
      );
    }
    const waker = await openWaker(wake, this.pool, table);
    this.closers.push(() => waker.close());
    return waker;
  }

  /** Joins the group `name-inbox` and applies each message once, until `close`. A keeper maintains
   *  the inbox.
   *  @throws ttl_below_horizon, bad_table_name, bad_option */
  consume<T = SqlSession>(consumer: ServiceConsumer<T>): void {
    const { name, brokers, broker, clock, random, metrics, log } = this.options;
    refuseUnknown('Service.consume', consumer, CONSUMER_NAMES);
    const { topic, transaction, handle, parkedTable, sessionTimeoutMs } = consumer;
    const names = inboxNames(consumer.inbox);
    const group = `${name}-${names.local}`;
    const keeper = this.keeperOf(consumer, group);
    const reader = new InboxConsumer<T>({
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
      transaction,
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
    this.start({ part: 'consumer', topic, group }, reader.run());
    this.start({ part: 'keeper', inbox: names.table }, keeper.run());
  }

  /** Calls the handlers of the effects in this table until `close`.
   *  @returns the runner, whose `wake` looks for due effects after a commit without waiting for the
   *    next poll
   *  @throws bad_table_name, bad_option */
  effects({ effectsTable: table, ...given }: ServiceEffects): EffectRunner {
    const { clock, random, metrics, log } = this.options;
    refuseUnknown('Service.effects', { effectsTable: table, ...given }, EFFECTS_NAMES);
    const drain = this.drain.signal;
    const runner = new EffectRunner({ ...given, pool: this.pool, table, clock, random, metrics, log, drain });
    this.start({ part: 'effects', table }, runner.run());
    return runner;
  }

  /** Rejects with the first error of a part, also of one that starts before it resolves. Resolves
   *  when all started parts have ended without an error, such as relays with `exitWhenDrained`, or
   *  at `close`. A part that ended with an error is not started again: end the process, so that its
   *  supervisor starts a new one. */
  failure(): Promise<void> {
    return this.end;
  }

  /** Drains all parts and closes the connections.
   *  @throws the first error of a part */
  async close(): Promise<void> {
    this.drain.abort();
    try {
      const ended = await Promise.allSettled(this.running);
      for (const closer of this.closers) await closer();
      await this.pool.close();
      for (const result of ended) if (result.status === 'rejected') throw result.reason;
    } finally {
      this.finish();
    }
  }

  /** Promise of `failure`, which `finish` and `fail` settle. */
  private openEnd(): Promise<void> {
    const end = new Promise<void>((resolve, reject) => {
      this.finish = resolve;
      this.fail = reject;
    });
    // Prevents an unhandled rejection where `failure` is not called.
    end.catch(() => {});
    return end;
  }

  private start(part: LogFields, run: Promise<unknown>): void {
    // The promise has resolved if all earlier parts ended, so it cannot reject for this one.
    const isResolved = this.unended === 0 && this.running.length > 0 && !this.drain.signal.aborted;
    if (isResolved) this.end = this.openEnd();
    this.unended++;
    const ended = (): void => {
      this.unended--;
      // During a drain, `close` resolves `failure` after the connections are closed.
      if (this.unended === 0 && !this.drain.signal.aborted) this.finish();
    };
    run.then(ended, (thrown: unknown) => {
      const known = findMillraceError(thrown);
      const error = known?.toLine() ?? (thrown instanceof Error ? thrown.message : String(thrown));
      this.options.log.error(
        { service: this.options.name, ...part, error },
        'a part of the service ended with an error and is not started again',
      );
      this.fail(thrown);
    });
    this.running.push(run);
  }

  /** Undefined: the relay polls.
   *  @throws bad_option */
  private sourceOf(
    { mode, postgres, schema }: Pick<ServiceRelay, 'mode' | 'postgres' | 'schema'>,
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

  private keeperOf(consumer: Omit<ServiceConsumer, 'handle' | 'transaction'>, group: string): InboxKeeper {
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
