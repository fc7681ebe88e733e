/** Runs of the orders service under steady load: alone, or with relay and payments downstream. */
import { readFileSync } from 'node:fs';
import { invariant } from '../../src/core/errors.ts';
import { createTopic } from './arrivals.ts';
import type { CpuMeter } from './cpu.ts';
import { type LoadOptions, type LoadReport, load, slope } from './load.ts';
import { preloadKeys } from './preload.ts';
import { commitToEffectMs, requireCharges, requireOrders } from './truth.ts';
import { type Child, type Database, metric, until, type World } from './world.ts';

const CAUGHT_UP_MS_MAX = 300_000;
const SAMPLE_MS = 1000;

export interface OrdersRunOptions {
  /** Flags of the orders command in addition to the database. */
  readonly flags?: readonly string[];
  readonly relayAndPayments?: boolean;
  readonly preload?: number;
  /** Seed of the first load (1). */
  readonly seed?: number;
  /** Flags of the relay. */
  readonly relayFlags?: readonly string[];
}

/** Result of a steady run. CPU is in µs per request. */
export interface SteadyRun {
  readonly report: LoadReport;
  readonly cpuUs: (name: string) => number;
  readonly effect: { readonly p50: number; readonly p99: number; readonly max: number } | undefined;
  /** Growth of the relay's lag, in rows per second. */
  readonly lagSlope: number | undefined;
}

/** An orders service on a new database; its seeds never repeat. */
export class OrdersRun {
  readonly database: Database;
  readonly orders: Child;
  private readonly world: World;
  private readonly downstream: readonly Child[];
  private readonly preloaded: number;
  private seed: number;
  private least = 0;
  private most = 0;

  private constructor(
    world: World,
    database: Database,
    orders: Child,
    downstream: readonly Child[],
    { preload = 0, seed = 1 }: OrdersRunOptions,
  ) {
    this.world = world;
    this.database = database;
    this.orders = orders;
    this.downstream = downstream;
    this.preloaded = preload;
    this.seed = seed;
  }

  static async start(world: World, options: OrdersRunOptions = {}): Promise<OrdersRun> {
    const database = await world.database();
    const postgres = `-postgres=${database.url}`;
    const start = (name: string, flags: readonly string[]): Promise<Child> =>
      world.start(name, [name, postgres, '-migrate', '-listen=127.0.0.1:0', ...flags]);
    const orders = await start('orders', options.flags ?? []);
    const preload = options.preload ?? 0;
    if (preload > 0) {
      world.context.say(`preloading ${preload} idempotency keys`);
      await preloadKeys(database, preload);
    }
    const downstream: Child[] = [];
    if (options.relayAndPayments === true) {
      const topic = world.topic();
      await createTopic(world, topic);
      const shared = [`-brokers=${world.brokers}`, `-topic=${topic}`];
      downstream.push(await start('relay', [...shared, ...(options.relayFlags ?? [])]));
      downstream.push(await start('payments', [...shared, `-group=${topic}`]));
    }
    return new OrdersRun(world, database, orders, downstream, options);
  }

  /** gRPC address of the service, host:port. */
  grpcAddress(): string {
    const log = readFileSync(this.orders.process.logPath, 'utf8');
    const address = /listening on grpc:\/\/(\S+)/.exec(log)?.[1];
    invariant(address !== undefined, 'orders prints its gRPC address');
    return address;
  }

  /** Sends a load and checks the rows of the database. */
  async send(
    options: Omit<LoadOptions, 'target' | 'seed'>,
    target = this.orders.address,
  ): Promise<LoadReport> {
    const report = await load({ ...options, target, seed: this.seed++ });
    this.least += report.acknowledged_intents;
    this.most += report.intents;
    const deadlocks = await requireOrders(
      this.database,
      { least: this.least, most: this.most },
      this.preloaded,
    );
    invariant(deadlocks === 0, `no deadlock in the database, but the server counted ${deadlocks}`);
    return report;
  }

  async steady(options: Omit<LoadOptions, 'target' | 'seed'>, target?: string): Promise<SteadyRun> {
    const { smoke } = this.world.context;
    const meter = this.world.meter([this.orders, ...this.downstream]);
    const lag: number[] = [];
    const relay = this.downstream.find(({ name }) => name === 'relay');
    const sampler =
      relay === undefined
        ? undefined
        : setInterval(() => {
            void metric(relay, 'relay_lag_rows').then(
              (rows) => lag.push(rows ?? 0),
              () => {},
            );
          }, SAMPLE_MS);
    let report: LoadReport;
    try {
      report = await this.send(options, target);
    } finally {
      clearInterval(sampler);
    }
    let cpuUs = spent(meter, report.replies);
    let effect: SteadyRun['effect'];
    if (relay !== undefined) {
      await until('a charge for every order', CAUGHT_UP_MS_MAX, () => this.isCharged());
      // A one-second load may end before the downstream processes start or the first order commits.
      // Then only the time after the load can be measured.
      if (smoke) cpuUs = spent(meter, report.replies);
      await requireCharges(this.database);
      const from = report.started_ms + 1000 * (options.warmupSeconds ?? 0);
      const to = smoke ? Number.POSITIVE_INFINITY : from + 1000 * options.seconds;
      effect = await commitToEffectMs(this.database, from, to);
    }
    return {
      report,
      cpuUs,
      effect,
      lagSlope: relay === undefined ? undefined : slope(lag.slice(options.warmupSeconds ?? 0)),
    };
  }

  async stop(): Promise<void> {
    for (const child of [this.orders, ...this.downstream]) await child.stop();
    await this.database.drop();
  }

  private async isCharged(): Promise<boolean> {
    const { rows } = await this.database.pool.query<{ readonly same: boolean }>(
      'SELECT (SELECT count(*) FROM orders) = (SELECT count(*) FROM charges) AS same',
    );
    return rows[0]?.same === true;
  }
}

/** CPU µs per request, read immediately: later CPU time does not belong to the run. */
function spent(meter: CpuMeter, requests: number): (name: string) => number {
  const names = ['orders', 'relay', 'payments', 'postgres', 'broker'];
  const us = new Map(names.map((name) => [name, (meter.seconds(name) / requests) * 1e6]));
  return (name) => us.get(name) ?? Number.NaN;
}
