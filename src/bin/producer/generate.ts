/** Random orders of `millrace producer` without `-in`. */
import { coreError } from '../../core/errors.ts';
import { DEFAULT_ORDERS, type LogicalOrder, OrderGenerator } from '../../gen/order.ts';
import type { FramedProducer } from '../../registry/producer/instance.ts';
import { runProducers } from '../../registry/producer/run.ts';
import { keyPath, type ProducerContext } from './settings.ts';

/** Key of an order: a string as it is, a number in decimal. @throws bad_value */
export function orderKey(context: ProducerContext): (value: unknown) => string | null {
  const [name, ...rest] = keyPath(context, 'order_id') ?? [];
  if (name === undefined) return () => null;
  return (value) => {
    const key = rest.length > 0 ? undefined : (value as Readonly<Record<string, unknown>>)[name];
    if (typeof key !== 'string' && typeof key !== 'bigint' && typeof key !== 'number') {
      throw coreError('bad_value', `-key-field=${name} is not a string or number field of an order`, {
        next: 'give a field name, or -key-field= for none',
      });
    }
    return String(key);
  };
}

/** Sends generated orders. @returns the number of orders that were acknowledged */
export function sendOrders(
  context: ProducerContext,
  instances: readonly FramedProducer[],
  onSent: (rows: number) => void,
): Promise<number> {
  const { settings } = context;
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: BigInt(settings.seed) });
  return runProducers({
    instances,
    source: (from, count) => Array.from({ length: count }, (_, i): LogicalOrder => generator.order(from + i)),
    count: settings.count,
    rate: settings.rate,
    batchRows: settings['batch-rows'],
    clock: context.clock,
    drain: context.drain,
    onSent,
  });
}
