/** Number of records at the broker that have not been read, queried from time to time beside the
 *  reading. It shows whether the source is at the end of its input, which a wait for records alone
 *  does not. */
import type { EventSource } from './events.ts';

/** Interval between two queries. */
const ASK_MS = 1000;
/** Fraction of the records read between two queries that may be unread at an end of input: records
 *  in flight. */
const ON_ITS_WAY = 0.1;

export interface LagParts {
  readonly source: Pick<EventSource, 'bounds' | 'endOf'>;
  readonly positions: { readonly partitionCount: number; position(partition: number): number };
  /** Rows of the largest batch: fewer rows are no backlog. */
  readonly rowCapacity: number;
}

export class LagWatch {
  private readonly parts: LagParts;
  private nextMs = Number.NEGATIVE_INFINITY;
  private asking = false;
  private readTo = 0;
  private onItsWay: number;
  /** Records after the read positions; NaN before the first answer of the broker. */
  unread = Number.NaN;

  constructor(parts: LagParts) {
    this.parts = parts;
    this.onItsWay = parts.rowCapacity;
  }

  /** Queries the broker if the interval has passed. */
  look(nowMs: number): void {
    if (this.asking || nowMs < this.nextMs) return;
    this.nextMs = nowMs + ASK_MS;
    this.asking = true;
    this.ask()
      // The query is repeated; a source that has failed ends the reading.
      .catch(() => {})
      .finally(() => {
        this.asking = false;
      });
  }

  /** True when all records have been read, except for those in flight. */
  get isAtEnd(): boolean {
    if (this.unread <= this.onItsWay) return true;
    const { source, positions } = this.parts;
    for (let partition = 0; partition < positions.partitionCount; partition++)
      if (source.endOf(partition) < positions.position(partition)) return false;
    return true;
  }

  private async ask(): Promise<void> {
    const { source, positions, rowCapacity } = this.parts;
    const bounds = await source.bounds();
    let unread = 0;
    let readTo = 0;
    bounds.slice(0, positions.partitionCount).forEach(({ high }, partition) => {
      const position = positions.position(partition);
      readTo += position;
      unread += Math.max(0, high - position);
    });
    this.onItsWay = Math.max(rowCapacity, ON_ITS_WAY * (readTo - this.readTo));
    this.readTo = readTo;
    this.unread = unread;
  }
}
