/** `millrace relay`: publishes committed outbox rows, at least once and in order. */
import { hostname } from 'node:os';
import { randomUuid } from '../core/clock.ts';
import { coreError } from '../core/errors.ts';
import type { WakeDriver } from '../io/wake/port.ts';
import { withSettings } from '../outbox/database/connection.ts';
import { WAL_DEFAULTS } from '../outbox/defaults.ts';
import { Relay, type RelayOptions } from '../outbox/relay/instance.ts';
import { EVENT_SOURCE, ORDER_EVENTS_TOPIC, type RelayMode } from '../outbox/relay/pipeline/event.ts';
import type { TopicRules } from '../outbox/relay/pipeline/topic-router.ts';
import type { RelayCrashPoint } from '../outbox/relay/source.ts';
import { WalSource } from '../outbox/relay/wal/source.ts';
import { REQUIRED_BROKER_SETTINGS } from '../shell/broker-settings.ts';
import { systemRandom } from '../shell/clock.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver, sqlDriver } from '../shell/drivers.ts';
import { migrationsOf } from '../shell/migrations.ts';
import { REPLICATION_FACTOR } from '../shell/topic-settings.ts';

const SETTINGS = {
  ...REQUIRED_BROKER_SETTINGS,
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: { type: 'string', default: 'public', help: "schema of the relay's own tables, and of -table" },
  table: { type: 'string', default: 'outbox', help: 'the outbox: table, or schema.table' },
  migrate: { type: 'bool', default: 'false', help: 'create the lease tables if they are missing, then run' },
  relay: {
    type: 'string',
    choices: ['poll', 'wal'],
    default: 'poll',
    help: 'how pending rows are found: poll reads the table, wal follows a replication slot (needs wal_level=logical and a user with REPLICATION)',
  },
  slot: {
    type: 'string',
    needs: ['relay=wal'],
    help: 'with -relay=wal: name of the replication slot (default: derived from the table)',
  },
  publication: {
    type: 'string',
    needs: ['relay=wal'],
    help: 'with -relay=wal: name of the publication (default: derived from the table)',
  },
  heartbeat: {
    type: 'duration',
    default: '5s',
    min: 100,
    max: 600_000,
    needs: ['relay=wal'],
    help: 'with -relay=wal: how often a message is written to the log, so that an idle slot advances',
  },
  'sweep-interval': {
    type: 'duration',
    default: '30s',
    min: 100,
    needs: ['relay=wal'],
    help: 'with -relay=wal: how often the table is scanned for rows that the slot did not deliver',
  },
  topic: {
    type: 'string',
    default: ORDER_EVENTS_TOPIC,
    help: 'topic of the events, the same for all relays of an outbox: a different one is refused while any of them runs',
  },
  topics: {
    type: 'string',
    help: 'topics of event types, TYPE=TOPIC,…; a TYPE that ends with * is a beginning, and the longest match decides; other types go to -topic, and a row that names a topic goes there',
  },
  source: {
    type: 'string',
    default: EVENT_SOURCE,
    help: 'header ce_source of the events, which names their producer',
  },
  partitions: { type: 'int', default: '4', min: 1, max: 10_000, help: 'partitions of a created topic' },
  'replication-factor': REPLICATION_FACTOR,
  'topic-retention': {
    type: 'duration',
    default: '24h',
    min: 60_000,
    help: 'retention of a created topic; part of the redelivery horizon of payments',
  },
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic if it is missing' },
  shards: {
    type: 'int',
    default: '16',
    min: 1,
    max: 256,
    help: 'number of shards of the outbox, a power of two, the same for all relays',
  },
  lease: {
    type: 'duration',
    default: '10s',
    min: 500,
    max: 600_000,
    help: 'how long a relay may be silent before other relays take over its shards',
  },
  fence: {
    type: 'string',
    choices: ['mark', 'broker'],
    default: 'mark',
    help: 'how a relay that lost its lease is fenced: mark, it cannot mark rows and republishes at most its rows in flight; broker, its Kafka transactions fail too, at the cost of latency',
  },
  'poll-interval': {
    type: 'duration',
    default: '20ms',
    min: 1,
    max: 60_000,
    needs: ['relay=poll'],
    help: 'with -relay=poll: interval between polls of an empty outbox if no orders process of this host wakes the relay',
  },
  'read-every': {
    type: 'duration',
    default: '5ms',
    min: 0,
    max: 10_000,
    needs: ['relay=poll'],
    help: 'with -relay=poll: minimum time between two reads that are not full; a longer time needs less CPU',
  },
  'rescan-interval': {
    type: 'duration',
    default: '60s',
    min: 100,
    needs: ['relay=poll'],
    help: 'with -relay=poll: how often the scan restarts at the lowest id',
  },
  'batch-rows': {
    type: 'int',
    default: '1000',
    min: 1,
    max: 100_000,
    help: 'rows of a batch',
  },
  'in-flight-bytes': {
    type: 'size',
    default: '64MiB',
    min: 1_048_576,
    help: 'payload bytes in memory, read and not yet marked; a larger row is processed alone',
  },
  'answer-timeout': {
    type: 'duration',
    default: '30s',
    min: 100,
    max: 3_600_000,
    help: 'how long a statement may be unanswered before its connection is replaced and /ready fails',
  },
  'delivery-timeout': {
    type: 'duration',
    default: '30s',
    min: 1000,
    help: 'how long a batch may wait for the broker before /ready fails and, if the topic has its leaders, the producer is replaced; rows are never dropped',
  },
  'horizon-warn': {
    type: 'duration',
    default: '60s',
    min: 1000,
    help: 'warn of a session, slot, standby or prepared transaction that prevents the removal of dead rows for this long',
  },
  wake: {
    type: 'string',
    choices: ['on', 'off'],
    default: 'on',
    help: 'on: let the orders processes of this host and user wake the relay',
  },
  'exit-when-drained': {
    type: 'bool',
    default: 'false',
    help: 'end with 0 once nothing is pending',
  },
  'crash-point': {
    type: 'string',
    choices: ['commit', 'publish', 'mark'],
    help: 'where to end by SIGKILL: commit, when rows are read and not published; publish, when they are acknowledged and not marked; mark, when they are marked and the source is not yet notified',
  },
  'crash-after': {
    type: 'int',
    default: '0',
    min: 0,
    needs: ['crash-point'],
    help: 'published rows before -crash-point takes effect',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

/** @throws bad_value */
function topicRules(text: string | undefined): TopicRules {
  const rules = (text ?? '').split(',').filter((rule) => rule !== '');
  return Object.fromEntries(
    rules.map((rule) => {
      const at = rule.lastIndexOf('=');
      if (at > 0) return [rule.slice(0, at), rule.slice(at + 1)];
      throw coreError('bad_value', `-topics has ${JSON.stringify(rule)}, which is not TYPE=TOPIC`, {
        next: 'give rules such as -topics=parcel.*=parcels,invoice.sent.v1=invoices',
      });
    }),
  );
}

async function wakeDriver(context: Context): Promise<WakeDriver | undefined> {
  if (context.settings.wake === 'off') return undefined;
  return (await import('../io/wake/unix.ts')).unixWake;
}

/** Undefined: the relay polls the table. */
async function sourceOf(context: Context): Promise<RelayOptions['makeSource']> {
  const { settings } = context;
  if (settings.relay !== 'wal') return undefined;
  const { pgReplicationDriver } = await import('../io/postgres/replication/pg.ts');
  const { slot, publication } = settings;
  return (parts) =>
    new WalSource(parts, {
      ...WAL_DEFAULTS,
      driver: pgReplicationDriver,
      url: withSettings(settings.postgres, { schema: settings.schema }),
      names: {
        ...(slot === undefined ? {} : { slot }),
        ...(publication === undefined ? {} : { publication }),
      },
      heartbeatMs: settings.heartbeat,
      auditMs: settings['sweep-interval'],
    });
}

async function optionsOf(context: Context): Promise<RelayOptions> {
  const { settings, clock, metrics, log } = context;
  const crashPoint = settings['crash-point'] as RelayCrashPoint | undefined;
  return {
    sql: await sqlDriver(context),
    broker: await brokerDriver(context),
    wake: await wakeDriver(context),
    clock,
    metrics,
    log,
    makeSource: await sourceOf(context),
    migrations: settings.migrate ? migrationsOf('relay') : undefined,
    crash:
      crashPoint === undefined
        ? undefined
        : {
            point: crashPoint,
            after: settings['crash-after'],
            end: () => process.kill(process.pid, 'SIGKILL'),
          },
    settings: {
      postgres: settings.postgres,
      brokers: settings.brokers,
      schema: settings.schema,
      table: settings.table,
      topic: settings.topic,
      topics: topicRules(settings.topics),
      source: settings.source,
      mode: settings.relay as RelayMode,
      name: `${hostname()}-${process.pid}-${randomUuid(systemRandom).slice(0, 8)}`,
      shards: settings.shards,
      leaseMs: settings.lease,
      fence: settings.fence as 'mark' | 'broker',
      rowsMax: settings['batch-rows'],
      pollIntervalMs: settings['poll-interval'],
      readEveryMs: settings['read-every'],
      rescanMs: settings['rescan-interval'],
      inFlightBytesMax: settings['in-flight-bytes'],
      answerTimeoutMs: settings['answer-timeout'],
      deliveryTimeoutMs: settings['delivery-timeout'],
      horizonWarnMs: settings['horizon-warn'],
      createTopic: settings['create-topics']
        ? {
            partitions: settings.partitions,
            replicationFactor: settings['replication-factor'],
            retentionMs: settings['topic-retention'],
          }
        : undefined,
      exitWhenDrained: settings['exit-when-drained'],
    },
  };
}

export const command = defineCommand({
  name: 'relay',
  summary: 'Publish pending outbox rows to the broker, at least once and in order, and mark them',
  description: `
Reads rows that are not marked, in id order, publishes them and marks exactly the acknowledged ones. Several relays on one
outbox share it by shards of aggregate_id; when one is silent for -lease, the others take over its shards. A crash between
publish and mark publishes again under the same msg_id; payments absorbs it.

  millrace relay -brokers=127.0.0.1:9092 -postgres=postgres://me@127.0.0.1/shop -migrate`,
  settings: SETTINGS,
  async run(context) {
    const relay = new Relay(await optionsOf(context));
    context.onClose(() => relay.close());
    await relay.open();
    context.readiness('relay', () => {
      const why = relay.unreadyReason();
      if (why !== undefined) throw coreError('unreachable', why);
      return true;
    });
    context.setReady();
    await relay.run(context.drain);
    return undefined;
  },
});
