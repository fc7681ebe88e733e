/** `millrace orders`: the HTTP service that creates orders and their outbox rows. */
import type { RequestGate } from '../access/request.ts';
import { coreError } from '../core/errors.ts';
import type { SqlPool } from '../io/postgres/sql/port.ts';
import { migrate, requireColumn, requireTables } from '../outbox/database/migrations.ts';
import { UuidV7 } from '../outbox/ids.ts';
import { ordersFallbacks, ordersRoutes } from '../outbox/orders/http/routes.ts';
import { BODY_BYTES_MAX } from '../outbox/orders/request.ts';
import type { Orders } from '../outbox/orders/service.ts';
import { ORDERS_TABLES } from '../outbox/orders/tables.ts';
import { KEY_TTL_TABLE } from '../outbox/orders/write/key-ttl.ts';
import { systemRandom } from '../shell/clock.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { migrationsOf } from '../shell/migrations.ts';
import { packageVersion } from '../shell/package.ts';
import { ACCESS_SETTINGS, accessGate, warnOfExposure } from '../shell/servers/access.ts';
import { aborted } from '../shell/wait.ts';
import { GRPC_SETTINGS, grpcDrainMs, grpcListen, serveGrpc } from './orders/grpc.ts';
import { ORDERS_SETTINGS } from './orders/settings.ts';
import { canWrite, openPlain, withPatientPool } from './orders/sql.ts';
import { batchingOf, checkKeyTtl, openOrders } from './orders/writing.ts';

const SETTINGS = { ...ORDERS_SETTINGS, ...GRPC_SETTINGS, ...ACCESS_SETTINGS } as const;

type Context = CommandContext<typeof SETTINGS>;

interface Parts {
  readonly ids: UuidV7;
  /** Shared by both transports, so that a client has one rate limit. Undefined: no access
   *  control. */
  readonly gate: RequestGate | undefined;
  orders: Orders | undefined;
}

/** The routes are built before the database is open; both find their parts here. */
const partsByContext = new WeakMap<object, Parts>();

function partsOf(context: Context): Parts {
  let parts = partsByContext.get(context);
  if (parts === undefined) {
    const grpc = grpcListen(context.settings);
    warnOfExposure(context, [context.settings.listen, ...(grpc === undefined ? [] : [grpc])]);
    parts = {
      ids: new UuidV7(context.clock, systemRandom),
      gate: accessGate(context, {
        logsAllowed: false,
        counters: () => ({
          decisions: context.metrics.counter(
            'orders_auth_decisions_total',
            'Requests by authentication scheme and outcome.',
            ['scheme', 'outcome'],
          ),
          reloads: context.metrics.counter(
            'orders_auth_reloads_total',
            'Reloads of credential files after a change.',
            ['file', 'outcome'],
          ),
        }),
      }),
      orders: undefined,
    };
    partsByContext.set(context, parts);
  }
  return parts;
}

/** A request accepted before SIGTERM must be answered before its connection is closed. @throws
 *  bad_value */
function requireTimeToDrain(settings: Context['settings']): void {
  const { deadline, 'drain-timeout': drainMs } = settings;
  const openMs = grpcDrainMs(settings);
  if (deadline < openMs) return;
  throw coreError(
    'bad_value',
    `-deadline (${deadline} ms) is not below 0.8 of -drain-timeout (${openMs} of ${drainMs} ms): a drain would cut off requests that still have time`,
    { next: 'raise -drain-timeout or lower -deadline; a request may need its whole deadline after SIGTERM' },
  );
}

async function open(context: Context): Promise<SqlPool> {
  const { settings } = context;
  batchingOf(settings.batch);
  checkKeyTtl(settings);
  if (settings.migrate) {
    const applied = await withPatientPool(context, (patient) =>
      migrate(patient, settings.schema, 'orders', migrationsOf('orders')),
    );
    context.log.info({ schema: settings.schema, applied }, 'migrated');
  }
  const pool = await openPlain(context);
  await requireTables(pool, settings.schema, [...ORDERS_TABLES, KEY_TTL_TABLE], 'orders');
  await requireColumn(pool, settings.schema, 'outbox', 'traceparent', 'orders');
  await requireColumn(pool, settings.schema, 'outbox', 'headers', 'orders');
  return pool;
}

export const command = defineCommand({
  name: 'orders',
  summary: 'Serve POST /orders and gRPC: one order a key, with its outbox row in the same transaction',
  description: `
POST /orders takes {"account_id": int64, "amount_cents": int64} and the header Idempotency-Key with a UUID. A repeated key
with the same body gets the stored answer byte for byte; with another body it gets 409. Nothing is published here.

  millrace orders -postgres=postgres://me@127.0.0.1/shop -migrate
`,
  settings: SETTINGS,
  // Keys count in bytes, pipelined requests all need their answer, and a token may be long.
  httpNeeds: ({ settings }) => [
    'header_bytes',
    'pipeline_waits',
    ...(settings['auth-jwks'] === undefined ? [] : (['long_heads'] as const)),
  ],
  routes: (context) => {
    const parts = partsOf(context);
    return ordersRoutes({
      orders: () => parts.orders,
      requestId: () => parts.ids.next(),
      ...(parts.gate === undefined ? {} : { gate: parts.gate }),
      log: context.log,
      outcomes: context.metrics.counter(
        'orders_requests_total',
        'Requests to the orders service by outcome.',
        ['outcome'],
      ),
      hash: context.settings.hash as 'canonical' | 'raw',
      version: packageVersion(),
    });
  },
  http: (context) => ({
    bodyBytesMax: BODY_BYTES_MAX,
    fallbacks: ordersFallbacks(() => partsOf(context).ids.next()),
  }),
  async run(context) {
    requireTimeToDrain(context.settings);
    const parts = partsOf(context);
    const grpc = await serveGrpc(context, {
      orders: () => parts.orders,
      requestId: () => parts.ids.next(),
      gate: parts.gate,
    });
    const pool = await open(context);
    parts.orders = await openOrders(context, pool, parts.ids);
    context.readiness('postgres', () => canWrite(pool));
    context.setReady();
    await grpc?.askHealth();
    await aborted(context.drain);
    // Calls in flight still need the database, which closes next.
    await grpc?.drain(grpcDrainMs(context.settings));
    return 0;
  },
});
