/** Runs of the orders service under steady load: alone, or with relay and payments downstream. */
import { readFileSync } from 'node:fs';
import { invariant } from '../../src/core/errors.ts';
import { createTopic } from './arrivals.ts';
import type { CpuMeter } from './cpu.ts';
import { type LoadOptions, type LoadReport, load, slope } from './load.ts';
import { preloadKeys } from './preload.ts';
import { Restartable } from './restartable.ts';
import { commitToEffectMs, type EffectTimes, requireCharges, requireOrders } from './truth.ts';
import { type Database, metric, until, type World } from './world.ts';

const CAUGHT_UP_MS_MAX = 300_000;
const SAMPLE_MS = 1000;

export interface OrdersRunOptions {
  /** Flags of the orders command in addition to the database. */
  readonly flags?: readonly string[];
  readonly relayAndPayments?: boolean;
  readonly relayFlags?: readonly string[];
  readonly paymentsFlags?: readonly string[];
  readonly preload?: number;
  /** Seed of the first load (1). */
  readonly seed?: number;
}

/** Result of a steady run. CPU is in µs per request. */
export interface SteadyRun {
  readonly report: LoadReport;
  readonly cpuUs: (name: string) => number;
  readonly effect: EffectTimes | undefined;
  /** Outside the time after each fault; undefined without faults. */
  readonly calmEffect: EffectTimes | undefined;
  /** Growth of the relay's lag, in rows per second. */
  readonly lagSlope: number | undefined;
}

export type SteadyOptions = Omit<LoadOptions, 'target' | 'seed'> & {
  /** Awaited between the load and the checks. */
  readonly beforeChecks?: () => Promise<unknown>;
};

/** An orders service on a new database; its seeds never repeat. */
export class OrdersRun {
  readonly database: Database;
  readonly orders: Restartable;
  /** Relay and payments, if they run. */
  readonly downstream: readonly Restartable[];
  private readonly world: World;
  private readonly preloaded: number;
  private seed: number;
  private least = 0;
  private most = 0;

  private constructor(
    world: World,
    database: Database,
    orders: Restartable,
    downstream: readonly Restartable[],
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
    const start = (name: string, flags: readonly string[]): Promise<Restartable> =>
      Restartable.start(world, name, [postgres, '-migrate', ...flags]);
    // At a fixed HTTP port, gRPC would be at its default port, which one run alone can have.
    const orders = await start('orders', ['-grpc-listen=127.0.0.1:0', ...(options.flags ?? [])]);
    const preload = options.preload ?? 0;
    if (preload > 0) {
      world.context.say(`preloading ${preload} idempotency keys`);
      await preloadKeys(database, preload);
    }
    const downstream: Restartable[] = [];
    if (options.relayAndPayments === true) {
      const topic = world.topic();
      await createTopic(world, topic);
      const shared = [`-brokers=${world.brokers}`, `-topic=${topic}`];
      const { relayFlags = [], paymentsFlags = [] } = options;
      downstream.push(await start('relay', [...shared, ...relayFlags]));
      downstream.push(await start('payments', [...shared, `-group=${topic}`, ...paymentsFlags]));
    }
    return new OrdersRun(world, database, orders, downstream, options);
  }

  /** gRPC address of the service, host:port. */
  grpcAddress(): string {
    const log = readFileSync(this.orders.current().process.logPath, 'utf8');
    const address = /listening on grpc:\/\/(\S+)/.exec(log)?.[1];
    invariant(address !== undefined, 'orders prints its gRPC address');
    return address;
  }

  /** Sends a load and checks the rows of the database. */
  async send(
    options: Omit<LoadOptions, 'target' | 'seed'>,
    target = this.orders.current().address,
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

  async steady(options: SteadyOptions, target?: string): Promise<SteadyRun> {
    const { smoke } = this.world.context;
    const meter = this.world.meter([this.orders, ...this.downstream]);
    const lag: number[] = [];
    const relay = this.downstream.find(({ name }) => name === 'relay');
    const sampler =
      relay === undefined
        ? undefined
        : setInterval(() => {
            void metric(relay.current(), 'relay_lag_rows').then(
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
    await options.beforeChecks?.();
    let effect: SteadyRun['effect'];
    let calmEffect: SteadyRun['calmEffect'];
    if (relay !== undefined) {
      await until('a charge for every order', CAUGHT_UP_MS_MAX, () => this.isCharged());
      // A one-second load may end before the downstream processes start or the first order commits.
      // Then only the time after the load can be measured.
      if (smoke) cpuUs = spent(meter, report.replies);
      await requireCharges(this.database);
      const from = report.started_ms + 1000 * (options.warmupSeconds ?? 0);
      const to = smoke ? Number.POSITIVE_INFINITY : from + 1000 * options.seconds;
      effect = await commitToEffectMs(this.database, from, to);
      const { faults } = options;
      if (faults !== undefined) calmEffect = await commitToEffectMs(this.database, from, to, faults);
    }
    return {
      report,
      cpuUs,
      effect,
      calmEffect,
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
