/** Encoding and decoding a batch at a time, the same for both formats. */
import type { Schema } from '../schemas/schema.ts';
import { avroReader, avroWriter } from './avro-codec.ts';
import type { Decode, WriterCodec } from './decode.ts';
import { protoReader, protoWriter } from './proto-codec.ts';

export type { WriterCodec } from './decode.ts';

/** @param message full name of the Protobuf message; the first of the file when absent.
 *  @throws invalid_schema when the codec cannot write this schema */
export function writerCodec(schema: Schema, message?: string): WriterCodec {
  if (schema.format === 'AVRO') return { encode: avroWriter(schema), messageIndexes: null };
  return protoWriter(schema, message);
}

/** Compiles what reads one writer's records as the reader's schema.
 *  @param path message indexes of the record; ignored for Avro
 *  @throws incompatible_schema, bad_message_index */
export function readerCodec(reader: Schema, writer: Schema, path: readonly number[]): Decode {
  if (reader.format === 'AVRO') return avroReader(reader, writer);
  return protoReader(reader, writer, path);
}
