/** CPU of generating random orders, which must not cost more than the work on them. */
import { DEFAULT_ORDERS, OrderGenerator } from '../../src/gen/order.ts';
import { type BenchContext, type BenchResult, result, seriesOf } from '../harness.ts';
import { machineFactor } from '../unit.ts';

const ORDERS = 200_000;
const ORDERS_SMOKE = 2000;
const GOAL_US = 1.5;

/** Microseconds of CPU for one order, over all threads of the process. */
function orderCpuUs(generator: OrderGenerator, first: number, count: number): number {
  let items = 0;
  const before = process.cpuUsage();
  for (let index = first; index < first + count; index++) items += generator.order(index).items.length;
  const { user, system } = process.cpuUsage(before);
  if (items === 0) throw new Error('the orders have no items');
  return (user + system) / count;
}

/** Measures the generator of orders. */
export function generatingResults(context: BenchContext): BenchResult[] {
  context.say('generating orders');
  const count = context.smoke ? ORDERS_SMOKE : ORDERS;
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 1n });
  orderCpuUs(generator, 0, count);
  const values = Array.from({ length: context.repeats }, (_, turn) =>
    orderCpuUs(generator, (turn + 1) * count, count),
  );
  return [
    result({
      metric: 'generate a random order',
      unit: 'us CPU/order',
      better: 'less',
      ours: seriesOf(values),
      goal: { onReference: GOAL_US, factor: machineFactor() },
    }),
  ];
}
