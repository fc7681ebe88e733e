/** Avro: values are written by avsc, one type a schema, and read by our decoder, one a pair. */
import type avsc from 'avsc';
import { registryError } from '../errors.ts';
import type { AvroSchema, Schema } from '../schemas/schema.ts';
import { avroDecoder } from './avro-decoder.ts';
import { avscType } from './avro-type.ts';
import type { Decode, Encode } from './decode.ts';

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
    throw registryError(
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
        throw registryError(
          'value_refused',
          `a value does not fit its Avro schema: ${(cause as Error).message}`,
          { cause },
        );
      }
      if (end >= 0) {
        into.push(end);
        return;
      }
      into.grow(GROWTH_BYTES - end);
    }
  };
}

/** Asks no rules: our decoder reads an event as the specification says or refuses it, event by event, so those that can
 *  be read are. */
export function avroReader(reader: AvroSchema, writer: Schema): Decode {
  if (writer.format !== 'AVRO') throw registryError('incompatible_schema', 'the record is not Avro');
  // Schemas that are the same read each other as one reads itself, whatever their aliases say.
  return avroDecoder(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree);
}
