/** Avro codec: avsc writes values, with one type for each schema; our decoder reads them, one for
 *  each pair of schemas. */
import avsc from 'avsc';
import type { Decode, Encode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { AvroSchema, Schema } from '../../schema.ts';
import { shownOf } from '../../shown.ts';
import { avroTypeName } from '../syntax/tree.ts';
import { avscType } from './avsc-type.ts';
import { avroDecoder } from './decoder.ts';

const types = new WeakMap<AvroSchema, avsc.Type>();

/** avsc type of a schema.
 *  @throws invalid_schema for a schema that the specification allows and avsc does not */
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

/** Bytes by which the buffer grows when a value does not fit. */
const GROWTH_BYTES = 4096;

/** Makes the encoder of a schema. It throws value_refused with the detail `path`. */
export function avroWriter(schema: AvroSchema): Encode {
  const type = typeOf(schema);
  return (value, into) => {
    for (;;) {
      let end: number;
      try {
        end = type.encode(value, into.bytes, into.used);
      } catch (cause) {
        const found = misfit(schema, type, value);
        throw formatError('value_refused', found?.why ?? unexplained(cause), {
          cause,
          ...(found === undefined ? {} : { details: { path: found.path } }),
        });
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

interface Misfit {
  /** Path such as `Order.items[2].price`. */
  readonly path: string;
  readonly why: string;
}

/** First part of a value that does not fit. Undefined where avsc's check accepts the value, or
 *  overflows the stack. */
function misfit(schema: AvroSchema, type: avsc.Type, value: unknown): Misfit | undefined {
  let found: Misfit | undefined;
  const errorHook = (keys: readonly string[], part: unknown, expected: avsc.Type): void => {
    if (found !== undefined) return;
    const path = placeOf(avroTypeName(schema.tree), keys, value);
    found = { path, why: `${path} cannot hold ${shownOf(part)}: it is ${wordOf(expected)}` };
  };
  try {
    type.isValid(value, { errorHook } as Parameters<avsc.Type['isValid']>[1]);
  } catch (thrown) {
    // A value that contains itself overflows the stack of the check as it did in the encoder.
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

/** Makes the decoder without checking compatibility rules: it decides for each event, so events
 *  that can be read are read. */
export function avroReader(reader: AvroSchema, writer: Schema): Decode {
  if (writer.format !== 'AVRO') throw formatError('incompatible_schema', 'the record is not Avro');
  // Equal schemas read each other as one schema reads itself, whatever their aliases.
  return avroDecoder(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree);
}
