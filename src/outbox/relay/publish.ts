/** Publishes outbox rows so that the first occurrences of one key's events stand in id order, whatever fails.
 *
 *  Rows go out in waves: a wave holds at most one row a key, the next wave starts when this one is acknowledged, and a
 *  key whose row failed sends nothing more in this call. What is not acknowledged stays pending and is published again.
 *  With one event a key, the usual case, a whole batch is one wave.
 */
import type { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchProducer, BrokerEvent } from '../../io/broker/port.ts';
import { type RelayMode, toRecord } from './event.ts';
import type { OutboxRow } from './store.ts';

export interface Published {
  /** Acknowledged rows, exactly these may be marked. */
  readonly acked: readonly bigint[];
  readonly failed: number;
  readonly events: readonly BrokerEvent[];
  /** Rows that do not fit into an empty batch; they can never be published. */
  readonly oversize: readonly OutboxRow[];
}

/** Splits rows in id order into waves. */
export function wavesOf(rows: readonly OutboxRow[]): OutboxRow[][] {
  const waves: OutboxRow[][] = [];
  const depth = new Map<string, number>();
  for (const row of rows) {
    const wave = depth.get(row.aggregateId) ?? 0;
    depth.set(row.aggregateId, wave + 1);
    const rowsOfWave = waves[wave];
    if (rowsOfWave === undefined) waves.push([row]);
    else rowsOfWave.push(row);
  }
  return waves;
}

export class Publisher {
  private readonly producer: BatchProducer;
  private readonly batch: RecordBatch;
  private readonly topic: string;
  private readonly mode: RelayMode;

  constructor(producer: BatchProducer, batch: RecordBatch, topic: string, mode: RelayMode) {
    this.producer = producer;
    this.batch = batch;
    this.topic = topic;
    this.mode = mode;
  }

  async publish(rows: readonly OutboxRow[]): Promise<Published> {
    const acked: bigint[] = [];
    const events: BrokerEvent[] = [];
    const oversize: OutboxRow[] = [];
    const stuck = new Set<string>();
    let failed = 0;
    for (const wave of wavesOf(rows)) {
      const open = wave.filter((row) => !stuck.has(row.aggregateId));
      for (let from = 0; from < open.length; ) {
        const sent = this.fill(open, from);
        if (sent === 0) {
          const row = open[from] as OutboxRow;
          oversize.push(row);
          stuck.add(row.aggregateId);
          from++;
          continue;
        }
        const report = await this.producer.produce(this.batch, [this.topic]);
        for (let i = 0; i < sent; i++) {
          const row = open[from + i] as OutboxRow;
          if (report.status[i] === 0) acked.push(row.id);
          else stuck.add(row.aggregateId);
        }
        failed += report.failed;
        events.push(...report.events);
        from += sent;
      }
    }
    return { acked, failed, events, oversize };
  }

  /** Fills the batch with rows from `from` on; returns how many fit. */
  private fill(rows: readonly OutboxRow[], from: number): number {
    this.batch.clear();
    let count = 0;
    while (
      from + count < rows.length &&
      this.batch.append(toRecord(rows[from + count] as OutboxRow, this.mode))
    )
      count++;
    return count;
  }
}
