/** Retry queues: exponential backoff with full jitter, within a time budget for each record.
 *
 *  A failed record blocks its key: later records of the key queue behind it, so that the order of a
 *  key is kept. Records of other keys pass. The queues are only in memory. The consumer commits no
 *  offset at or after the lowest queued one. After a crash or a rebalance, queued records are
 *  therefore redelivered, and the inbox skips the records that had passed them.
 *
 *  Invariants: (1) the records of a queue are in offset order, and only the first is tried; (2) a
 *  record without a key blocks no other; (3) queued records are copies and share no bytes with the
 *  batch that they came from. Source of full jitter: M. Brooker, "Exponential Backoff and Jitter",
 *  AWS Architecture Blog, 2015.
 */
import type { Random } from '../../core/clock.ts';
import { placeKey } from './member.ts';
import type { InboxRecord, RecordPlace } from './port.ts';

export interface RetrySettings {
  /** Upper bound of the first delay, ms; it doubles with each failure. A delay is random between 0
   *  and its upper bound. */
  readonly firstDelayMs: number;
  /** Maximum of the upper bound, ms. */
  readonly maxDelayMs: number;
  /** Time from the first failure of a record to its last attempt, ms; then it is parked. 0: no
   *  retry. */
  readonly budgetMs: number;
  /** Maximum of queued records and bytes. At either limit, the consumer reads nothing until a
   *  queued record is settled. */
  readonly waitingRowsMax: number;
  readonly waitingBytesMax: number;
}

/** Queue of one key of one partition. */
export interface RetryQueue {
  readonly place: string;
  readonly records: InboxRecord[];
  /** Number of failures of the first record. */
  failures: number;
  firstFailedMs: number;
  dueMs: number;
}

/** Estimated memory of a queued record beside its bytes. */
const RECORD_OVERHEAD_BYTES = 512;
/** Number of doublings after which the delay has reached any maximum. */
const DOUBLINGS_MAX = 40;

const copyOf = (bytes: Uint8Array | null): Uint8Array | null => (bytes === null ? null : bytes.slice());

const ownCopy = (record: InboxRecord): InboxRecord => ({
  ...record,
  key: copyOf(record.key),
  value: copyOf(record.value),
  headers: record.headers.map(([name, value]) => [name, copyOf(value)] as const),
});

const bytesOf = ({ key, value, headers }: InboxRecord): number =>
  headers.reduce(
    (sum, [name, content]) => sum + name.length + (content?.length ?? 0),
    RECORD_OVERHEAD_BYTES + (key?.length ?? 0) + (value?.length ?? 0),
  );

function queueName(record: InboxRecord): string {
  const { key, offset } = record;
  const own = key === null ? `#${offset}` : `=${Buffer.from(key).toString('latin1')}`;
  return `${placeKey(record)}${own}`;
}

export class Retries {
  private readonly settings: RetrySettings;
  private readonly random: Random;
  private readonly queues = new Map<string, RetryQueue>();
  private rows = 0;
  private bytes = 0;

  constructor(settings: RetrySettings, random: Random) {
    this.settings = settings;
    this.random = random;
  }

  get waitingRows(): number {
    return this.rows;
  }

  get waitingKeys(): number {
    return this.queues.size;
  }

  get isFull(): boolean {
    return this.rows >= this.settings.waitingRowsMax || this.bytes >= this.settings.waitingBytesMax;
  }

  /** Queues the record behind an earlier one of its key. False: none is queued, or the record
   *  itself is being retried. */
  follow(record: InboxRecord): boolean {
    const queue = this.queues.get(queueName(record));
    if (queue === undefined || queue.records[0] === record) return false;
    this.push(queue, record);
    return true;
  }

  /** Queues a record that was not tried yet; it is due immediately. */
  postpone(record: InboxRecord, nowMs: number): void {
    this.begin(record, nowMs);
  }

  /** Queues the record after a failure of its effect. False: its time budget is used up. */
  failed(record: InboxRecord, nowMs: number): boolean {
    const { budgetMs } = this.settings;
    const known = this.queues.get(queueName(record));
    const firstMs = known === undefined || known.failures === 0 ? nowMs : known.firstFailedMs;
    if (nowMs - firstMs >= budgetMs) return false;
    const queue = known ?? this.begin(record, nowMs);
    queue.firstFailedMs = firstMs;
    queue.failures++;
    queue.dueMs = Math.min(nowMs + this.delayMs(queue.failures), firstMs + budgetMs);
    return true;
  }

  /** Returns the queues whose first record is due, the longest overdue first. */
  due(nowMs: number): readonly RetryQueue[] {
    return [...this.queues.values()].filter(({ dueMs }) => dueMs <= nowMs).sort((a, b) => a.dueMs - b.dueMs);
  }

  /** Returns the time until a record is due, ms; Infinity if none is queued. */
  dueInMs(nowMs: number): number {
    let dueMs = Number.POSITIVE_INFINITY;
    for (const queue of this.queues.values()) dueMs = Math.min(dueMs, queue.dueMs);
    return Math.max(0, dueMs - nowMs);
  }

  /** Removes the first record of the queue, which had its effect or was parked; the next one is
   *  due. */
  settled(queue: RetryQueue, nowMs: number): void {
    const [first] = queue.records;
    // The partition may have been revoked meanwhile.
    if (first === undefined || this.queues.get(queueName(first)) !== queue) return;
    queue.records.shift();
    this.rows--;
    this.bytes -= bytesOf(first);
    queue.failures = 0;
    queue.dueMs = nowMs;
    if (queue.records.length === 0) this.queues.delete(queueName(first));
  }

  /** Returns the lowest queued offset of this partition. */
  lowest(place: string): bigint | undefined {
    let lowest: bigint | undefined;
    for (const queue of this.queues.values()) {
      const offset = queue.records[0]?.offset;
      if (queue.place === place && offset !== undefined && (lowest === undefined || offset < lowest))
        lowest = offset;
    }
    return lowest;
  }

  /** Drops the queues of a partition that was revoked or is read again from its committed offset.
   */
  forget(at: Pick<RecordPlace, 'topic' | 'partition'>): void {
    const place = placeKey(at);
    for (const [name, queue] of this.queues) {
      if (queue.place !== place) continue;
      this.queues.delete(name);
      this.rows -= queue.records.length;
      for (const record of queue.records) this.bytes -= bytesOf(record);
    }
  }

  private begin(record: InboxRecord, nowMs: number): RetryQueue {
    const queue = { place: placeKey(record), records: [], failures: 0, firstFailedMs: nowMs, dueMs: nowMs };
    this.queues.set(queueName(record), queue);
    this.push(queue, record);
    return queue;
  }

  private push(queue: RetryQueue, record: InboxRecord): void {
    queue.records.push(ownCopy(record));
    this.rows++;
    this.bytes += bytesOf(record);
  }

  private delayMs(failures: number): number {
    const { firstDelayMs, maxDelayMs } = this.settings;
    return (
      this.random.fraction() * Math.min(maxDelayMs, firstDelayMs * 2 ** Math.min(failures - 1, DOUBLINGS_MAX))
    );
  }
}
