/** Avro by avsc: one type a schema, one resolver a pair, longs as bigint. */
import type avsc from 'avsc';
import { registryError } from '../errors.ts';
import type { AvroSchema, Schema } from '../schemas/schema.ts';
import { avscType } from './avro-type.ts';
import { compileAvroVerify } from './avro-verify.ts';
import { type Decode, demandCompatible, type Encode, malformed } from './decode.ts';

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

/** @throws incompatible_schema */
export function avroReader(reader: AvroSchema, writer: Schema): Decode {
  demandCompatible(reader, writer);
  if (writer.format !== 'AVRO') throw registryError('incompatible_schema', 'the record is not Avro');
  const verify = compileAvroVerify(writer.tree);
  const type = typeOf(reader);
  const resolver = reader.identity === writer.identity ? undefined : resolverOf(type, typeOf(writer));
  return (bytes, start, end) => {
    verify(bytes, start, end);
    let read: { readonly value: unknown; readonly offset: number };
    try {
      read = type.decode(bytes, start, resolver);
    } catch (cause) {
      throw malformed((cause as Error).message, cause);
    }
    if (read.offset !== end) throw malformed('the decoder stopped at another byte than the payload ends');
    return read.value;
  };
}

function resolverOf(reader: avsc.Type, writer: avsc.Type): ReturnType<avsc.Type['createResolver']> {
  try {
    return reader.createResolver(writer);
  } catch (cause) {
    throw registryError(
      'incompatible_schema',
      `the Avro decoder refuses this pair: ${(cause as Error).message}`,
      { cause },
    );
  }
}
