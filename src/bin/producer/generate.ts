/** Random orders of `millrace producer` without `-in`. */
import { coreError } from '../../core/errors.ts';
import type { Schema } from '../../formats/schema.ts';
import { DEFAULT_ORDERS, OrderGenerator } from '../../gen/order.ts';
import { fitOf } from '../../registry/producer/fit.ts';
import type { FramedProducer } from '../../registry/producer/instance.ts';
import { runProducers } from '../../registry/producer/run.ts';
import type { Sequence } from '../../registry/producer/sequence.ts';
import type { SenderContext } from './senders.ts';

/** Key of an order: a string as it is, a number in decimal.
 *  @param path path of the key's field; undefined for no key @throws bad_value */
export function orderKey(path: readonly string[] | undefined): (value: unknown) => string | null {
  const [name, ...rest] = path ?? [];
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

/** Returns the orders of a seed with the number types of the schema. */
function valuesOf(schema: Schema, seed: number): (index: number) => unknown {
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: BigInt(seed) });
  let sample = generator.order(0);
  for (let index = 1; sample.items.length === 0; index++) sample = generator.order(index);
  const convert = fitOf(schema, sample);
  return (index) => convert?.(generator.order(index)) ?? generator.order(index);
}

/** Sends generated orders.
 *  @returns the number of orders of these instances that were acknowledged */
export function sendOrders(
  context: SenderContext,
  instances: readonly FramedProducer[],
  schema: Schema,
  sequence: Sequence,
  onSent: (rows: number) => void,
): Promise<number> {
  const { settings, clock } = context;
  const valueAt = valuesOf(schema, settings.seed);
  const wallMs = clock.wallNowMs();
  return runProducers({
    instances,
    source: (from, count) => Array.from({ length: count }, (_, i) => valueAt(from + i)),
    sequence,
    // Threads have different monotonic clocks, but one wall clock.
    startMs: clock.monotonicMs() - (wallMs - sequence.startedAt(wallMs)),
    rate: settings.rate,
    batchRows: settings['batch-rows'],
    clock,
    drain: context.drain,
    onSent,
  });
}
