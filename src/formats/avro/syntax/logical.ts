/** Logical types. An invalid logical type is ignored as the specification requires, but stays in
 *  the text. Source: Apache Avro 1.12 specification, "Logical Types". */

import { isInteger, type JsonObject, memberOf } from '../../json/text.ts';
import type { AvroLogical } from './tree.ts';

/** Types that a logical type may annotate; `fixed(n)` where a size is required. */
const UNDERLYING: ReadonlyMap<string, readonly string[]> = new Map([
  ['uuid', ['string', 'fixed(16)']],
  ['date', ['int']],
  ['time-millis', ['int']],
  ['time-micros', ['long']],
  ['timestamp-millis', ['long']],
  ['timestamp-micros', ['long']],
  ['timestamp-nanos', ['long']],
  ['local-timestamp-millis', ['long']],
  ['local-timestamp-micros', ['long']],
  ['local-timestamp-nanos', ['long']],
  ['big-decimal', ['bytes']],
  ['duration', ['fixed(12)']],
]);

/** True for the logical types that Avro 1.12.0 on the JVM implements itself; of "duration" it only
 *  knows the name. */
export const isBuiltInLogical = (name: string): boolean =>
  name === 'decimal' || (name !== 'duration' && UNDERLYING.has(name));

function integerOf(object: JsonObject, key: string): number | undefined {
  const node = memberOf(object, key);
  return node?.kind === 'number' && isInteger(node) ? Number(node.digits) : undefined;
}

function decimal(object: JsonObject, type: string, size: number | undefined): AvroLogical | undefined {
  const precision = integerOf(object, 'precision');
  const scale = memberOf(object, 'scale') === undefined ? 0 : integerOf(object, 'scale');
  if (type !== 'bytes' && type !== 'fixed') return undefined;
  if (precision === undefined || scale === undefined) return undefined;
  const most = size === undefined ? 2 ** 31 - 1 : Math.floor(Math.log10(2) * (8 * size - 1));
  if (precision < 1 || precision > most || scale < 0 || scale > precision) return undefined;
  return { logicalType: 'decimal', precision, scale };
}

/** Logical type of an annotation. @param type the annotated Avro type; @param size of a fixed */
export function logicalOf(object: JsonObject, type: string, size?: number): AvroLogical | undefined {
  const name = memberOf(object, 'logicalType');
  if (name?.kind !== 'string') return undefined;
  if (name.value === 'decimal') return decimal(object, type, size);
  const underlying = UNDERLYING.get(name.value);
  // A logical type that the specification does not define may be an agreement between its users.
  if (underlying === undefined || underlying.includes(size === undefined ? type : `fixed(${size})`))
    return { logicalType: name.value };
  return undefined;
}
