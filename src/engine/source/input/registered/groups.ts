/** Rows of a batch by the plan of their writer. */
import type { PayloadSpans } from '../../../../core/columns/kernel.ts';
import type { FrameBatch } from '../../../../core/layout/frame-batch.ts';
import { FRAME_STATUS } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import { SchemaFault, type WriterPlan } from '../plan.ts';
import { frameFault, type Reading, type Writers } from './writers.ts';

/** Rows of one plan in the current batch. */
export interface PlanRows {
  readonly plan: WriterPlan;
  count: number;
  readonly rows: Int32Array;
}

export class Groups {
  private readonly groups = new Map<WriterPlan, PlanRows>();
  private starts = new Uint32Array(0);
  private lengths = new Int32Array(0);

  clear(): void {
    this.groups.clear();
  }

  /** Groups that have rows. */
  *used(): Iterable<PlanRows> {
    for (const group of this.groups.values()) if (group.count > 0) yield group;
  }

  /** Sorts the rows from `from` to `to` by plan, and reports the status of each that has none.
   *  @param refuse receives a row and EVENT_STATUS.* */
  sort(
    writers: Pick<Writers, 'readingOf'>,
    records: RecordBatch,
    frames: FrameBatch,
    [from, to]: readonly [number, number],
    refuse: (row: number, status: number) => void,
  ): void {
    for (const group of this.groups.values()) group.count = 0;
    const { status, schemaId, messageIndex } = frames.columns;
    let [knownId, knownIndex] = [-1, -1];
    let known: PlanRows | SchemaFault | undefined;
    for (let row = from; row < to; row++) {
      if (status[row] !== FRAME_STATUS.OK) {
        refuse(row, frameFault(status[row] as number));
        continue;
      }
      const id = schemaId[row] as number;
      const index = messageIndex[row] as number;
      // Neighbours mostly have one schema; a path of several indexes is looked up each time.
      if (id !== knownId || index !== knownIndex || index < 0) {
        [knownId, knownIndex] = [id, index];
        known = this.groupOf(writers.readingOf(records, frames, row), records.rowCapacity);
      }
      if (known instanceof SchemaFault) refuse(row, known.status);
      else {
        const group = known as PlanRows;
        group.rows[group.count++] = row;
      }
    }
  }

  /** Payloads of rows, in their order. Valid until the next call. */
  spans(bytes: Uint8Array, { columns, rowCapacity }: FrameBatch, rows: Int32Array): PayloadSpans {
    if (this.starts.length < rows.length) {
      this.starts = new Uint32Array(rowCapacity);
      this.lengths = new Int32Array(rowCapacity);
    }
    const { payloadStart, payloadLength } = columns;
    for (let i = 0; i < rows.length; i++) {
      this.starts[i] = payloadStart[rows[i] as number] as number;
      this.lengths[i] = payloadLength[rows[i] as number] as number;
    }
    return { bytes, start: this.starts, length: this.lengths };
  }

  private groupOf(reading: Reading, rowCapacity: number): PlanRows | SchemaFault {
    if (reading instanceof SchemaFault) return reading;
    let group = this.groups.get(reading);
    if (group === undefined || group.rows.length < rowCapacity) {
      group = { plan: reading, count: 0, rows: new Int32Array(rowCapacity) };
      this.groups.set(reading, group);
    }
    return group;
  }
}
