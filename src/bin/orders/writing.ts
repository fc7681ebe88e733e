/** Builds the write path of `millrace orders` from its settings. */
import { sleep } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { SqlPool, TextPool } from '../../io/postgres/sql/port.ts';
import { WriteCheck } from '../../outbox/database/write-check.ts';
import type { UuidV7 } from '../../outbox/ids.ts';
import { type OrdersMetrics, ordersMetrics } from '../../outbox/orders/metrics.ts';
import { OrderReads } from '../../outbox/orders/reads.ts';
import { Orders } from '../../outbox/orders/service.ts';
import { BatchControl } from '../../outbox/orders/write/batch-control.ts';
import { type KeyTtl, openKeyTtl } from '../../outbox/orders/write/key-ttl.ts';
import { Maintenance } from '../../outbox/orders/write/maintenance.ts';
import { ReplayCache } from '../../outbox/orders/write/replay-cache.ts';
import { type NewOrder, tryToInsert } from '../../outbox/orders/write/store.ts';
import { OrderWriter } from '../../outbox/orders/write/writer.ts';
import { systemRandom } from '../../shell/clock.ts';
import type { CommandContext } from '../../shell/command.ts';
import type { ORDERS_SETTINGS } from './settings.ts';
import { openHot, openWaker } from './sql.ts';

type Context = CommandContext<typeof ORDERS_SETTINGS>;

/** Largest number of orders in an adaptive batch. */
const ADAPTIVE_ROWS_MAX = 512;
const FIXED_ROWS_MAX = 1000;
/** Two: one transaction commits while the next batch gathers. */
const LANES = 2;
const LANES_ONE_BY_ONE = 32;
const TICK_MS = 100;
/** Number of outbox partitions created before their ids are used. */
const PARTITIONS_AHEAD = 2;
/** More rows than fit on one page of each table: on a full disk some rows may still find room. */
const TRIAL_ROWS = 128;
/** Margin for clock differences and a client's retry. */
const KEY_TTL_MARGIN_MS = 60_000;

interface Batching {
  readonly rowsMax: number;
  readonly fixed: boolean;
  readonly oneByOne: boolean;
  /** Default if -connections is absent. */
  readonly lanes: number;
}

/** @throws bad_value */
export function batchingOf(batch: string): Batching {
  if (batch === 'adaptive')
    return { rowsMax: ADAPTIVE_ROWS_MAX, fixed: false, oneByOne: false, lanes: LANES };
  if (batch === 'off') return { rowsMax: 1, fixed: true, oneByOne: true, lanes: LANES_ONE_BY_ONE };
  const rows = /^\d{1,4}$/.test(batch) ? Number(batch) : 0;
  if (rows < 1 || rows > FIXED_ROWS_MAX) {
    throw coreError(
      'bad_value',
      `-batch=${batch} is not adaptive, off or a number from 1 to ${FIXED_ROWS_MAX}`,
      {
        next: 'leave it out for adaptive',
      },
    );
  }
  return { rowsMax: rows, fixed: true, oneByOne: false, lanes: LANES };
}

/** A key must outlive every request that may still carry it. @throws bad_value */
export function checkKeyTtl(settings: Context['settings'], ttlMs = settings['key-ttl']): void {
  if (settings['key-ttl-change'] && settings['key-ttl'] === undefined) {
    throw coreError('bad_value', '-key-ttl-change has no -key-ttl to change to', {
      next: 'give -key-ttl, or leave -key-ttl-change out',
    });
  }
  const least = settings.deadline + settings['inflight-wait'] + KEY_TTL_MARGIN_MS;
  if (ttlMs === undefined || ttlMs >= least) return;
  throw coreError(
    'bad_value',
    `-key-ttl is ${ttlMs}ms, shorter than -deadline + -inflight-wait + 1m = ${least}ms: a key could expire while a request with it is in flight`,
    { next: `set -key-ttl to ${least}ms or more, or lower the others` },
  );
}

/** Kills the process at the crash point of the settings. */
function crashing(context: Context): (orders: number) => void {
  const { settings, log } = context;
  const point = settings['crash-point'];
  let committed = 0;
  return (orders) => {
    committed += orders;
    if (point === undefined || committed < settings['crash-after']) return;
    log.warn({ point, unfinished: orders }, 'crash point reached');
    process.kill(process.pid, 'SIGKILL');
  };
}

/** Orders for a trial insert, with fresh keys. */
const trialOrders = (ids: UuidV7): NewOrder[] =>
  Array.from({ length: TRIAL_ROWS }, () => ({
    key: ids.next(),
    requestHash: '00'.repeat(32),
    orderId: ids.next(),
    msgId: ids.next(),
    accountId: 1n,
    amountCents: 1n,
    traceparent: undefined,
    tracestate: undefined,
  }));

interface WriterParts {
  readonly hot: TextPool;
  readonly lanes: number;
  readonly control: BatchControl;
  readonly oneByOne: boolean;
  readonly keyTtlMs: () => number;
  readonly ids: UuidV7;
  readonly metrics: OrdersMetrics;
  readonly wake: () => void;
}

/** Creates the writer of orders and the readiness check that the database accepts writes. */
function openWriter(context: Context, parts: WriterParts): OrderWriter {
  const { settings, clock, log } = context;
  const { hot, lanes, control, oneByOne, ids, metrics, wake } = parts;
  const crash = crashing(context);
  const writes = new WriteCheck({
    trial: () => tryToInsert(hot, trialOrders(ids), new Date(clock.wallNowMs()).toISOString()),
    monotonicMs: () => clock.monotonicMs(),
    log,
  });
  const writer = new OrderWriter({
    pool: hot,
    lanes,
    control,
    oneByOne,
    inFlightWaitMs: Math.min(settings['inflight-wait'], settings.deadline),
    keyTtlMs: parts.keyTtlMs,
    metrics,
    clock,
    random: systemRandom,
    committed: (orders) => {
      writes.wrote();
      wake();
      crash(orders);
    },
    failed: (thrown) => writes.failed(thrown),
  });
  context.readiness('writes', async () => {
    await writes.check();
    return true;
  });
  return writer;
}

/** Runs the maintenance of the tables until the drain. */
function maintain(context: Context, pool: SqlPool, keyTtl: KeyTtl): void {
  const { settings, clock, drain, log } = context;
  const maintenance = new Maintenance({
    pool,
    schema: settings.schema,
    partitionRows: settings['outbox-partition-rows'],
    ahead: PARTITIONS_AHEAD,
    retentionMs: settings['outbox-retention'],
    keyTtl,
    intervalMs: settings['maintenance-interval'],
    metrics: context.metrics,
    log,
    monotonicMs: () => clock.monotonicMs(),
    sleep: (ms) => sleep(clock, ms, drain),
    drain,
  });
  const maintaining = maintenance.run();
  context.onClose(() => maintaining);
}

export async function openOrders(context: Context, plain: SqlPool, ids: UuidV7): Promise<Orders> {
  const { settings, clock, log } = context;
  const batching = batchingOf(settings.batch);
  const lanes = settings.connections ?? batching.lanes;
  const hot = await openHot(context, plain, lanes);
  const wake = await openWaker(context, plain);
  const metrics = ordersMetrics(context.metrics);
  const replays = new ReplayCache(settings['replay-cache']);
  const keyTtl = await openKeyTtl({
    pool: plain,
    schema: settings.schema,
    askedMs: settings['key-ttl'] === undefined ? undefined : Math.round(settings['key-ttl']),
    change: settings['key-ttl-change'],
    onChange(ttlMs, beforeMs) {
      replays.clear();
      log.warn({ ttlMs, beforeMs }, 'another process changed -key-ttl for all');
    },
  });
  checkKeyTtl(settings, keyTtl.ms());
  const control = new BatchControl({
    lanes,
    rowsMax: batching.rowsMax,
    fixed: batching.fixed,
    budgetMs: settings.budget,
  });
  const writer = openWriter(context, {
    hot,
    lanes,
    control,
    oneByOne: batching.oneByOne,
    keyTtlMs: keyTtl.ms,
    ids,
    metrics,
    wake,
  });
  const reads = new OrderReads({
    pool: plain,
    clock,
    metrics,
    readsMax: settings['reads-max'],
    deadlineMs: settings.deadline,
  });
  const orders = new Orders({
    reads,
    writer,
    control,
    replays,
    ids,
    clock,
    metrics,
    inFlightMax: settings['in-flight-max'],
    queueWaitMaxMs: settings['queue-wait-max'],
    deadlineMs: settings.deadline,
  });
  context.onClose(clock.every(TICK_MS, () => orders.tick()));
  context.metrics.onCollect(() => {
    metrics.inFlight.set(orders.inFlight());
    metrics.readsInFlight.set(reads.inFlight());
    metrics.queued.set(writer.queued());
    metrics.cacheBytes.set(replays.bytes());
    metrics.batchRowsMax.set(control.rowsNow());
    metrics.gatherSeconds.set(control.gatherMs() / 1000);
  });
  maintain(context, plain, keyTtl);
  return orders;
}
