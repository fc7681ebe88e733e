/** The processes of the simulated system: the product's own orders, relay and payments, with
 *  simulated ports. A killed process leaves no trace but its requests in transit. */
import { silentLogger } from '../../../src/core/log.ts';
import { Metrics } from '../../../src/core/metrics.ts';
import type { BatchConsumer, BrokerDriver } from '../../../src/io/kafka/port.ts';
import type { ReplicationDriver } from '../../../src/io/postgres/replication/port.ts';
import type { SqlDriver, SqlPool, TextPool } from '../../../src/io/postgres/sql/port.ts';
import { RELAY_DEFAULTS, WAL_DEFAULTS } from '../../../src/outbox/defaults.ts';
import { UuidV7 } from '../../../src/outbox/ids.ts';
import type { InboxPort } from '../../../src/outbox/inbox/port.ts';
import { ordersMetrics } from '../../../src/outbox/orders/metrics.ts';
import { OrderReads } from '../../../src/outbox/orders/reads.ts';
import { Orders } from '../../../src/outbox/orders/service.ts';
import { BatchControl } from '../../../src/outbox/orders/write/batch-control.ts';
import { ReplayCache } from '../../../src/outbox/orders/write/replay-cache.ts';
import { OrderWriter } from '../../../src/outbox/orders/write/writer.ts';
import { PaymentsConsumer } from '../../../src/outbox/payments/consumer.ts';
import { DuplicateInjector } from '../../../src/outbox/payments/duplicates.ts';
import { paymentsMetrics } from '../../../src/outbox/payments/metrics.ts';
import { Relay } from '../../../src/outbox/relay/instance.ts';
import { WalSource } from '../../../src/outbox/relay/wal/source.ts';
import type { SeededRandom } from '../../../src/sim/clock.ts';
import type { SimProcess } from '../relay-world/process.ts';
import type { Plan } from './plan.ts';

export const TOPIC = 'order.events';
export const LEASE_MS = 3000;
const GROUP = 'payments';
const SESSION_MS = 2500;
const SHARDS = 4;
const LANES = 4;
const TICK_MS = 100;
const DEADLINE_MS = 3000;
const DAY_MS = 86_400_000;
const BATCH_BYTES = 1 << 16;

export interface Running {
  readonly kind: 'orders' | 'relay' | 'payments';
  readonly name: string;
  readonly process: SimProcess;
  readonly drain: AbortController;
  /** Settles when the process ended by itself. */
  readonly ended: Promise<void>;
  readonly orders?: Orders;
}

export interface Seat {
  readonly name: string;
  readonly process: SimProcess;
  readonly random: SeededRandom;
  readonly plan: Plan;
}

/** Starts a process of orders. */
export function startOrders(seat: Seat, text: TextPool, plain: SqlPool): Running {
  const { process, random } = seat;
  const { clock } = process;
  const metrics = ordersMetrics(new Metrics());
  const control = new BatchControl({ lanes: LANES, rowsMax: 32, fixed: false, budgetMs: 25 });
  const writer = new OrderWriter({
    pool: text,
    lanes: LANES,
    control,
    oneByOne: false,
    inFlightWaitMs: 1000,
    keyTtlMs: () => DAY_MS,
    metrics,
    clock,
    random,
    committed: () => {},
    failed: () => {},
  });
  const orders = new Orders({
    reads: new OrderReads({ pool: plain, clock, metrics, readsMax: 16, deadlineMs: DEADLINE_MS }),
    writer,
    control,
    replays: new ReplayCache(1 << 16),
    ids: new UuidV7(clock, random),
    clock,
    metrics,
    inFlightMax: 1000,
    queueWaitMaxMs: 1000,
    deadlineMs: DEADLINE_MS,
  });
  const drain = new AbortController();
  const cancel = clock.every(TICK_MS, () => orders.tick());
  const ended = new Promise<void>((resolve) => {
    drain.signal.addEventListener('abort', () => {
      cancel();
      resolve();
    });
  });
  return { kind: 'orders', name: seat.name, process, drain, ended, orders };
}

export interface RelayPorts {
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  readonly replication: ReplicationDriver;
}

/** Starts a relay. Rejects if it cannot be opened. */
export async function startRelay(seat: Seat, ports: RelayPorts): Promise<Running> {
  const { plan, process, name } = seat;
  const relay = new Relay({
    sql: ports.sql,
    broker: ports.broker,
    clock: process.clock,
    metrics: new Metrics(),
    log: silentLogger,
    ...(plan.mode === 'wal'
      ? {
          makeSource: (parts) =>
            new WalSource(parts, {
              ...WAL_DEFAULTS,
              driver: ports.replication,
              url: '',
              heartbeatMs: 1000,
              auditMs: 2000,
            }),
        }
      : {}),
    settings: {
      ...RELAY_DEFAULTS,
      mode: plan.mode,
      fence: plan.fence,
      postgres: 'postgres://me@nowhere/shop',
      brokers: 'sim',
      table: 'outbox',
      topic: TOPIC,
      source: '/orders',
      name,
      shards: SHARDS,
      leaseMs: LEASE_MS,
      rowsMax: plan.batchRows,
      pollIntervalMs: 200,
      readEveryMs: 5,
      rescanMs: 10_000,
      deliveryTimeoutMs: 4000,
      createTopic: undefined,
    },
  });
  await relay.open();
  const drain = new AbortController();
  return { kind: 'relay', name, process, drain, ended: relay.run(drain.signal) };
}

export interface PaymentsPorts {
  readonly pool: SqlPool;
  readonly broker: BrokerDriver;
  /** Wraps the client of the group, so that its steps are seen. */
  readonly watch: (client: BatchConsumer) => BatchConsumer;
  readonly inbox: Pick<InboxPort, 'claim'>;
}

/** Starts a member of the payments group. */
export function startPayments(seat: Seat, ports: PaymentsPorts): Running {
  const { plan, process, random, name } = seat;
  const drain = new AbortController();
  const consumer = new PaymentsConsumer({
    connect: async (hooks) =>
      ports.watch(
        await ports.broker.consumer({
          ...hooks,
          brokers: 'sim',
          clientId: name,
          group: GROUP,
          autoOffsetReset: 'earliest',
          properties: { 'session.timeout.ms': SESSION_MS },
        }),
      ),
    topic: TOPIC,
    pool: ports.pool,
    ids: new UuidV7(process.clock, random),
    inbox: ports.inbox,
    injector: new DuplicateInjector(1, plan.dupRate),
    metrics: paymentsMetrics(new Metrics()),
    clock: process.clock,
    log: silentLogger,
    drain: drain.signal,
    batchRows: plan.batchRows,
    batchBytes: BATCH_BYTES,
    batchWaitMs: 250,
    batchEveryMs: 20,
    ends: undefined,
    crashPoint: async () => {},
    onCommitted: () => {},
  });
  return { kind: 'payments', name, process, drain, ended: consumer.run() };
}
