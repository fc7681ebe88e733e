/** Number of unread records at the broker, polled concurrently with the reading. It tells whether
 *  the source has records to deliver; the duration of a wait for records alone does not. The same
 *  answers prove that a partition has nothing more to read. */
import type { Clock } from '../../core/clock.ts';
import type { EventSource } from './events.ts';

/** Longest interval between two queries, and the interval after a query that failed. */
const POLL_MS = 1000;
/** Share of the records read since the last query that may be unread while the end still counts as
 *  reached: they are in flight. */
const IN_FLIGHT_SHARE = 0.1;

export interface LagParts {
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly source: Pick<EventSource, 'bounds' | 'endOf'>;
  readonly positions: { readonly partitionCount: number; position(partition: number): number };
  /** Rows of the largest batch: fewer unread records are no backlog. */
  readonly rowCapacity: number;
}

/** Answer of the broker to one query. */
interface EndsAnswer {
  /** Monotonic ms of the query: every record from before then lies before these ends. */
  readonly askedMs: number;
  /** Monotonic ms of its arrival. A broker with many silent partitions takes seconds: a query
   *  waits behind a fetch that waits for records. */
  readonly answeredMs: number;
  /** Next offset of each partition at the broker. */
  readonly highs: readonly number[];
}

export class LagWatch {
  private readonly parts: LagParts;
  private askedMs = Number.NEGATIVE_INFINITY;
  private isPolling = false;
  private hasFailed = false;
  private readTo = 0;
  private inFlightMax: number;
  /** Records after the positions; NaN before the broker has answered. */
  unread = Number.NaN;
  /** Last answer; undefined before the first. */
  answer: EndsAnswer | undefined;

  constructor(parts: LagParts) {
    this.parts = parts;
    this.inFlightMax = parts.rowCapacity;
  }

  /** Starts a query if one is due. @param intervalMs interval at which the caller needs answers */
  poll(nowMs: number, intervalMs = POLL_MS): void {
    const waitMs = this.hasFailed ? POLL_MS : Math.min(POLL_MS, intervalMs);
    if (this.isPolling || nowMs < this.askedMs + waitMs) return;
    this.askedMs = nowMs;
    this.isPolling = true;
    this.query(nowMs)
      .then(
        () => false,
        // The next poll asks again; a source that failed ends the reading itself.
        () => true,
      )
      .then((hasFailed) => {
        this.hasFailed = hasFailed;
        this.isPolling = false;
      });
  }

  /** True if all existing records have been read, except those in flight. */
  get isAtEnd(): boolean {
    if (this.unread <= this.inFlightMax) return true;
    const { source, positions } = this.parts;
    for (let partition = 0; partition < positions.partitionCount; partition++)
      if (source.endOf(partition) < positions.position(partition)) return false;
    return true;
  }

  private async query(askedMs: number): Promise<void> {
    const { source, positions, rowCapacity } = this.parts;
    const bounds = await source.bounds();
    let unread = 0;
    let readTo = 0;
    bounds.slice(0, positions.partitionCount).forEach(({ high }, partition) => {
      const position = positions.position(partition);
      readTo += position;
      unread += Math.max(0, high - position);
    });
    this.inFlightMax = Math.max(rowCapacity, IN_FLIGHT_SHARE * (readTo - this.readTo));
    this.readTo = readTo;
    this.unread = unread;
    const answeredMs = this.parts.clock.monotonicMs();
    this.answer = { askedMs, answeredMs, highs: bounds.map(({ high }) => high) };
  }
}
