/** `millrace payments`: charges each order exactly once, however often its event is delivered. */

import { sleep } from '../core/clock.ts';
import { coreError, EXIT, findMillraceError } from '../core/errors.ts';
import { formatDuration } from '../core/quantity.ts';
import type { BrokerAdmin, BrokerDriver } from '../io/kafka/port.ts';
import type { SqlPool } from '../io/postgres/sql/port.ts';
import { withSettings } from '../outbox/database/connection.ts';
import { migrate, requireColumn, requireTables } from '../outbox/database/migrations.ts';
import { outboxError } from '../outbox/errors.ts';
import { eventTopicConfig } from '../outbox/event-topic.ts';
import { UuidV7 } from '../outbox/ids.ts';
import { Inbox } from '../outbox/inbox/once.ts';
import { checkTtl, type DedupTtl } from '../outbox/inbox/retention/horizon.ts';
import { PaymentsConsumer } from '../outbox/payments/consumer.ts';
import { DuplicateInjector } from '../outbox/payments/duplicates.ts';
import { paymentsMetrics } from '../outbox/payments/metrics.ts';
import type { BatchOutcome } from '../outbox/payments/store.ts';
import { PAYMENTS_TABLES } from '../outbox/payments/tables.ts';
import { systemRandom } from '../shell/clock.ts';
import { defineCommand } from '../shell/command.ts';
import { brokerDriver, sqlDriver } from '../shell/drivers.ts';
import { migrationsOf } from '../shell/migrations.ts';
import { makeTopics } from '../shell/topics.ts';
import { crashPoint } from './payments/crash.ts';
import { keepInbox, makeInboxPartitions } from './payments/inbox.ts';
import { listParked, redriveParked } from './payments/parked.ts';
import { type PaymentsContext as Context, SETTINGS } from './payments/settings.ts';

const CONNECT_TIMEOUT_MS = 5000;
/** Lock timeout of a batch. A batch whose rows stay locked longer is retried after a pause, with
 *  the partitions paused. */
const LOCK_TIMEOUT_MS = 10_000;
/** Answer timeout, which detects a host that vanished without closing the connection. Far longer
 *  than a batch or a partition change takes. */
const ANSWER_TIMEOUT_MS = 60_000;
const WATERMARKS_TIMEOUT_MS = 10_000;
/** Bytes for which a broker keeps a fetch waiting, at most fetch.wait.max.ms. With the default of
 *  one byte each batch that the relay appends to a partition is answered by itself, at the cost of
 *  broker and client, although records then wait for -batch-every. */
const FETCH_BYTES_MIN = 64 * 1024;
const LEADER_POLL_MS = 100;

async function openDatabase(context: Context): Promise<SqlPool> {
  const { settings } = context;
  const driver = await sqlDriver(context);
  const options = {
    url: withSettings(settings.postgres, {
      schema: settings.schema,
      lockTimeoutMs: LOCK_TIMEOUT_MS,
      // An evicted member must not keep row locks: the next owner of its partitions would wait for
      // them.
      more: { idle_in_transaction_session_timeout: String(settings['session-timeout']) },
    }),
    applicationName: 'millrace payments',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
  };
  if (settings.migrate) {
    // No answer timeout: a migration of large tables may take long.
    const patient = await driver.connect({ ...options, connectionsMax: 1 });
    try {
      const applied = await migrate(patient, settings.schema, 'payments', migrationsOf('payments'));
      context.log.info({ schema: settings.schema, applied }, 'migrated');
    } finally {
      await patient.close();
    }
  }
  // Connections for the batch, the inbox keeper and the readiness check.
  const pool = await driver.connect({ ...options, connectionsMax: 3, answerTimeoutMs: ANSWER_TIMEOUT_MS });
  context.onClose(() => pool.close());
  await requireTables(pool, settings.schema, PAYMENTS_TABLES, 'payments');
  await requireColumn(pool, settings.schema, 'payments_parked', 'digest', 'payments');
  return pool;
}

/** Partitions of the topic. Creates the topic if it is missing and -create-topics is on. */
async function partitionsOf(context: Context, admin: BrokerAdmin): Promise<readonly number[]> {
  const { settings } = context;
  const { topic } = settings;
  if (settings['create-topics']) {
    const [created] = await makeTopics(context.log, admin, [
      {
        topic,
        partitions: settings.partitions,
        replicationFactor: settings['replication-factor'],
        config: eventTopicConfig(settings['topic-retention']),
      },
    ]);
    if (created === true) context.log.info({ topic, partitions: settings.partitions }, 'topic created');
  }
  const found = (await admin.listTopics()).find((one) => one.topic === topic);
  if (found === undefined) {
    throw (
      (await admin.refusalOf(topic)) ??
      outboxError('topic_missing', `there is no topic ${topic}`, {
        next: 'create it, or leave -create-topics on',
      })
    );
  }
  return found.partitions;
}

/** Retries while a partition of a newly created topic has no leader yet. */
async function retryUntilLed<T>({ clock, drain }: Context, ask: () => Promise<T>): Promise<T> {
  const deadlineMs = clock.monotonicMs() + WATERMARKS_TIMEOUT_MS;
  for (;;) {
    try {
      return await ask();
    } catch (thrown) {
      const later = findMillraceError(thrown)?.code === 'broker_unavailable' && !drain.aborted;
      if (!later || clock.monotonicMs() > deadlineMs) throw thrown;
      await sleep(clock, LEADER_POLL_MS, drain);
    }
  }
}

/** End offset of each partition that holds a record now. */
async function endsOf(
  context: Context,
  driver: BrokerDriver,
  brokers: string,
  partitions: readonly number[],
): Promise<ReadonlyMap<number, bigint>> {
  const { topic } = context.settings;
  const probe = await driver.consumer({ brokers, clientId: 'millrace-payments-ends' });
  try {
    const ends = new Map<number, bigint>();
    for (const partition of partitions) {
      const { low, high } = await retryUntilLed(context, () =>
        probe.watermarkOffsets({ topic, partition }, WATERMARKS_TIMEOUT_MS),
      );
      if (high > low) ends.set(partition, high);
    }
    return ends;
  } finally {
    await probe.close();
  }
}

function ttlOf(context: Context): DedupTtl {
  const { settings, log } = context;
  const ttl = checkTtl(
    settings['dedup-ttl'],
    {
      topicRetentionMs: settings['topic-retention'],
      relayOutageMs: settings['max-relay-outage'],
      consumerOutageMs: settings['max-consumer-outage'],
      clockSkewMs: settings['clock-skew'],
    },
    settings['unsafe-ttl'],
  );
  const fields = {
    ttl: formatDuration(ttl.ttlMs),
    horizon: ttl.arithmetic,
    margin_seconds: ttl.marginMs / 1000,
  };
  if (ttl.marginMs < 0)
    log.warn(fields, 'the dedup TTL is below the redelivery horizon: a late duplicate may count as new');
  else log.info(fields, 'dedup TTL covers the redelivery horizon');
  return ttl;
}

/** Registers the checks of /ready. */
function watchHealth(context: Context, pool: SqlPool, consumer: PaymentsConsumer): void {
  context.readiness('postgres', async () => {
    await pool.query('SELECT 1');
    if (!consumer.isHealthy())
      throw coreError(
        'unreachable',
        'the database does not take the batch; it is retried, and the log has the error',
      );
    return true;
  });
  context.readiness('group', async () => {
    const why = await consumer.unhealthyReason();
    if (why !== undefined) throw coreError('unreachable', why);
    return true;
  });
}

async function runPayments(context: Context): Promise<number> {
  const { settings, log, clock } = context;
  const { brokers } = settings;
  if (brokers === undefined)
    throw coreError('usage', '-brokers is required', { next: 'give -brokers=host:port,host:port' });
  if (!/^[a-zA-Z0-9._-]{1,249}$/.test(settings.topic)) {
    throw coreError('bad_value', `-topic=${settings.topic} is not a topic name`, {
      next: 'use 1 to 249 letters, digits, dots, underscores and dashes',
    });
  }
  const ttl = ttlOf(context);
  const metrics = paymentsMetrics(context.metrics);
  metrics.ttlMargin.set(ttl.marginMs / 1000);
  const pool = await openDatabase(context);
  const driver = await brokerDriver(context);
  const { topic, group } = settings;
  const inbox = new Inbox('inbox');
  await makeInboxPartitions(context, pool, inbox.names, ttl);
  const admin = await driver.admin({ brokers, clientId: 'millrace-payments-admin' });
  const partitions = await partitionsOf(context, admin).finally(() => admin.close());
  const ends = settings['exit-at-end'] ? await endsOf(context, driver, brokers, partitions) : undefined;
  const progress = context.progress({ what: `events of ${topic}`, unit: 'deliveries' });
  const sums = { charged: 0, suppressed: 0, parked: 0 };
  const consumer = new PaymentsConsumer({
    connect: (hooks) =>
      driver.consumer({
        ...hooks,
        brokers,
        clientId: 'millrace-payments',
        group,
        autoOffsetReset: 'earliest',
        partitionEof: true,
        properties: {
          ...(settings['batch-every'] === 0 ? {} : { 'fetch.min.bytes': FETCH_BYTES_MIN }),
          'session.timeout.ms': settings['session-timeout'],
          'max.poll.interval.ms': Math.max(settings['max-poll-interval'], settings['session-timeout']),
        },
      }),
    topic,
    pool,
    ids: new UuidV7(clock, systemRandom),
    inbox: settings['unsafe-ttl'] ? inbox.withoutFloor() : inbox,
    injector: new DuplicateInjector(settings.seed, settings['dup-rate']),
    metrics,
    clock,
    log,
    drain: context.drain,
    batchRows: settings['batch-rows'],
    batchBytes: settings['batch-bytes'],
    batchWaitMs: settings['batch-wait'],
    batchEveryMs: settings['batch-every'],
    ends,
    crashPoint: crashPoint(context),
    onCommitted: (outcome: BatchOutcome) => {
      sums.charged += outcome.charged.length;
      sums.suppressed += outcome.suppressed.length;
      sums.parked += outcome.parked.length;
      progress.add(outcome.charged.length + outcome.suppressed.length + outcome.parked.length);
      progress.error(outcome.parked.length);
    },
  });
  watchHealth(context, pool, consumer);
  context.setReady();
  await keepInbox(context, { pool, driver, brokers, names: inbox.names, ttl }, () => consumer.run());
  progress.done();
  context.print(
    `charged ${sums.charged} orders of ${topic}, suppressed ${sums.suppressed} duplicates, parked ${sums.parked} records`,
    { topic, group, ...sums, ignored: metrics.ignored.value() },
  );
  return EXIT.done;
}

export const command = defineCommand({
  name: 'payments',
  summary: 'Charge each order of order.events once, in one transaction with its inbox row',
  description: `
Reads the topic as a group. A batch is one transaction: the msg_ids into inbox, a charge for each new msg_id, and a
row in payments_suppressed for each delivery that charged nothing; offsets are committed afterwards. A record that cannot
become a charge goes to payments_parked and does not block its partition: -parked lists these, -redrive processes them
again once the cause is fixed.

  millrace payments -brokers=127.0.0.1:9092 -postgres=postgres://me@127.0.0.1/shop -migrate
  millrace payments -postgres=postgres://me@127.0.0.1/shop -redrive -redrive-reason=refused
`,
  settings: SETTINGS,
  async run(context) {
    const { settings } = context;
    if (settings.parked) return listParked(context, () => openDatabase(context));
    if (settings.redrive) return redriveParked(context, () => openDatabase(context));
    return runPayments(context);
  },
});
