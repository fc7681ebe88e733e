/** Reads pieces of a topic without a consumer group and decodes them.
 *  Invariants: (1) a record is counted once, by the reader of its piece; (2) a record that cannot
 *  be read never ends the run; (3) while the registry is unavailable, the batch waits and no record
 *  is judged. */
import type { Timers } from '../../core/clock.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { Logger } from '../../core/log.ts';
import type { BatchConsumer, TopicPartitionOffset } from '../../io/kafka/port.ts';
import type { ConsumerMetrics } from '../consumer/member.ts';
import { prepared } from '../consumer/partitions.ts';
import type { Quarantine } from '../consumer/quarantine.ts';
import { registryError } from '../errors.ts';
import type { ReplayDecoder, ReplayedBatch } from './decoder.ts';
import type { OffsetRange, Piece } from './pieces.ts';
import type { ReplayTally } from './tally.ts';

export interface PieceReaderOptions {
  readonly consumer: BatchConsumer;
  readonly topic: string;
  /** Label of the metrics. */
  readonly subject: string;
  readonly decoder: ReplayDecoder;
  readonly quarantine: Quarantine | undefined;
  readonly tally: ReplayTally;
  readonly metrics: ConsumerMetrics;
  readonly clock: Timers;
  readonly log: Logger;
  readonly drain: AbortSignal;
  readonly batchRows: number;
  readonly batchBytes: number;
}

const WAIT_MS = 250;

export class PieceReader {
  private readonly options: PieceReaderOptions;
  private readonly records: RecordBatch;
  private readonly counts: Uint8Array;
  /** Ranges of the piece that are not read to their end, by partition. */
  private readonly open = new Map<number, OffsetRange>();
  /** Time of decoding, ms. */
  decodeMs = 0;

  constructor(options: PieceReaderOptions) {
    this.options = options;
    this.records = RecordBatch.create(options.batchRows, options.batchBytes);
    this.counts = new Uint8Array(options.batchRows);
  }

  /** Reads a piece. False: the drain came before its end. @throws unreachable, not_delivered */
  async read(piece: Piece): Promise<boolean> {
    const { consumer, drain, log } = this.options;
    if (drain.aborted) return false;
    this.open.clear();
    for (const range of piece) this.open.set(range.partition, range);
    await consumer.assign(piece.map(({ topic, partition, from }) => ({ topic, partition, offset: from })));
    while (this.open.size > 0) {
      const result = await consumer.consume(this.records, WAIT_MS);
      for (const event of result.events) {
        // The position stays before a record that exceeds a batch.
        if (event.name === 'MILLRACE_OVERSIZE') throw oversize(event.message);
        // The client has no reset policy, so that no offset is left out silently.
        if (event.name === '_AUTO_OFFSET_RESET') throw deleted(event.message);
        log.warn({ ...event }, 'broker event');
      }
      if (result.rowCount > 0 && !(await this.finish())) return false;
      await this.close(result.ends.filter((end) => this.isPast(end)).map(({ partition }) => partition));
      // After a read, because librdkafka aborts the process if a client is closed while it replaces
      // one assignment of a partition by another.
      if (drain.aborted && this.open.size > 0) return false;
    }
    return true;
  }

  private isPast({ partition, offset }: TopicPartitionOffset): boolean {
    const range = this.open.get(partition);
    return range !== undefined && offset >= range.to;
  }

  /** Pauses partitions that are read to the end of their range. */
  private async close(partitions: readonly number[]): Promise<void> {
    if (partitions.length === 0) return;
    const { consumer, topic } = this.options;
    for (const partition of partitions) this.open.delete(partition);
    if (this.open.size > 0) await consumer.pause(partitions.map((partition) => ({ topic, partition })));
  }

  /** False: the drain came before the registry answered. */
  private async finish(): Promise<boolean> {
    const { options, records } = this;
    const { decoder, clock, metrics } = options;
    if (!(await prepared(options, records))) return false;
    const { rows, reached } = this.select();
    const startMs = clock.monotonicMs();
    const batch = decoder.decode(records, rows === records.rowCount ? undefined : this.counts);
    const tookMs = clock.monotonicMs() - startMs;
    this.decodeMs += tookMs;
    if (rows > 0) metrics.decodeSeconds.observeMany(tookMs / 1000 / rows, rows);
    await this.count(rows, batch);
    await this.close(reached);
    return true;
  }

  /** Marks the rows that belong to the piece. Rows of a partition are in the order of their
   *  offsets, so the last row of each decides whether all do. */
  private select(): { readonly rows: number; readonly reached: readonly number[] } {
    const { records, counts, open } = this;
    const { partition, offset } = records.columns;
    const seen = new Set<number>();
    const reached: number[] = [];
    let isWhole = true;
    for (let row = records.rowCount - 1; row >= 0; row--) {
      const at = partition[row] as number;
      if (seen.has(at)) continue;
      seen.add(at);
      const range = open.get(at);
      if (range === undefined || (offset[row] as bigint) >= range.to) isWhole = false;
      if (range !== undefined && (offset[row] as bigint) >= range.to - 1n) reached.push(at);
    }
    if (isWhole) return { rows: records.rowCount, reached };
    let rows = 0;
    for (let row = 0; row < records.rowCount; row++) {
      const range = open.get(partition[row] as number);
      const isInside = range !== undefined && (offset[row] as bigint) < range.to;
      counts[row] = isInside ? 1 : 0;
      if (isInside) rows++;
    }
    return { rows, reached };
  }

  private async count(rows: number, { decoded, tombstones, failed }: ReplayedBatch): Promise<void> {
    const { tally, metrics, subject, quarantine, topic } = this.options;
    const { records } = this;
    const { partition, offset } = records.columns;
    if (failed.length > 0 && quarantine !== undefined) {
      const refused = await quarantine.write(records, topic, failed);
      if (refused.length > 0) throw tooLarge(quarantine.topic, refused.length);
    }
    metrics.consumed.add(rows);
    metrics.decoded.add(rows - failed.length);
    tally.records += rows;
    tally.tombstones += tombstones;
    for (const [schemaId, count] of decoded) tally.decoded(schemaId, count);
    for (const { row, reason, schemaId, error } of failed) {
      metrics.errors.add(1, metrics.errors.series(subject, reason));
      tally.failed(reason, {
        partition: partition[row] as number,
        offset: offset[row] as bigint,
        schemaId,
        error: error.message,
      });
    }
  }
}

const oversize = (why: string): Error =>
  registryError('not_delivered', `a record is larger than a batch: ${why}`, { next: 'raise -batch-bytes' });

const deleted = (why: string): Error =>
  registryError('records_deleted', `records were deleted before they were read: ${why}`, {
    next: 'run it again, or raise the retention of the topic first',
  });

const tooLarge = (topic: string, count: number): Error =>
  registryError('not_delivered', `topic ${topic} refuses ${count} records as too large`, {
    next: 'raise max.message.bytes of the topic',
  });
