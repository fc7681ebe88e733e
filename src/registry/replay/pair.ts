/** Reads the records of one writer schema as the reader schema: into columns where the kernels can,
 *  else one value at a time.
 *
 *  Both ways decide alike about every record; the decoder of single values also explains a row that
 *  the columns refuse. Values are read one at a time where the rules refuse a pair of Protobuf
 *  schemas, because each record must then be compared (proof/reader.ts), and where the columns of a
 *  pair would be too many. */
import type { ColumnBatch } from '../../core/columns/batch.ts';
import type { ColumnKernels, PayloadSpans } from '../../core/columns/kernel.ts';
import { findMillraceError } from '../../core/errors.ts';
import { COLUMN_STATUS } from '../../core/layout/layouts.gen.ts';
import { avroColumnDecoder } from '../../formats/avro/columns/decoder.ts';
import type { Decode } from '../../formats/decode.ts';
import { readMessage } from '../../formats/protobuf/codec/record-codec.ts';
import { protoColumnDecoder } from '../../formats/protobuf/columns/decoder.ts';
import type { Schema } from '../../formats/schema.ts';
import { COMPILED_CODECS, type RecordCodecs } from '../../serde/codec.ts';
import { isCompatible } from '../compatibility/finding.ts';
import { checkPair } from '../compatibility/modes.ts';
import { readerCodec } from '../proof/reader.ts';

/** Payloads of one writer schema in the arena of a batch. */
export interface PairPayloads extends PayloadSpans {
  readonly count: number;
}

export interface PairReader {
  /** Decodes all payloads. Calls `onFailed` with the number of each payload that cannot be read,
   *  in ascending order. */
  read(payloads: PairPayloads, onFailed: (index: number, error: unknown) => void): void;
  close(): void;
}

export interface PairOptions {
  readonly kernels: ColumnKernels;
  readonly codecs: RecordCodecs;
  /** Rows of the column batch. */
  readonly rowCapacity: number;
}

/** Part of a column decoder that both formats have. */
interface Columns {
  createBatch(rowCapacity: number): ColumnBatch;
  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch): number;
  close(): void;
}

/** @param path message indexes of the records; ignored for Avro
 *  @throws incompatible_schema, bad_message_index: facts about all records of the writer */
export function pairReader(
  reader: Schema,
  writer: Schema,
  path: readonly number[],
  options: PairOptions,
): PairReader {
  const decode = readerCodec(reader, writer, path, options.codecs);
  const opened = options.codecs === COMPILED_CODECS ? openColumns(reader, writer, path, options) : undefined;
  return opened === undefined
    ? { read: (payloads, onFailed) => readSingly(decode, payloads, onFailed), close: () => {} }
    : inColumns(opened, decode);
}

interface OpenColumns {
  readonly columns: Columns;
  readonly batch: ColumnBatch;
}

/** Undefined: the pair has no columns, or a batch of them would be too large. */
function openColumns(
  reader: Schema,
  writer: Schema,
  path: readonly number[],
  options: PairOptions,
): OpenColumns | undefined {
  let columns: Columns | undefined;
  try {
    columns = columnsOf(reader, writer, path, options);
    return columns === undefined ? undefined : { columns, batch: columns.createBatch(options.rowCapacity) };
  } catch (thrown) {
    // The pair combines its types in too many ways; single values can still be read.
    if (findMillraceError(thrown) === undefined) throw thrown;
    columns?.close();
    return undefined;
  }
}

/** Undefined: the pair has no columns. @throws incompatible_schema, invalid_schema */
function columnsOf(
  reader: Schema,
  writer: Schema,
  path: readonly number[],
  { kernels }: PairOptions,
): Columns | undefined {
  if (reader.format === 'AVRO' && writer.format === 'AVRO') return avroColumnDecoder(kernels, reader, writer);
  if (reader.format === 'PROTOBUF' && writer.format === 'PROTOBUF' && isCompatible(checkPair(reader, writer)))
    return protoColumnDecoder(kernels, readMessage(reader, writer, path));
  return undefined;
}

function errorOf(decode: Decode, { bytes, start, length }: PairPayloads, index: number): unknown {
  const at = start[index] as number;
  try {
    decode(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), at, at + (length[index] as number));
    return undefined;
  } catch (thrown) {
    return thrown;
  }
}

function readSingly(
  decode: Decode,
  payloads: PairPayloads,
  onFailed: (index: number, error: unknown) => void,
): void {
  for (let index = 0; index < payloads.count; index++) {
    const error = errorOf(decode, payloads, index);
    if (error !== undefined) onFailed(index, error);
  }
}

function inColumns({ columns, batch }: OpenColumns, decode: Decode): PairReader {
  return {
    read: (payloads, onFailed) => {
      for (let from = 0; from < payloads.count; ) {
        batch.clear();
        const rows = columns.decode(payloads, from, payloads.count, batch);
        const { status } = batch;
        for (let row = 0; row < rows; row++) {
          if (status[row] === COLUMN_STATUS.OK) continue;
          // A row that is too large for the columns may still be readable.
          const error = errorOf(decode, payloads, from + row);
          if (error !== undefined) onFailed(from + row, error);
        }
        from += rows;
      }
    },
    close: () => columns.close(),
  };
}
