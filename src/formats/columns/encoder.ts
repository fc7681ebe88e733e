/** Encodes columns of a schema as frames, in either format, and explains refused rows. */
import type { ColumnBatch } from '../../core/columns/batch.ts';
import type { Column } from '../../core/columns/column.ts';
import type { EncodedFrames } from '../../core/columns/frames.ts';
import { type ColumnKernels, encodeColumns } from '../../core/columns/kernel.ts';
import type { ColumnSchema } from '../../core/columns/schema.ts';
import type { MillraceError } from '../../core/errors.ts';
import { ENCODE_LIMIT, ENCODE_STATUS } from '../../core/layout/layouts.gen.ts';
import { compileEncode } from '../avro/columns/encode.ts';
import { avroTypeName } from '../avro/syntax/tree.ts';
import { formatError } from '../errors.ts';
import { writtenMessage } from '../protobuf/codec/record-codec.ts';
import { compileProtoEncode } from '../protobuf/columns/encode.ts';
import type { Schema } from '../schema.ts';

export interface BatchEncoder {
  /** Columns that are encoded: those of a decoder with this schema as reader. */
  readonly schema: ColumnSchema;
  /** Message indexes of the frames; null for Avro. */
  readonly messageIndexes: Int32Array | null;
  /** Appends a frame for each row from `from` to `to` (exclusive), `prefix` before each payload,
   *  and grows the frames as needed. Returns the number of rows appended: fewer than requested when
   *  the frames are full. A row with a value that the schema refuses costs only itself.
   *  @throws layout_mismatch for a batch with other columns, out_of_range */
  encode(columns: ColumnBatch, from: number, to: number, prefix: Uint8Array, into: EncodedFrames): number;
  /** Error of a row that was refused, with the path of the column in its details; undefined for any
   *  other row. */
  errorOf(frames: EncodedFrames, row: number): MillraceError | undefined;
  /** Frees the program; calling it again has no effect. */
  close(): void;
}

/** Compiles the encoder of a schema. @param message full name of the Protobuf message; default: the
 *  first of the file
 *  @throws invalid_schema for a JSON Schema, a message set, and types that have no columns
 *  @example
 *  const encoder = batchEncoder(loadColumnKernels('native'), schema);
 *  encoder.encode(batch, 0, batch.rowCount, framePrefix(id, encoder.messageIndexes), frames);
 */
export function batchEncoder(kernels: ColumnKernels, schema: Schema, message?: string): BatchEncoder {
  switch (schema.format) {
    case 'AVRO': {
      const { program } = compileEncode(schema.tree);
      const name = avroTypeName(schema.tree).replace(/^.*\./s, '');
      return encoderOf(kernels.openAvroEncoder(program), program.schema, null, name);
    }
    case 'PROTOBUF': {
      const written = writtenMessage(schema, message);
      const { program } = compileProtoEncode(written);
      const opened = kernels.openProtobufEncoder(program);
      return encoderOf(opened, program.schema, Int32Array.from(written.path), written.name);
    }
    case 'JSON':
      throw formatError('invalid_schema', 'values cannot be written with a JSON Schema', {
        next: 'use an Avro or a Protobuf schema',
      });
  }
}

function encoderOf(
  opened: ReturnType<ColumnKernels['openAvroEncoder']>,
  schema: ColumnSchema,
  messageIndexes: Int32Array | null,
  name: string,
): BatchEncoder {
  return {
    schema,
    messageIndexes,
    encode: (columns, from, to, prefix, into) => encodeColumns(opened, columns, from, to, prefix, into),
    errorOf: (frames, row) => refusalOf(frames, row, schema, name, messageIndexes !== null),
    close: () => opened.close(),
  };
}

function refusalOf(
  frames: EncodedFrames,
  row: number,
  schema: ColumnSchema,
  name: string,
  isMessage: boolean,
): MillraceError | undefined {
  const index = frames.errorColumn[row] as number;
  const path = [name, ...schema.pathOf(index)].join('.');
  switch (frames.status[row]) {
    case ENCODE_STATUS.REFUSED:
      return refused(path, row, whyRefused(schema.all[index] as Column, isMessage));
    case ENCODE_STATUS.BROKEN:
      return refused(path, row, 'an offset or a type id that leaves its column');
    case ENCODE_STATUS.TOO_LARGE:
      return refused(
        name,
        row,
        `values that make the payload longer than ${ENCODE_LIMIT.PAYLOAD_BYTES} bytes`,
      );
    case ENCODE_STATUS.NO_VALUE:
      return refused(name, row, 'no value, because it was not decoded');
    default:
      return undefined;
  }
}

const refused = (path: string, row: number, why: string): MillraceError =>
  formatError('value_refused', `row ${row}: ${path} has ${why}`, { details: { path, row } });

function whyRefused(column: Column, isMessage: boolean): string {
  const value = refusedValue(column);
  if (!isMessage || !column.nullable) return value;
  const field = 'no value although it is required, or a value beside another one of its oneof';
  return value === '' ? field : `${field}, or ${value}`;
}

/** Value that a column of this kind refuses; empty for a kind without such values. */
function refusedValue({ kind, symbols }: Column): string {
  switch (kind) {
    case 'dictionary':
      return `an index that is none of its ${symbols?.length} symbols`;
    case 'utf8':
      return 'a text that is not UTF-8';
    case 'decimal128':
    case 'decimal256':
      return "a number with more bytes than the schema's fixed";
    case 'binary':
      return 'bytes that are no value of its type';
    default:
      return '';
  }
}
