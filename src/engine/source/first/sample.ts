/** Sample of the first records of a topic: those by which the definition of its input is decided.
 */
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import { JUDGED_RECORDS } from '../input/judge.ts';

/** Bytes of keys and values from which on a sample is full. */
const SAMPLE_BYTES_MAX = 16 << 20;

export class RecordSample {
  private readonly records: Array<{ readonly key: Uint8Array | null; readonly value: Uint8Array }> = [];
  private bytes = 0;

  get isFull(): boolean {
    return this.records.length >= JUDGED_RECORDS || this.bytes >= SAMPLE_BYTES_MAX;
  }

  /** Copies the records of a batch as far as the sample has room. Tombstones are not judged: none
   *  of them is an event. */
  add(batch: RecordBatch): void {
    for (let row = 0; row < batch.rowCount && !this.isFull; row++) {
      const value = batch.value(row);
      if (value === null) continue;
      const key = batch.key(row);
      this.records.push({ key: key && Buffer.from(key), value: Buffer.from(value) });
      this.bytes += value.length + (key?.length ?? 0);
    }
  }

  toBatch(): RecordBatch {
    const batch = RecordBatch.create(Math.max(1, this.records.length), this.bytes);
    for (const record of this.records) batch.append(record);
    return batch;
  }
}
