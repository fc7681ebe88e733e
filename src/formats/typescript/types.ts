/** TypeScript types of a schema. */
import type { AvroSchema, ProtoSchema } from '../schema.ts';
import { avroTypes } from './avro.ts';
import { printTypes } from './print.ts';
import { protoTypes } from './protobuf.ts';

/** Writes a TypeScript module with the types of the values that the codecs of a schema return, and
 *  with the suffix `Input` of those that they accept. Equal schemas give equal texts.
 *  @param header lines of the comment at the top of the module
 *  @example
 *  const schema = parseSchema('AVRO', '{"type":"record","name":"Order","fields":[]}'); if
 *  (schema.format === 'AVRO') writeFileSync('order.ts', schemaTypes(schema, ['Types of Order.']));
 */
export function schemaTypes(schema: AvroSchema | ProtoSchema, header: readonly string[]): string {
  const model = schema.format === 'AVRO' ? avroTypes(schema.tree) : protoTypes(schema);
  return printTypes(model, header);
}
