/** Random events of an Avro schema, and random changes of a schema that keep it readable. */
import fc from 'fast-check';
import type { AvroNode, AvroPrimitive } from '../../src/formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../src/formats/datum.ts';

/** Source of the random numbers of an event. */
export const numbers = fc.array(fc.nat(1_000_000), { minLength: 40, maxLength: 40 });

/** avsc assigns a map's "__proto__" to the object's prototype. */
export const hasProto = (bytes: Buffer): boolean => bytes.includes('__proto__');

/** Returns the next number below `most`. */
export type Next = (most: number) => number;

/** Returns the random numbers in order, and starts again when they are used up. */
export function drawingFrom(numbers: readonly number[]): Next {
  let at = 0;
  return (most) => ((numbers[at++ % numbers.length] as number) + (at >> 5)) % Math.max(1, most);
}

const DATA: Readonly<Record<AvroPrimitive, readonly AvroDatum[]>> = {
  null: [null],
  boolean: [true, false],
  int: [0, -1, 63, 64, -65, 2 ** 31 - 1, -(2 ** 31), 16_777_217],
  long: [0n, -1n, 2n ** 31n, 2n ** 53n + 1n, 2n ** 60n + 2n ** 36n + 1n, 2n ** 63n - 1n, -(2n ** 63n)],
  float: [0, -0, 0.5, Math.fround(0.1), Math.fround(3.4028234663852886e38), Number.NaN, -Infinity],
  double: [0, -0, 0.1, 5e-324, -1.7976931348623157e308, Number.NaN, Infinity],
  bytes: [Buffer.alloc(0), Buffer.of(0, 255), Buffer.from('größe'), Buffer.alloc(70, 65)],
  string: ['', 'a', 'größe', '😀\u0000', 'x'.repeat(100), '\ufffd\ufeff'],
};
const KEYS = ['', 'a', 'b', '10', '__proto__', 'größe'];

/** One value of the type; below `depth` it has few parts. */
export function datumOf(node: AvroNode, next: Next, depth = 0): AvroDatum {
  const parts = depth > 5 ? 0 : next(4);
  switch (node.kind) {
    case 'primitive': {
      const data = DATA[node.type];
      return data[next(data.length)] as AvroDatum;
    }
    case 'fixed':
      return Buffer.alloc(node.size, next(256));
    case 'enum':
      return node.symbols[next(node.symbols.length)] as string;
    case 'union': {
      const ends = node.branches.findIndex((one) => one.kind === 'primitive');
      const branch = depth > 5 ? Math.max(0, ends) : next(node.branches.length);
      return { branch, value: datumOf(node.branches[branch] as AvroNode, next, depth + 1) };
    }
    case 'array':
      return Array.from({ length: parts }, () => datumOf(node.items, next, depth + 1));
    case 'map':
      return new Map(
        Array.from({ length: parts }, () => [
          KEYS[next(KEYS.length)] as string,
          datumOf(node.values, next, depth + 1),
        ]),
      );
    case 'record':
      return { fields: node.fields.map((field) => datumOf(field.type, next, depth + 1)) };
  }
}

type Json = Readonly<Record<string, unknown>>;
const PROMOTED: Readonly<Record<string, readonly string[]>> = {
  int: ['long', 'double'],
  float: ['double'],
  string: ['bytes'],
};

function shuffled<T>(items: readonly T[], next: Next): T[] {
  const rest = [...items];
  return items.map(() => rest.splice(next(rest.length), 1)[0] as T);
}

/** Returns a schema that reads everything that `json` writes: fields dropped, added, renamed and
 *  moved, types promoted or made optional, symbols added. */
export function widened(json: unknown, next: Next): unknown {
  if (typeof json === 'string') {
    const wider = next(3) === 0 ? PROMOTED[json] : undefined;
    return wider === undefined ? json : wider[next(wider.length)];
  }
  if (Array.isArray(json))
    return json.map((branch) => (typeof branch === 'string' ? branch : widened(branch, next)));
  const type = json as Json;
  switch (type['type']) {
    case 'array':
      return { ...type, items: widened(type['items'], next) };
    case 'map':
      return { ...type, values: widened(type['values'], next) };
    case 'enum':
      return { ...type, symbols: shuffled([...(type['symbols'] as string[]), 'Added'], next) };
    case 'record': {
      // Keep the order: a type must be defined before it is used.
      const fields = (type['fields'] as Json[]).map((field) => widenedField(field, next));
      if (next(3) === 0)
        fields.push({ name: 'added', type: { type: 'array', items: 'long' }, default: [1, 2] });
      if (next(3) === 0) fields.unshift({ name: 'more', type: ['string', 'null'], default: 'more' });
      return { ...type, fields };
    }
    default:
      return type;
  }
}

function widenedField(field: Json, next: Next): Json {
  const { default: _dropped, ...rest } = field;
  const type = widened(field['type'], next);
  if (type !== field['type'] && JSON.stringify(type) !== JSON.stringify(field['type']))
    return { ...rest, type };
  switch (next(5)) {
    case 0:
      return { ...field, name: `${String(field['name'])}_renamed`, aliases: [field['name']] };
    case 1:
      return Array.isArray(type) || type === 'null' ? field : { ...rest, type: [type, 'null'] };
    default:
      return field;
  }
}
