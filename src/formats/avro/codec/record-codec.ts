/** Avro: values are written by avsc, one type a schema, and read by our decoder, one a pair. */
import avsc from 'avsc';
import type { Decode, Encode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { AvroSchema, Schema } from '../../schema.ts';
import { shownOf } from '../../shown.ts';
import { avroTypeName } from '../syntax/tree.ts';
import { avscType } from './avsc-type.ts';
import { avroDecoder } from './decoder.ts';

const types = new WeakMap<AvroSchema, avsc.Type>();

/** @throws invalid_schema for what the specification allows and the codec does not */
function typeOf(schema: AvroSchema): avsc.Type {
  const known = types.get(schema);
  if (known !== undefined) return known;
  try {
    const type = avscType(schema.tree);
    types.set(schema, type);
    return type;
  } catch (cause) {
    throw formatError(
      'invalid_schema',
      `the Avro codec cannot use this schema: ${(cause as Error).message}`,
      { cause },
    );
  }
}

/** Bytes added when a value does not fit. */
const GROWTH_BYTES = 4096;

export function avroWriter(schema: AvroSchema): Encode {
  const type = typeOf(schema);
  return (value, into) => {
    for (;;) {
      let end: number;
      try {
        end = type.encode(value, into.bytes, into.used);
      } catch (cause) {
        throw formatError('value_refused', misfit(schema, type, value) ?? unexplained(cause), { cause });
      }
      if (end >= 0) {
        into.push(end);
        return;
      }
      into.grow(GROWTH_BYTES - end);
    }
  };
}

const unexplained = (cause: unknown): string =>
  `a value does not fit its Avro schema: ${(cause as Error).message}`;

/** Names the first part of a value that does not fit, as `Order.items[2].price`. Undefined where avsc's check accepts the
 *  value, or cannot end. */
function misfit(schema: AvroSchema, type: avsc.Type, value: unknown): string | undefined {
  let found: string | undefined;
  const errorHook = (path: readonly string[], part: unknown, expected: avsc.Type): void => {
    found ??= `${placeOf(avroTypeName(schema.tree), path, value)} cannot hold ${shownOf(part)}: it is ${wordOf(expected)}`;
  };
  try {
    type.isValid(value, { errorHook } as Parameters<avsc.Type['isValid']>[1]);
  } catch (thrown) {
    // A value that holds itself is as deep for the check as it was for the encoder.
    if (!(thrown instanceof RangeError)) throw thrown;
  }
  return found;
}

const PLAIN_KEY = /^[\w.]+$/;

function placeOf(root: string, path: readonly string[], value: unknown): string {
  let place = root;
  let inside: unknown = value;
  for (const key of path) {
    const isName = !Array.isArray(inside) && PLAIN_KEY.test(key);
    const shown = Array.isArray(inside) ? key : shownOf(key);
    place += isName ? `.${key}` : `[${shown}]`;
    inside = (inside as Readonly<Record<string, unknown>> | null | undefined)?.[key];
  }
  return place;
}

function wordOf(type: avsc.Type): string {
  if (avsc.Type.isType(type, 'union'))
    return `one of ${(type as avsc.types.UnwrappedUnionType).types.map(wordOf).join(', ')}`;
  const kind = type.typeName.replace('abstract:', '');
  return type.name === undefined ? kind : `${kind} ${type.name}`;
}

/** Asks no rules: our decoder reads an event as the specification says or refuses it, event by event, so those that can
 *  be read are. */
export function avroReader(reader: AvroSchema, writer: Schema): Decode {
  if (writer.format !== 'AVRO') throw formatError('incompatible_schema', 'the record is not Avro');
  // Schemas that are the same read each other as one reads itself, whatever their aliases say.
  return avroDecoder(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree);
}
