/** `millrace bench volume`: very many order events, each charged and reconciled.
 *
 *  Legs through the API on top of preloaded keys, and legs of rows that are prepared in SQL, follow
 *  each other until the goals are reached. With -out each finished leg is stored immediately, and a
 *  further call, of any build, continues from there. A leg that is stopped is made again. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { openParts, type Part } from './effects/parts.ts';
import type { World } from './effects/world.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf } from './harness.ts';
import { madeHere, storeReport } from './stored.ts';
import { apiLeg, type Leg, type LegPlan, PARTS, type PartName, preparedLeg } from './volume/legs.ts';
import { type VolumeReport, volumePage } from './volume/page.ts';

const NAME = 'volume';
const ROWS = 10_000_000;
const PRELOAD = 50_000_000;
const LOAD_MS = 1_200_000;
/** Orders of all legs of the API, and of all legs. */
const API_GOAL = 25_000_000;
const TOTAL_GOAL = 200_000_000;
const SMOKE = { rows: 2000, preload: 1000, loadMs: 1000, rate: 200, apiGoal: 1, totalGoal: 2000 };

interface Sizes {
  readonly rows: number;
  readonly preload: number;
  readonly loadMs: number;
  /** Requests per second; 0: as fast as they are answered. */
  readonly rate: number;
  readonly apiGoal: number;
  readonly totalGoal: number;
}

const FULL = {
  ...{ rows: ROWS, preload: PRELOAD, loadMs: LOAD_MS, rate: 0 },
  ...{ apiGoal: API_GOAL, totalGoal: TOTAL_GOAL },
};

function sizesOf({ smoke, rows, preload, durationMs, rate }: BenchContext): Sizes {
  const sizes = smoke ? SMOKE : FULL;
  return {
    ...sizes,
    rows: rows ?? sizes.rows,
    preload: preload ?? sizes.preload,
    loadMs: durationMs ?? sizes.loadMs,
    rate: rate ?? sizes.rate,
  };
}

const ordersOf = (legs: readonly Leg[], part?: PartName): number =>
  legs.reduce((sum, leg) => sum + (part === undefined || leg.part === part ? leg.orders : 0), 0);

function resultsOf(legs: readonly Leg[], { apiGoal, totalGoal }: Sizes): readonly BenchResult[] {
  const row = (metric: string, unit: string, value: number, goal: Parameters<typeof result>[0]['goal']) =>
    result({
      metric,
      unit,
      better: 'more',
      ours: seriesOf([value]),
      ...(goal === undefined ? {} : { goal }),
    });
  const rate = (part: PartName, relay: Leg['relay']): BenchResult[] => {
    const rates = legs
      .filter((leg) => leg.part === part && leg.relay === relay)
      .map(({ orders, seconds }) => orders / seconds);
    if (rates.length === 0) return [];
    const what = part === 'api' ? 'through the API' : 'prepared in SQL';
    const metric = `orders ${what} until their charge, relay ${relay}`;
    return [result({ metric, unit: 'orders/s', better: 'more', ours: seriesOf(rates), list: true })];
  };
  return [
    row('order events of all legs', 'events', ordersOf(legs), { valueAtLeast: totalGoal }),
    row('distinct keys through the API', 'keys', ordersOf(legs, 'api'), { valueAtLeast: apiGoal }),
    row('legs', 'legs', legs.length, undefined),
    result({
      ...{ metric: 'deltas', unit: 'deltas', better: 'less' },
      ours: seriesOf([legs.reduce((sum, { deltas }) => sum + deltas, 0)]),
      goal: { valueAtMost: 0 },
    }),
    ...PARTS.flatMap((part) => [...rate(part, 'poll'), ...rate(part, 'wal')]),
  ];
}

/** Finished legs of this call and of earlier ones. */
class Legs {
  readonly all: Leg[] = [];
  private readonly context: BenchContext;
  private readonly sizes: Sizes;

  constructor(context: BenchContext, sizes: Sizes) {
    this.context = context;
    this.sizes = sizes;
    const path = context.out === undefined ? undefined : join(context.out, `${NAME}.json`);
    if (path === undefined || !existsSync(path)) return;
    this.all.push(...(JSON.parse(readFileSync(path, 'utf8')) as VolumeReport).legs);
    context.say(`${this.all.length} legs of earlier calls are kept: ${ordersOf(this.all)} orders`);
  }

  /** Next leg of a part. Undefined where the goal is reached. */
  next(part: PartName): LegPlan | undefined {
    const { rows, preload, loadMs, rate, apiGoal, totalGoal } = this.sizes;
    const has = part === 'api' ? ordersOf(this.all, 'api') : ordersOf(this.all);
    if (has >= (part === 'api' ? apiGoal : totalGoal)) return undefined;
    const number =
      this.all.reduce((last, leg) => (leg.part === part ? Math.max(last, leg.number) : last), 0) + 1;
    return { number, rows, preload, loadSeconds: loadMs / 1000, rate };
  }

  add(leg: Leg): void {
    this.all.push(leg);
    const { context, all, sizes } = this;
    context.say(
      `${leg.part} ${leg.number}: ${leg.orders} orders, ${leg.charges} charges, ${leg.deltas} deltas in ${Math.round(leg.seconds)} s; ${ordersOf(all)} orders so far`,
    );
    if (context.out === undefined) return;
    const report: VolumeReport = {
      ...{ bench: NAME, ...madeHere() },
      ...(context.smoke ? { flags: ['-smoke'] } : {}),
      ...{ results: resultsOf(all, sizes), legs: all },
    };
    storeReport(context.out, report, volumePage(report));
  }
}

const partOf =
  (legs: Legs, name: PartName): Part =>
  async (world: World) => {
    const make = name === 'api' ? apiLeg : preparedLeg;
    for (let plan = legs.next(name); plan !== undefined; plan = legs.next(name)) {
      if (world.context.drain.aborted) break;
      world.context.say(`${name} leg ${plan.number}`);
      legs.add(await make(world, plan));
    }
    return [];
  };

export const bench: Bench = {
  name: NAME,
  takesBrokerProperties: true,
  storesReport: true,
  summary: 'Very many orders, through the API and prepared in SQL, each charged and reconciled, leg by leg.',
  async run(context) {
    const sizes = sizesOf(context);
    const legs = new Legs(context, sizes);
    await openParts(context, { api: partOf(legs, 'api'), prepared: partOf(legs, 'prepared') });
    return resultsOf(legs.all, sizes);
  },
};
