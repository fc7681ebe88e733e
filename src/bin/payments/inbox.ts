/** Runs the inbox keeper next to the consumer: creates partitions ahead, measures the live
 *  redelivery horizon and drops expired keys. */
import { sleep } from '../../core/clock.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { type InboxNames, plainTableName } from '../../outbox/inbox/names.ts';
import type { DedupTtl } from '../../outbox/inbox/retention/horizon.ts';
import {
  InboxKeeper,
  isBusy,
  readDatabaseNowMs,
  readOldestUnmarkedMs,
} from '../../outbox/inbox/retention/keeper.ts';
import { makePartitions } from '../../outbox/inbox/retention/partitions.ts';
import { readTopicAges } from '../../outbox/inbox/retention/topic-ages.ts';
import { PRUNED_TABLES, prune } from '../../outbox/payments/store.ts';
import { sqlDriver } from '../../shell/drivers.ts';
import type { PaymentsContext } from './settings.ts';

/** Number of partition widths that are created ahead of the clock. */
const WIDTHS_AHEAD = 2;
const ANSWER_TIMEOUT_MS = 10_000;
/** Rows deleted by one statement. */
const PRUNED_ROWS = 10_000;
/** Minimum age of pruned records: longer than the outcome of an unanswered COMMIT is queried. */
const RECORDS_KEPT_MS = 3_600_000;
const CONNECT_TIMEOUT_MS = 5000;

export interface InboxOptions {
  readonly pool: SqlPool;
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly names: InboxNames;
  readonly ttl: DedupTtl;
}

/** Creates partitions before the first batch, so that its rows need not be moved. If a reader locks
 *  the table, the keeper creates them later.
 *  @throws too_many_partitions */
export async function makeInboxPartitions(
  { settings, log }: PaymentsContext,
  pool: SqlPool,
  names: InboxNames,
  ttl: DedupTtl,
): Promise<void> {
  const widthMs = settings['inbox-width'];
  const nowMs = await readDatabaseNowMs(pool);
  const coverage = { fromMs: nowMs - ttl.ttlMs, toMs: nowMs + WIDTHS_AHEAD * widthMs, widthMs };
  let partitions = 0;
  try {
    await makePartitions(pool, names, coverage, () => {
      partitions++;
    });
  } catch (thrown) {
    if (!isBusy(thrown)) throw thrown;
    log.warn({ error: (thrown as Error).message }, 'cannot create inbox partitions yet: the table is locked');
  } finally {
    // Partitions before the failed one were created.
    if (partitions > 0) log.info({ partitions }, 'inbox partitions made');
  }
}

/** Returns a function that reads the created_at of the oldest unmarked row; undefined without
 *  -outbox-postgres. */
async function outboxSource(
  context: PaymentsContext,
): Promise<(() => Promise<number | undefined>) | undefined> {
  const { settings } = context;
  const url = settings['outbox-postgres'];
  if (url === undefined) return undefined;
  const table = plainTableName(settings['outbox-table'], 'a plain name of an outbox table');
  const driver = await sqlDriver(context);
  let pool: SqlPool | undefined;
  context.onClose(() => pool?.close());
  // The outbox database may be unavailable at start: expiry waits for it, charging does not.
  return async () => {
    pool ??= await driver.connect({
      url,
      flag: '-outbox-postgres',
      connectionsMax: 1,
      applicationName: 'millrace payments horizon',
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      answerTimeoutMs: ANSWER_TIMEOUT_MS,
    });
    return readOldestUnmarkedMs(pool, table);
  };
}

/** Prunes the records of batches and absorbed duplicates. They are needed until the outcome of a
 *  transaction is known, then only for monitoring, so they expire with their msg_ids. */
async function pruneRecords(
  { settings, clock, log }: PaymentsContext,
  pool: SqlPool,
  ttl: DedupTtl,
  drain: AbortSignal,
): Promise<void> {
  while (!drain.aborted) {
    await sleep(clock, settings['inbox-every'], drain);
    for (const table of PRUNED_TABLES) {
      for (let gone = PRUNED_ROWS; gone === PRUNED_ROWS && !drain.aborted; ) {
        gone = await prune(pool, table, Math.max(ttl.ttlMs, RECORDS_KEPT_MS), PRUNED_ROWS).catch(
          (thrown: unknown) => {
            log.debug(
              { table, error: (thrown as Error).message },
              'cannot prune; retrying at the next interval',
            );
            return 0;
          },
        );
      }
    }
  }
}

/** Runs the keeper while `work` runs; a failure of either ends both. */
export async function keepInbox(
  context: PaymentsContext,
  { pool, driver, brokers, names, ttl }: InboxOptions,
  work: () => Promise<void>,
): Promise<void> {
  const { settings, clock, metrics, log } = context;
  const outbox = await outboxSource(context);
  const over = new AbortController();
  const drain = AbortSignal.any([context.drain, over.signal]);
  const widthMs = settings['inbox-width'];
  const keeper = new InboxKeeper({
    pool,
    names,
    sources: {
      databaseNowMs: () => readDatabaseNowMs(pool),
      processNowMs: () => clock.wallNowMs(),
      topic: () =>
        readTopicAges({
          driver,
          brokers,
          topic: settings.topic,
          group: settings.group,
          timeoutMs: ANSWER_TIMEOUT_MS,
        }),
      ...(outbox === undefined ? {} : { outbox }),
    },
    ttlMs: ttl.ttlMs,
    parts: {
      relayOutageMs: settings['max-relay-outage'],
      consumerOutageMs: settings['max-consumer-outage'],
      clockSkewMs: settings['clock-skew'],
    },
    unsafe: settings['unsafe-ttl'],
    widthMs,
    aheadMs: WIDTHS_AHEAD * widthMs,
    everyMs: settings['inbox-every'],
    metrics,
    log,
    drain,
    sleep: (ms) => sleep(clock, ms, drain),
  });
  const working = work().finally(() => over.abort());
  await Promise.all([working, keeper.run(), pruneRecords(context, pool, ttl, drain)]);
}
