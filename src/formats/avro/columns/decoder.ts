/** Decodes Avro payloads of one writer into the columns of a reader. */
import { ColumnBatch } from '../../../core/columns/batch.ts';
import { type ColumnKernels, decodeColumns, type PayloadSpans } from '../../../core/columns/kernel.ts';
import { ColumnSchema } from '../../../core/columns/schema.ts';
import { findMillraceError, type MillraceError } from '../../../core/errors.ts';
import type { Decode } from '../../decode.ts';
import type { AvroSchema } from '../../schema.ts';
import { avroDecoder } from '../codec/decoder.ts';
import type { AvroNode } from '../syntax/tree.ts';
import { type CompiledColumns, compileColumns } from './compile.ts';
import { planOf } from './plan.ts';
import { projected } from './projection.ts';
import { AvroRows } from './rows.ts';

export interface AvroColumnDecoder {
  readonly schema: ColumnSchema;
  /** True where the reader's columns hold values that are decoded on demand. */
  readonly hasLazy: boolean;
  /** Makes an empty batch for up to `rowCapacity` rows. @throws out_of_range */
  createBatch(rowCapacity: number): ColumnBatch;
  /** Appends a row for each payload from `from` to `to` (exclusive), and grows the batch as needed.
   *  Returns the number of rows appended: fewer than requested when the batch is full. The status
   *  of a row tells whether it could be read; a bad row costs only itself. */
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch): number;
  /** Rows of batches of this decoder, as objects. */
  rows(): AvroRows;
  /** Error of a payload that a row could not be read from, with the field's path in its details;
   *  undefined for a payload that can be read. It decodes the payload again. */
  explain(payloads: PayloadSpans, index: number): MillraceError | undefined;
  /** Frees the program; calling it again has no effect. */
  close(): void;
}

/** Compiles the decoder of a pair of schemas. It decides as the decoder of single payloads does: a
 *  part that cannot be resolved is an error of the rows that reach it.
 *
 *  @param fields paths of the requested fields, such as `customer.city`; absent: all fields. Other
 *  fields are checked and dropped, as if the reader's schema did not have them.
 *  @param shared schema of batches that decoders of several writers fill: the reader's columns
 *  @throws unknown_field for a path that the reader's schema does not have
 *  @throws incompatible_schema for schemas that combine their types in too many ways
 *  @example
 *  const decoder = avroColumnDecoder(loadColumnKernels('native'), reader, writer, ['id', 'total']);
 *  const batch = decoder.createBatch(1024);
 *  decoder.decode(payloads, 0, 1024, batch);
 */
export function avroColumnDecoder(
  kernels: ColumnKernels,
  reader: AvroSchema,
  writer: AvroSchema,
  fields?: readonly string[],
  shared?: ColumnSchema,
): AvroColumnDecoder {
  // Equal schemas read each other as one schema reads itself, whatever their aliases.
  const isSame = reader.identity === writer.identity;
  let { node, compiled } = compiledOf(isSame ? writer.tree : reader.tree, writer, fields);
  // Equal schemas may differ in annotations, and then in columns.
  if (isSame && shared?.equals(compiled.program.schema) === false)
    ({ node, compiled } = compiledOf(reader.tree, writer, fields));
  const { program, lazies } = compiled;
  const schema = shared?.equals(program.schema) === true ? shared : program.schema;
  const opened = kernels.openAvro({ ...program, schema });
  let decode: Decode | undefined;
  return {
    schema,
    hasLazy: lazies.size > 0,
    createBatch: (rowCapacity) => ColumnBatch.create(schema, rowCapacity),
    decode: (payloads, from, to, into) => decodeColumns(opened, payloads, from, to, into),
    rows: () => new AvroRows(compiled),
    explain: (payloads, index) => {
      decode ??= avroDecoder(node, writer.tree);
      return errorOf(decode, payloads, index);
    },
    close: () => opened.close(),
  };
}

/** Columns of the batches of a reader, whichever writers they come from. @throws unknown_field */
export function avroColumns(reader: AvroSchema, fields?: readonly string[]): ColumnSchema {
  const { tree } = reader;
  const plan = planOf(fields === undefined ? tree : projected(tree, fields).node);
  return new ColumnSchema(plan.index < 0 ? plan.column.children : [plan.column]);
}

function compiledOf(
  tree: AvroNode,
  writer: AvroSchema,
  fields: readonly string[] | undefined,
): { node: AvroNode; compiled: CompiledColumns } {
  const { node, origins } =
    fields === undefined ? { node: tree, origins: new Map() } : projected(tree, fields);
  return { node, compiled: compileColumns(node, writer.tree, origins) };
}

function errorOf(decode: Decode, payloads: PayloadSpans, index: number): MillraceError | undefined {
  const { bytes, start, length } = payloads;
  const at = start[index] as number;
  const size = length[index] as number;
  // A null value is no payload.
  if (size < 0) return undefined;
  try {
    decode(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), at, at + size);
    return undefined;
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error === undefined) throw thrown;
    return error;
  }
}
