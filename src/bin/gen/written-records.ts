/** Records written straight into the arena of a batch, the key first and then the value. Invariant:
 *  the caller has made sure that the record fits. */
import { invariant } from '../../core/errors.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import { type PayloadBuffer, Sink, viewOf } from '../../formats/sink.ts';
import { writeHexWord } from '../../gen/identifiers.ts';

/** Writes 64 bits, the highest byte first. */
export function writeWord64(view: DataView, at: number, high: number, low: number): void {
  view.setInt32(at, high);
  view.setInt32(at + 4, low);
}

/** Writes the 16 hexadecimal digits of 64 bits. */
export function writeHex64(view: DataView, at: number, high: number, low: number): void {
  writeHexWord(view, at, high);
  writeHexWord(view, at + 8, low);
}

export class WrittenRecords implements PayloadBuffer {
  bytes: Buffer;
  /** Writes the record that has begun; `sink.close` appends it. */
  readonly sink: Sink;
  private batch = RecordBatch.create(1, 0);
  private view: DataView;
  private keyLength = 0;

  constructor() {
    [this.bytes, this.view] = viewsOf(this.batch);
    this.sink = new Sink(this);
  }

  get used(): number {
    return this.batch.arenaUsed;
  }

  grow(): void {
    invariant(false, 'a record fits the batch into which it is written');
  }

  push(end: number): void {
    const { batch, keyLength } = this;
    batch.appendWritten(keyLength, end - batch.arenaUsed - keyLength);
  }

  /** Begins the next record of the batch. */
  begin(batch: RecordBatch): void {
    if (batch !== this.batch) {
      this.batch = batch;
      [this.bytes, this.view] = viewsOf(batch);
    }
    this.sink.open();
  }

  /** Ends the key: what is written from here on is the value. */
  endKey(): void {
    this.keyLength = this.sink.at - this.batch.arenaUsed;
  }

  word64(high: number, low: number): void {
    const { sink, view } = this;
    sink.reserve(8);
    writeWord64(view, sink.at, high, low);
    sink.at += 8;
  }

  hex64(high: number, low: number): void {
    const { sink, view } = this;
    sink.reserve(16);
    writeHex64(view, sink.at, high, low);
    sink.at += 16;
  }

  /** Copies some hundred bytes at most: words in a loop are then faster than a view and a call. */
  copy(from: DataView, start: number, length: number): void {
    const { sink, view } = this;
    sink.reserve(length);
    const { at } = sink;
    const words = length & ~3;
    for (let i = 0; i < words; i += 4) view.setInt32(at + i, from.getInt32(start + i));
    for (let i = words; i < length; i++) view.setUint8(at + i, from.getUint8(start + i));
    sink.at = at + length;
  }
}

function viewsOf({ columns }: RecordBatch): [Buffer, DataView] {
  const { arena } = columns;
  return [Buffer.from(arena.buffer as ArrayBuffer, arena.byteOffset, arena.length), viewOf(arena)];
}
