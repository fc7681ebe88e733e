/** Decoder of records that a registry frames: Avro or Protobuf, with one plan for each writer. */
import type { EventBatch } from '../../../../core/layout/event-batch.ts';
import type { FrameBatch } from '../../../../core/layout/frame-batch.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import { putPlaces, valuesOf } from '../../../aggregate/values.ts';
import { readRecordKeys } from '../key/records.ts';
import type { EventDecoder } from '../port.ts';
import { readRecordTimes } from '../record-fields.ts';
import { EventWords } from '../words.ts';
import { Groups } from './groups.ts';
import { type RegisteredParts, Writers } from './writers.ts';

export class RegisteredDecoder implements EventDecoder {
  private readonly parts: RegisteredParts;
  private readonly writers: Writers;
  private readonly groups = new Groups();
  /** Faults of rows of the batch that was decoded last. */
  private faults: ReadonlyMap<number, string> | undefined;

  constructor(parts: RegisteredParts) {
    this.parts = parts;
    this.writers = new Writers(parts, () => this.groups.clear());
  }

  decode(records: RecordBatch, into: EventBatch): void | Promise<void> {
    const frames = this.writers.open(records);
    if (!(frames instanceof Promise)) return this.fill(records, frames, into);
    return frames.then((loaded) => {
      if (loaded !== undefined) this.fill(records, loaded, into);
    });
  }

  describe(records: RecordBatch, row: number): string | undefined {
    return this.writers.describe(records, row, this.faults?.get(row));
  }

  close(): void {
    this.writers.forget();
  }

  private fill(records: RecordBatch, frames: FrameBatch, into: EventBatch): void {
    const words = EventWords.of(into);
    const { key, time, aggregates } = this.parts.fields;
    const rows = records.rowCount;
    words.reset(rows);
    this.faults = words.faults;
    if (aggregates !== undefined) valuesOf(into, aggregates.columns).texts.clear();
    this.groups.sort(this.writers, records, frames, [0, rows], (row, status) => {
      words.status[row] = status;
    });
    if (time.from === 'record') readRecordTimes(records, words);
    const { arena } = records.columns;
    const { payloadStart, payloadLength } = frames.columns;
    for (const { plan, count, rows: own } of this.groups.used()) {
      const mine = own.subarray(0, count);
      const spans =
        count === rows
          ? { bytes: arena, start: payloadStart, length: payloadLength }
          : this.groups.spans(arena, frames, mine);
      plan.run(spans, mine, words);
    }
    if (key.from === 'record' && key.form !== undefined) readRecordKeys(records, key.form, words);
    if (aggregates?.needsPlace === true) putPlaces(records, valuesOf(into, aggregates.columns));
    words.clearInvalid();
  }
}
