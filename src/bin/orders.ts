/** `millrace orders`: the HTTP service that creates orders and their outbox rows. */
import { randomFillSync } from 'node:crypto';
import type { SqlPool } from '../io/sql/port.ts';
import { withSettings } from '../outbox/connection.ts';
import { UuidV7 } from '../outbox/ids.ts';
import { migrate, requireTables } from '../outbox/migrations.ts';
import { ordersFallbacks, ordersRoutes } from '../outbox/orders/http.ts';
import { BODY_BYTES_MAX } from '../outbox/orders/request.ts';
import { Orders } from '../outbox/orders/service.ts';
import { ORDERS_TABLES } from '../outbox/orders/tables.ts';
import { OrderWriter } from '../outbox/orders/writer.ts';
import { GRPC_SETTINGS, serveGrpc } from './orders/grpc.ts';
import { type CommandContext, defineCommand } from './shell/command.ts';
import { sqlDriver } from './shell/drivers.ts';
import { migrationsOf } from './shell/migrations.ts';

const SETTINGS = {
  listen: {
    type: 'listen',
    default: '127.0.0.1:8080',
    help: 'host:port of POST /orders, GET /orders/{id} and /metrics /health /ready /version',
  },
  ...GRPC_SETTINGS,
  postgres: {
    type: 'string',
    required: true,
    secret: true,
    help: 'database, postgres://user:password@host:port/name',
  },
  schema: {
    type: 'string',
    default: 'public',
    help: 'schema of the tables orders, idempotency_keys and outbox',
  },
  migrate: { type: 'bool', default: 'false', help: 'create the tables that are missing, then go on' },
  connections: {
    type: 'int',
    default: '4',
    min: 1,
    max: 256,
    help: 'transactions under way at once, one connection each',
  },
  batch: {
    type: 'int',
    default: '64',
    min: 1,
    max: 1000,
    help: 'orders that may share one transaction while the connections are busy; 1 is one each',
  },
  'in-flight-max': {
    type: 'int',
    default: '1024',
    min: 1,
    help: 'requests under way above which a new one is answered 429',
  },
  'in-flight-wait': {
    type: 'duration',
    default: '5s',
    min: 1,
    help: 'how long a request waits for another process that is writing the same key, then 503',
  },
} as const;

type Context = CommandContext<typeof SETTINGS>;

interface Parts {
  readonly ids: UuidV7;
  orders: Orders | undefined;
}

/** Routes are asked for before the database is open; both look their parts up here. */
const partsByContext = new WeakMap<object, Parts>();

function partsOf(context: Pick<Context, 'clock'>): Parts {
  let parts = partsByContext.get(context);
  if (parts === undefined) {
    parts = { ids: new UuidV7(context.clock, (into) => randomFillSync(into)), orders: undefined };
    partsByContext.set(context, parts);
  }
  return parts;
}

async function open(context: Context): Promise<SqlPool> {
  const { settings } = context;
  const driver = await sqlDriver(context);
  const pool = await driver.connect({
    url: withSettings(settings.postgres, {
      schema: settings.schema,
      lockTimeoutMs: settings['in-flight-wait'],
    }),
    // One more than the writers, so that reads and readiness never queue behind them.
    connectionsMax: settings.connections + 1,
    applicationName: 'millrace orders',
    connectTimeoutMs: 5000,
  });
  context.onClose(() => pool.close());
  if (settings.migrate) {
    const applied = await migrate(pool, settings.schema, 'orders', migrationsOf('orders'));
    context.log.info({ schema: settings.schema, applied }, 'migrated');
  }
  await requireTables(pool, settings.schema, ORDERS_TABLES, 'orders');
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
  // Every byte of a key counts, and a client that pipelines gets every answer.
  httpNeeds: () => ['header_bytes', 'pipeline_waits'],
  routes: (context) =>
    ordersRoutes({
      orders: () => partsOf(context).orders,
      requestId: () => partsOf(context).ids.next(),
      log: context.log,
      outcomes: context.metrics.counter(
        'orders_requests_total',
        'Requests to the orders service by outcome.',
        ['outcome'],
      ),
    }),
  http: (context) => ({
    bodyBytesMax: BODY_BYTES_MAX,
    fallbacks: ordersFallbacks(() => partsOf(context).ids.next()),
  }),
  async run(context) {
    const { settings, metrics, clock } = context;
    const pool = await open(context);
    const writer = new OrderWriter({
      pool,
      lanes: settings.connections,
      batchMax: settings.batch,
      batchRows: metrics.histogram(
        'orders_transaction_rows',
        'Orders written by one transaction.',
        [],
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024],
      ),
    });
    const parts = partsOf(context);
    const orders = new Orders({
      pool,
      writer,
      clock,
      ids: parts.ids,
      inFlightMax: settings['in-flight-max'],
    });
    parts.orders = orders;
    const inFlight = metrics.gauge('orders_in_flight', 'Requests under way.');
    metrics.onCollect(() => inFlight.set(orders.inFlight()));
    context.readiness('postgres', async () => {
      await pool.query('SELECT 1');
      return true;
    });
    const grpc = await serveGrpc(context, { orders: () => parts.orders, requestId: () => parts.ids.next() });
    context.setReady();
    await grpc?.askHealth();
    await new Promise<void>((resolve) => {
      if (context.drain.aborted) resolve();
      context.drain.addEventListener('abort', () => resolve(), { once: true });
    });
    return 0;
  },
});
