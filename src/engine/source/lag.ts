/** How much the broker holds that has not been read, asked of it now and then beside the reading.
 *  Says whether the source has records to give, which a wait for them alone does not tell.
 */
import type { EventSource } from './events.ts';

/** Between two questions. */
const ASK_MS = 1000;
/** The part of what was read between two questions that may be unread where the end is said to be
 *  met: what is on its way. */
const ON_ITS_WAY = 0.1;

export interface LagParts {
  readonly source: Pick<EventSource, 'bounds' | 'endOf'>;
  readonly positions: { readonly partitionCount: number; position(partition: number): number };
  /** Rows the largest batch has: fewer than that are no backlog. */
  readonly rowCapacity: number;
}

export class LagWatch {
  private readonly parts: LagParts;
  private nextMs = Number.NEGATIVE_INFINITY;
  private asking = false;
  private readTo = 0;
  private onItsWay: number;
  /** Records behind the positions; NaN before the broker has answered. */
  unread = Number.NaN;

  constructor(parts: LagParts) {
    this.parts = parts;
    this.onItsWay = parts.rowCapacity;
  }

  /** Asks where it is time to. */
  look(nowMs: number): void {
    if (this.asking || nowMs < this.nextMs) return;
    this.nextMs = nowMs + ASK_MS;
    this.asking = true;
    this.ask()
      // It is asked again; a source that has failed ends the reading.
      .catch(() => {})
      .finally(() => {
        this.asking = false;
      });
  }

  /** Whether everything that there was has been read, but for what is on its way. */
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
