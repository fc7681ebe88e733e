/** `millrace relay`: publishes what the orders service committed, at least once and in order. */
import { coreError } from '../core/errors.ts';
import { RecordBatch } from '../core/layout/record-batch.ts';
import { withSettings } from '../outbox/connection.ts';
import { requireTables } from '../outbox/migrations.ts';
import { ORDERS_TABLES } from '../outbox/orders/tables.ts';
import { ORDER_EVENTS_TOPIC } from '../outbox/relay/event.ts';
import { PollRelay, type RelayCrashPoint } from '../outbox/relay/poll.ts';
import { Publisher } from '../outbox/relay/publish.ts';
import { readLag } from '../outbox/relay/store.ts';
import { type CommandContext, defineCommand } from './shell/command.ts';
import { brokerDriver, sqlDriver } from './shell/drivers.ts';
import { sleepUntil } from './shell/wait.ts';

/** Bytes a row takes in a batch beside its payload: key, headers and the frame of the value. */
const ROW_OVERHEAD_BYTES = 1024;
const PAYLOAD_BYTES_TYPICAL = 1024;
const LAG_EVERY_MS = 1000;

const SETTINGS = {
  brokers: { type: 'string', required: true, help: 'host:port of the brokers, with commas between' },
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: { type: 'string', default: 'public', help: 'schema of the table outbox' },
  relay: {
    type: 'string',
    choices: ['poll'],
    default: 'poll',
    help: 'how pending rows are found: poll reads the table',
  },
  topic: { type: 'string', default: ORDER_EVENTS_TOPIC, help: 'topic of the events' },
  partitions: { type: 'int', default: '4', min: 1, max: 10_000, help: 'partitions of a created topic' },
  'replication-factor': { type: 'int', default: '1', min: 1, max: 32_767, help: 'copies of a created topic' },
  'topic-retention': {
    type: 'duration',
    default: '24h',
    min: 60_000,
    help: 'retention of a created topic; part of the redelivery horizon of payments',
  },
  'create-topics': { type: 'bool', default: 'true', help: 'create the topic when it is missing' },
  'poll-interval': {
    type: 'duration',
    default: '20ms',
    min: 1,
    max: 60_000,
    help: 'wait between two looks at an empty outbox',
  },
  'batch-rows': {
    type: 'int',
    default: '1000',
    min: 1,
    max: 100_000,
    help: 'rows published and marked at once',
  },
  'delivery-timeout': {
    type: 'duration',
    default: '30s',
    min: 1000,
    help: 'how long the client tries to deliver a row before it stays pending',
  },
  'crash-point': {
    type: 'string',
    choices: ['commit', 'publish'],
    help: 'end by SIGKILL there: commit, a committed row was seen and not published; publish, it is acknowledged and not marked',
  },
  'crash-after': { type: 'int', default: '0', min: 0, help: 'rows published before -crash-point counts' },
} as const;

type Context = CommandContext<typeof SETTINGS>;

async function createTopic(context: Context): Promise<void> {
  const { settings } = context;
  const driver = await brokerDriver(context);
  const admin = await driver.admin({ brokers: settings.brokers, clientId: 'millrace-relay' });
  try {
    if (settings['create-topics']) {
      const [created] = await admin.createTopics([
        {
          topic: settings.topic,
          partitions: settings.partitions,
          replicationFactor: settings['replication-factor'],
          config: {
            'message.timestamp.type': 'LogAppendTime',
            'retention.ms': String(settings['topic-retention']),
          },
        },
      ]);
      if (created === true) context.log.info({ topic: settings.topic }, 'topic created');
    } else if (!(await admin.listTopics()).some(({ topic }) => topic === settings.topic)) {
      throw coreError('unreachable', `the topic ${settings.topic} does not exist`, {
        next: 'create it, or leave -create-topics on',
      });
    }
  } finally {
    await admin.close();
  }
}

export const command = defineCommand({
  name: 'relay',
  summary: 'Publish pending outbox rows to the broker, at least once and in order, and mark them',
  description: `
Reads rows that are not marked, in id order, publishes them and marks exactly the acknowledged ones. A second relay on the
same schema stands by. A crash between publish and mark publishes again under the same msg_id; payments absorbs it.

  millrace relay -brokers=127.0.0.1:9092 -postgres=postgres://me@127.0.0.1/shop`,
  settings: SETTINGS,
  async run(context) {
    const { settings, metrics, log, drain } = context;
    const pool = await (await sqlDriver(context)).connect({
      url: withSettings(settings.postgres, { schema: settings.schema }),
      // The cycle's transaction, and the look at the lag beside it.
      connectionsMax: 2,
      applicationName: 'millrace relay',
      connectTimeoutMs: 5000,
    });
    context.onClose(() => pool.close());
    await requireTables(pool, settings.schema, ORDERS_TABLES, 'orders');
    await createTopic(context);
    const producer = await (await brokerDriver(context)).producer({
      brokers: settings.brokers,
      clientId: 'millrace-relay',
      acks: -1,
      idempotence: true,
      properties: { 'message.timeout.ms': settings['delivery-timeout'], 'linger.ms': 1 },
    });
    context.onClose(() => producer.close());

    const rowsMax = settings['batch-rows'];
    const batch = RecordBatch.create(rowsMax, rowsMax * (ROW_OVERHEAD_BYTES + PAYLOAD_BYTES_TYPICAL));
    const crashPoint = settings['crash-point'] as RelayCrashPoint | undefined;
    const relay = new PollRelay({
      pool,
      schema: settings.schema,
      publisher: new Publisher(producer, batch, settings.topic, 'poll'),
      metrics,
      log,
      rowsMax,
      intervalMs: settings['poll-interval'],
      backoffMaxMs: 5000,
      sleep: (ms) => sleepUntil(ms, drain),
      drain,
      ...(crashPoint === undefined ? {} : { crashPoint }),
      crash: () => process.kill(process.pid, 'SIGKILL'),
      crashAfter: settings['crash-after'],
    });

    const lagRows = metrics.gauge('relay_lag_rows', 'Outbox rows that are pending.');
    const lagSeconds = metrics.gauge('relay_lag_seconds', 'Age of the oldest pending outbox row.');
    const look = setInterval(() => {
      readLag(pool).then(
        (lag) => {
          lagRows.set(lag.rows);
          lagSeconds.set(lag.oldestSeconds);
        },
        // The cycle meets the same database and reports it.
        () => {},
      );
    }, LAG_EVERY_MS);
    context.onClose(() => clearInterval(look));
    context.readiness('relay', () => relay.isHealthy());
    context.setReady();
    await relay.run();
    return undefined;
  },
});
