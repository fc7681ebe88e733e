/** Decodes Protobuf payloads into columns of a message. */
import { ColumnBatch } from '../../../core/columns/batch.ts';
import { type ColumnKernels, decodeColumns, type PayloadSpans } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import type { ProtoMessage } from '../tree.ts';
import { compileProto } from './compile.ts';
import { planOf, requestedFields } from './plan.ts';
import { ProtoRows } from './rows.ts';

export interface ProtoColumnDecoder {
  readonly schema: ColumnSchema;
  /** Makes an empty batch for up to `rowCapacity` rows. @throws out_of_range */
  createBatch(rowCapacity: number): ColumnBatch;
  /** Appends a row for each payload from `from` to `to` (exclusive), and grows the batch as needed.
   *  Returns the number of rows appended: fewer than requested when the batch is full. The status
   *  of a row tells whether it could be read; a bad row costs only itself. */
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch): number;
  /** Rows of batches of this decoder, as objects. */
  rows(): ProtoRows;
  /** Frees the program; calling it again has no effect. */
  close(): void;
}

/** Compiles the decoder of a reader's message. It decides as the decoder of single payloads does.
 *
 *  @param fields paths of the requested fields, such as `customer.city`; absent: all fields. Other
 *  fields are checked and dropped.
 *  @param shared schema of batches that several decoders of the message fill
 *  @throws unknown_field for a path that the message does not have
 *  @throws invalid_schema for a message set, and for types that combine in too many ways
 *  @example
 *  const decoder = protoColumnDecoder(loadColumnKernels('native'), message, ['id', 'total']);
 *  const batch = decoder.createBatch(1024);
 *  decoder.decode(payloads, 0, 1024, batch);
 */
export function protoColumnDecoder(
  kernels: ColumnKernels,
  message: ProtoMessage,
  fields?: readonly string[],
  shared?: ColumnSchema,
): ProtoColumnDecoder {
  const requested = fields === undefined ? undefined : requestedFields(message, fields);
  const compiled = compileProto(message, requested);
  const { program } = compiled;
  const schema = shared?.equals(program.schema) === true ? shared : program.schema;
  const opened = kernels.openProtobuf({ ...program, schema });
  return {
    schema,
    createBatch: (rowCapacity) => ColumnBatch.create(schema, rowCapacity),
    decode: (payloads, from, to, into) => decodeColumns(opened, payloads, from, to, into),
    rows: () => new ProtoRows(compiled, fields === undefined),
    close: () => opened.close(),
  };
}

/** Columns of the batches of a message. @throws unknown_field */
export function protoColumns(message: ProtoMessage, fields?: readonly string[]): ColumnSchema {
  const plan = planOf(message, fields === undefined ? undefined : requestedFields(message, fields));
  return new ColumnSchema(plan.fields.map(({ column }) => column));
}
