/** `millrace reconcile -watch`. */
import { EXIT } from '../../core/errors.ts';
import { requireTables } from '../../outbox/database/migrations.ts';
import { ORDERS_TABLES } from '../../outbox/orders/tables.ts';
import {
  inSchemas,
  KEYS_TO_ORDERS,
  WATCHED_ORDERS_TO_CHARGES,
  WATCHED_OUTBOX_TO_INBOX,
} from '../../outbox/reconcile/orders-pairs.ts';
import { type PairConfig, readPair } from '../../outbox/reconcile/pairs/pair.ts';
import { parkedLookup } from '../../outbox/reconcile/parked.ts';
import { watchText } from '../../outbox/reconcile/report.ts';
import { boundMs, readInboxBounds, readOrdersBounds } from '../../outbox/reconcile/retained.ts';
import { SqlBuckets, type TimeBucketOptions } from '../../outbox/reconcile/watch/bucket.ts';
import { type WatchedPair, watch } from '../../outbox/reconcile/watch/run.ts';
import { SuppressedBuckets } from '../../outbox/reconcile/watch/suppressed.ts';
import { connectDatabases, type Databases } from './parts.ts';
import type { Context } from './settings.ts';

/** A bucket takes milliseconds, so a statement without an answer for this time is lost. */
const ANSWER_TIMEOUT_MS = 120_000;
/** Ids that a log line and the result list for each class of a bucket. */
const BUCKET_IDS_MAX = 20;

interface Plan {
  readonly config: PairConfig;
  readonly options: Pick<TimeBucketOptions, 'setAside' | 'retainedFromMs'>;
}

const finite = (ms: number): number | undefined => (Number.isFinite(ms) ? ms : undefined);

/** Pairs of orders and payments, each with the rule by which its rows expire. */
async function ordersPlans(
  { settings }: Context,
  { left, right }: Databases,
  paymentsSchema: string,
): Promise<Plan[]> {
  const { schema, 'key-ttl': keyTtlMs } = settings;
  await requireTables(left, schema, ORDERS_TABLES, 'orders');
  await requireTables(right, paymentsSchema, ['inbox', 'charges'], 'payments');
  const ordersBounds = () => readOrdersBounds(left, schema, keyTtlMs);
  return [
    {
      config: inSchemas(WATCHED_OUTBOX_TO_INBOX, schema, paymentsSchema),
      options: {
        retainedFromMs: async () => {
          const outbox = await boundMs(left, (await ordersBounds()).outboxFrom);
          const inbox = await readInboxBounds(right, `${paymentsSchema}.inbox`);
          const floor = Number.parseInt(inbox.inboxFloor.replaceAll(/[^0-9a-f]/g, '').slice(0, 12), 16);
          return finite(Math.max(outbox, floor, await boundMs(right, inbox.inboxTimedFrom)));
        },
      },
    },
    {
      config: inSchemas(WATCHED_ORDERS_TO_CHARGES, schema, paymentsSchema),
      options: {
        setAside: await parkedLookup(right, paymentsSchema),
        retainedFromMs: () => Promise.resolve(undefined),
      },
    },
    {
      // Both tables are those of the orders service.
      config: inSchemas(KEYS_TO_ORDERS, schema, schema),
      options: { retainedFromMs: async () => finite(await boundMs(left, (await ordersBounds()).keysFrom)) },
    },
  ];
}

/** Watches configured pairs, or orders and payments. */
export async function watchPairs(
  context: Context,
  configured: readonly PairConfig[] | undefined,
  paymentsSchema: string,
): Promise<number> {
  const { settings, clock, log, metrics, drain } = context;
  const pools = await connectDatabases(context, { paymentsSchema, answerTimeoutMs: ANSWER_TIMEOUT_MS });
  const plans: readonly Plan[] =
    configured?.map((config) => ({ config, options: {} })) ??
    (await ordersPlans(context, pools, paymentsSchema));
  const idsMax = Math.min(settings.ids, BUCKET_IDS_MAX);
  const lateAfterMs = settings['late-after'] === 0 ? undefined : settings['late-after'];
  const pairs: WatchedPair[] = [];
  for (const { config, options } of plans) {
    const ownPools = config.name === KEYS_TO_ORDERS.name ? { left: pools.left, right: pools.left } : pools;
    const pair = await readPair(config, ownPools);
    const buckets = await SqlBuckets.open(pair, ownPools, {
      idsMax,
      lateAfterMs,
      ...options,
    });
    pairs.push({ name: pair.name, classes: pair.classes, buckets });
  }
  if (configured === undefined) {
    const suppressed = await SuppressedBuckets.open(pools.right, paymentsSchema, idsMax);
    if (suppressed !== undefined) pairs.push(suppressed);
  }
  let reason: string | undefined;
  context.readiness('comparisons', () => {
    if (reason !== undefined) throw new Error(reason);
    return true;
  });
  context.setReady();
  const results = await watch(
    {
      pairs,
      clock,
      log,
      metrics,
      drain,
      widthMs: settings.bucket,
      settleMs: settings.settle,
      passEveryMs: settings['pass-every'],
      share: settings['pass-share'] / 100 / pairs.length,
      onHealth: (now) => {
        reason = now;
      },
    },
    settings.ids,
  );
  const holds = results.every(({ deltas }) => deltas.length === 0);
  context.print(watchText(results), { holds, pairs: results });
  return holds ? EXIT.done : EXIT.no;
}
