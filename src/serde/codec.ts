/** Encoders and decoders of values, with one interface for all formats. */

import { avroReader, avroWriter } from '../formats/avro/codec/record-codec.ts';
import type { Decode, WriterCodec } from '../formats/decode.ts';
import { protoReader, protoWriter } from '../formats/protobuf/codec/record-codec.ts';
import type { Schema } from '../formats/schema.ts';
import { serdeError } from './errors.ts';

export type { WriterCodec } from '../formats/decode.ts';

/** Makes writers of schemas and readers of pairs of schemas. */
export interface RecordCodecs {
  /** @throws as `writerCodec` */
  readonly writer: (schema: Schema, message?: string) => WriterCodec;
  /** @throws as `readerUnjudged` */
  readonly reader: (reader: Schema, writer: Schema, path: readonly number[]) => Decode;
}

/** Compiles a writer of values as the bytes of a schema, without a frame.
 *  @param message full name of the Protobuf message; the first of the file when absent.
 *  @throws invalid_schema when the codec cannot write this schema
 *  @example
 *  const { encode } = writerCodec(parseSchema('AVRO', '"string"'));
 *  const payload = encode('a value');
 */
export function writerCodec(schema: Schema, message?: string): WriterCodec {
  switch (schema.format) {
    case 'AVRO':
      return { encode: avroWriter(schema), messageIndexes: null };
    case 'PROTOBUF':
      return protoWriter(schema, message);
    case 'JSON':
      throw unwritable();
  }
}

/** Compiles the reader of one writer schema's records as values of the reader schema. It does not
 *  check compatibility: a Protobuf record with another meaning is read without an error.
 *  proof/reader.ts has the check.
 *  @param path message indexes of the record; ignored for Avro
 *  @throws incompatible_schema, bad_message_index */
export function readerUnjudged(reader: Schema, writer: Schema, path: readonly number[]): Decode {
  switch (reader.format) {
    case 'AVRO':
      return avroReader(reader, writer);
    case 'PROTOBUF':
      return protoReader(reader, writer, path);
    case 'JSON':
      throw unreadable();
  }
}

export const COMPILED_CODECS: RecordCodecs = { writer: writerCodec, reader: readerUnjudged };

/** Error of a writer for a format without values. */
export function unwritable(): Error {
  return serdeError('invalid_schema', 'values cannot be written with a JSON Schema', {
    next: 'use an Avro or a Protobuf schema',
  });
}

/** Error of a reader for a format without values. */
export function unreadable(): Error {
  return serdeError('incompatible_schema', 'values cannot be read with a JSON Schema', {
    next: 'use an Avro or a Protobuf schema',
  });
}
