/** Avro codec: one encoder for each schema, one decoder for each pair of schemas. */
import type { Decode, Encode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import type { AvroSchema, Schema } from '../../schema.ts';
import { avroDecoder } from './decoder.ts';
import { avroEncoder } from './value-encoder.ts';

/** Makes the encoder of a schema. It throws value_refused with the detail `path`. */
export const avroWriter = (schema: AvroSchema): Encode => avroEncoder(schema.tree);

/** Makes the decoder without checking compatibility rules: it decides for each event, so events
 *  that can be read are read. */
export function avroReader(reader: AvroSchema, writer: Schema): Decode {
  if (writer.format !== 'AVRO') throw formatError('incompatible_schema', 'the record is not Avro');
  // Equal schemas read each other as one schema reads itself, whatever their aliases.
  return avroDecoder(reader.identity === writer.identity ? writer.tree : reader.tree, writer.tree);
}
