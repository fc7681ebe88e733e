/** Loop over the rows of a call: a frame for each, and the verdict of the row. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import type { EncodedFrames } from '../../../core/columns/frames.ts';
import type { ColumnEncoder, EncodeProgram } from '../../../core/columns/kernel.ts';
import { coreError } from '../../../core/errors.ts';
import {
  COLUMN_LIMIT,
  COLUMN_STATUS,
  ENCODE_LIMIT,
  ENCODE_STATUS,
  FRAMES_STATE,
} from '../../../core/layout/layouts.gen.ts';
import { ColumnSource } from './column-source.ts';
import { NeedFrameRoom, PayloadSink, RowRefusal } from './payload-sink.ts';

/** Error of words that are no program. @param word position; -1 for the tables */
export const badProgram = (word: number): Error =>
  coreError(
    'out_of_range',
    word < 0 ? 'program: bad columns or tables' : `program: a bad instruction at word ${word}`,
  );

/** Lists of words, each behind its length. @throws out_of_range */
export function readTables(words: Int32Array): Int32Array[] {
  const tables: Int32Array[] = [];
  if (words.length > COLUMN_LIMIT.PROGRAM_WORDS) throw badProgram(-1);
  for (let at = 0; at < words.length; ) {
    const length = words[at++] as number;
    if (length < 0 || length > words.length - at) throw badProgram(-1);
    tables.push(words.slice(at, at + length));
    at += length;
  }
  return tables;
}

export abstract class RowEncoder implements ColumnEncoder {
  protected readonly from: ColumnSource;
  protected readonly into: PayloadSink;
  private isClosed = false;

  constructor({ schema }: EncodeProgram) {
    this.from = new ColumnSource(schema);
    this.into = new PayloadSink(schema.all.length);
  }

  /** Writes the payload of a row. @throws RowRefusal, NeedFrameRoom */
  protected abstract putRow(row: number): void;

  encode(
    columns: ColumnBatch,
    from: number,
    to: number,
    prefix: Uint8Array,
    into: EncodedFrames,
    skips: boolean,
  ): number {
    if (this.isClosed) throw coreError('closed', 'program: it is closed');
    if (!this.from.schema.equals(columns.schema))
      throw coreError('layout_mismatch', 'columns: another schema');
    this.from.open(columns);
    if (!(from >= 0 && from <= to && to <= columns.rowCount))
      throw coreError('out_of_range', 'columns: a span leaves its buffer');
    if (prefix.length > ENCODE_LIMIT.PREFIX_BYTES)
      throw coreError('out_of_range', 'prefix: a number is outside its range');
    if (to - from > into.rowCapacity - into.rowCount) throw coreError('out_of_range', 'into: too few rows');
    const { state } = into;
    const first = into.rowCount;
    state[FRAMES_STATE.NEED_BYTES] = 0;
    let at = from;
    try {
      for (; at < to; at++) this.append(columns, at, prefix, into, first + at - from, skips && at === from);
    } catch (thrown) {
      if (!(thrown instanceof NeedFrameRoom)) throw thrown;
      state[FRAMES_STATE.NEED_BYTES] = thrown.bytes;
    }
    state[FRAMES_STATE.ROW_COUNT] = first + at - from;
    return at - from;
  }

  close(): void {
    this.isClosed = true;
  }

  private append(
    columns: ColumnBatch,
    row: number,
    prefix: Uint8Array,
    into: EncodedFrames,
    at: number,
    skips: boolean,
  ): void {
    const start = into.offsets[at] as number;
    const refusal = this.refusalOf(columns.status[row] as number, skips, () => {
      this.into.open(into.buffer, start, prefix);
      this.putRow(row);
      this.into.close();
    });
    into.offsets[at + 1] = refusal === undefined ? this.into.at : start;
    into.status[at] = refusal?.status ?? ENCODE_STATUS.OK;
    into.errorColumn[at] = refusal?.column ?? 0;
  }

  private refusalOf(decoded: number, skips: boolean, put: () => void): RowRefusal | undefined {
    if (decoded === COLUMN_STATUS.NULL_VALUE) return new RowRefusal(ENCODE_STATUS.NULL_VALUE, 0);
    if (decoded !== COLUMN_STATUS.OK) return new RowRefusal(ENCODE_STATUS.NO_VALUE, 0);
    if (skips) return new RowRefusal(ENCODE_STATUS.TOO_LARGE, 0);
    try {
      put();
      return undefined;
    } catch (thrown) {
      if (thrown instanceof RowRefusal) return thrown;
      throw thrown;
    }
  }
}
