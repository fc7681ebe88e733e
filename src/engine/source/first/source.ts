/** Decorator of a source: it holds the first records of a topic until they are enough to decide the
 *  definition of the input, then returns their batches as the source delivered them.
 *
 *  Invariants: (1) each batch of the source is returned once, in its order and undivided; (2) while
 *  records are held, no end of a partition is known: no partition becomes idle, and no run ends
 *  before its events; (3) a position never passes a held record, so a crash reads it again. */
import type { Clock } from '../../../core/clock.ts';
import { EventBatch } from '../../../core/layout/event-batch.ts';
import { recordBatchBytes } from '../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../core/layout/record-batch.ts';
import type { Stages } from '../../stages.ts';
import type { Bounds, EventRows, EventSource, Receipt } from '../events.ts';
import type { EventInput } from '../input/port.ts';
import { RecordSample } from './sample.ts';

/** Longest time that records are held, in ms from the arrival of the first. */
export const FIRST_RECORDS_WAIT_MS = 2_000;
/** Bytes from which on held batches decide, however few records they have. */
const HELD_BYTES_MAX = 16 << 20;

/** Input whose definition the first records decide. */
export interface JudgedInput {
  readonly isDecided: boolean;
  /** False: no record changes what is decided. */
  readonly needsRecords: boolean;
  /** Decides the definition. False: the sample decides nothing, and the records that are decoded
   *  until the next call are invalid; undefined: the run is to end while a schema is loaded.
   *  @param isEarly true: the sample is small because no more records arrived in time */
  decide(sample: RecordBatch, isEarly: boolean): Promise<boolean | undefined>;
}

export interface FirstRecordsParts {
  /** Source of records that are not decoded. */
  readonly source: EventSource;
  readonly input: JudgedInput;
  /** Decodes the records that are returned. */
  readonly decoder: Pick<EventInput, 'decode' | 'isReady'>;
  readonly stages: Pick<Stages, 'enter'>;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  /** True if the run ends where the partitions ended at its start: then their last records decide,
   *  however few there are. */
  readonly hasEnd: boolean;
}

interface Batch {
  readonly rows: EventRows;
  readonly receipts: readonly Receipt[];
}

const bytesOf = ({ rowCount, arenaUsed }: RecordBatch): number => recordBatchBytes(rowCount, arenaUsed);

export class FirstRecordsSource implements EventSource {
  receipts: readonly Receipt[] = [];
  private readonly parts: FirstRecordsParts;
  private sample = new RecordSample();
  private held: Batch[] = [];
  private heldBytes = 0;
  /** Monotonic ms at which the first held record arrived; undefined: none is held. */
  private sinceMs: number | undefined;
  /** Batches that are no longer held, and not returned yet. */
  private released: Batch[] = [];
  /** Offset behind the last record of each partition. */
  private positions: number[] = [];
  /** Ends of the partitions at the start of a run with an end. */
  private ends: readonly number[] = [];

  constructor(parts: FirstRecordsParts) {
    this.parts = parts;
  }

  get partitionCount(): number {
    return this.parts.source.partitionCount;
  }

  bounds(): Promise<readonly Bounds[]> {
    return this.parts.source.bounds();
  }

  added(): Promise<readonly number[]> {
    return this.parts.source.added();
  }

  async start(offsets: readonly number[]): Promise<void> {
    const { source, input, hasEnd } = this.parts;
    this.clear();
    this.released = [];
    this.positions = [...offsets];
    this.ends = hasEnd && !input.isDecided ? (await source.bounds()).map(({ high }) => high) : [];
    await source.start(offsets);
  }

  async next(waitMs: number): Promise<EventRows | undefined> {
    const { source, input, stages } = this.parts;
    if (this.released.length === 0) {
      const rows = await source.next(waitMs);
      this.receipts = source.receipts;
      if (this.held.length === 0 && (input.isDecided || !input.needsRecords))
        return rows === undefined ? undefined : this.decode(rows);
      if (!(await this.collect(rows))) return undefined;
    }
    stages.enter('decode');
    const [{ rows, receipts }] = this.released as [Batch];
    this.receipts = receipts;
    const decoded = await this.decode(rows);
    if (decoded !== undefined) this.released.shift();
    return decoded;
  }

  endOf(partition: number): number {
    const isBehind = this.held.length > 0 || this.released.length > 0;
    return isBehind ? -1 : this.parts.source.endOf(partition);
  }

  saved(offsets: readonly number[]): void {
    this.parts.source.saved?.(offsets);
  }

  stop(): Promise<void> {
    this.clear();
    this.released = [];
    return this.parts.source.stop();
  }

  private async decode(rows: EventRows): Promise<EventRows | undefined> {
    const { decoder } = this.parts;
    const loading = decoder.decode(rows.records, rows.events);
    // Only a batch with a schema that is not loaded yet waits.
    if (loading !== undefined) await loading;
    return decoder.isReady ? rows : undefined;
  }

  /** Holds rows, and releases all held batches when they are enough. False: they are held. */
  private async collect(rows: EventRows | undefined): Promise<boolean> {
    const { source, input, clock } = this.parts;
    const now = clock.monotonicMs();
    if (rows !== undefined) {
      this.sinceMs ??= now;
      this.sample.add(rows.records);
      this.note(rows.records);
      this.held.push({ rows, receipts: source.receipts });
      this.heldBytes += bytesOf(rows.records);
    }
    if (this.sinceMs === undefined) return false;
    const isEnough = this.sample.isFull || this.heldBytes >= HELD_BYTES_MAX || this.isAtEnd;
    const isEarly = !isEnough && now - this.sinceMs >= FIRST_RECORDS_WAIT_MS;
    const isDecided = isEnough || isEarly ? await input.decide(this.sample.toBatch(), isEarly) : undefined;
    if (isDecided === undefined) {
      if (rows !== undefined) this.keepLast();
      return false;
    }
    this.released = this.held;
    this.clear();
    return true;
  }

  /** Copies the batch that arrived last: the source fills its buffers again. */
  private keepLast(): void {
    const { rows, receipts } = this.held.pop() as Batch;
    const records = rows.records.copy();
    this.held.push({ rows: { records, events: EventBatch.create(records.rowCapacity) }, receipts });
  }

  private note({ columns: { partition, offset }, rowCount }: RecordBatch): void {
    for (let row = 0; row < rowCount; row++)
      this.positions[partition[row] as number] = Number(offset[row]) + 1;
  }

  /** True if all records that existed at the start of a run with an end are held. */
  private get isAtEnd(): boolean {
    const { hasEnd, source } = this.parts;
    return (
      hasEnd &&
      this.ends.every(
        (end, partition) => Math.max(this.positions[partition] ?? 0, source.endOf(partition)) >= end,
      )
    );
  }

  private clear(): void {
    this.sample = new RecordSample();
    this.held = [];
    this.heldBytes = 0;
    this.sinceMs = undefined;
  }
}
