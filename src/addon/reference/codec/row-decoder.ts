/** Loop over the payloads of a call: a row for each, and the verdict of the row. */
import type { ColumnBatch } from '../../../core/columns/batch.ts';
import type { ColumnDecoder, ColumnProgram, PayloadSpans } from '../../../core/columns/kernel.ts';
import { coreError } from '../../../core/errors.ts';
import { COLUMN_STATE, COLUMN_STATUS } from '../../../core/layout/layouts.gen.ts';
import { RowError } from './avro-input.ts';
import { ColumnWriter, NeedRoom } from './column-writer.ts';

export abstract class RowDecoder implements ColumnDecoder {
  protected readonly into: ColumnWriter;
  private readonly schema: ColumnProgram['schema'];
  private isClosed = false;

  constructor({ schema }: ColumnProgram) {
    this.schema = schema;
    this.into = new ColumnWriter(schema);
  }

  /** Appends the values of the payload `bytes[start, end)` to the top columns.
   *  @throws RowError, and NeedRoom */
  protected abstract readRow(bytes: Uint8Array, start: number, end: number): void;

  decode(payloads: PayloadSpans, from: number, to: number, into: ColumnBatch, skips: boolean): number {
    if (this.isClosed) throw coreError('closed', 'program: it is closed');
    demandSpans(payloads, from, to);
    if (into.schema !== this.schema) throw coreError('layout_mismatch', 'into: another schema');
    if (to - from > into.rowCapacity - into.rowCount) throw coreError('out_of_range', 'into: too few rows');
    this.into.open(into);
    const { status, errorAt } = into;
    let at = from;
    try {
      for (; at < to; at++) {
        const row = into.rowCount + at - from;
        const start = payloads.start[at] as number;
        const length = payloads.length[at] as number;
        const error =
          skips && at === from
            ? new RowError(COLUMN_STATUS.TOO_LARGE, start)
            : this.errorOf(payloads.bytes, start, length);
        if (error !== undefined) this.emptyRow();
        this.into.commit();
        status[row] = error?.status ?? COLUMN_STATUS.OK;
        errorAt[row] = error === undefined ? 0 : error.at - start;
      }
    } catch (thrown) {
      if (!(thrown instanceof NeedRoom)) throw thrown;
      into.state[COLUMN_STATE.NEED_SLOT] = thrown.slot;
      into.state[COLUMN_STATE.NEED_BYTES] = thrown.bytes;
    }
    this.into.rollback();
    this.into.save(into);
    into.state[COLUMN_STATE.ROW_COUNT] = into.rowCount + at - from;
    return at - from;
  }

  close(): void {
    this.isClosed = true;
  }

  private errorOf(bytes: Uint8Array, start: number, length: number): RowError | undefined {
    if (length < 0) return new RowError(COLUMN_STATUS.NULL_VALUE, start);
    try {
      this.readRow(bytes, start, start + length);
      return undefined;
    } catch (thrown) {
      if (thrown instanceof RowError) return thrown;
      throw thrown;
    }
  }

  private emptyRow(): void {
    this.into.rollback();
    for (const column of this.schema.topIndex) this.into.empty(column);
  }
}

function demandSpans({ bytes, start, length }: PayloadSpans, from: number, to: number): void {
  if (!(from >= 0 && from <= to && to <= start.length && to <= length.length))
    throw coreError('out_of_range', 'payloads: a span leaves its buffer');
  for (let i = from; i < to; i++)
    if ((length[i] as number) >= 0 && (start[i] as number) + (length[i] as number) > bytes.length)
      throw coreError('out_of_range', 'payloads: a span leaves its buffer');
}
