/** End offsets of a topic at the start of the run, for `-exit-at-end`. The state is in shared
 *  memory, so the readers of several threads follow one list. */
import type { TopicPartition } from '../../io/kafka/port.ts';

type Ends = ReadonlyArray<TopicPartition & { readonly low: bigint; readonly high: bigint }>;

/** Number of open partitions; then 1 for each open partition, in the order of the list. */
export type EndCells = Int32Array<SharedArrayBuffer>;

/** An empty partition is done immediately. @param ends watermarks of each partition at the start */
export function endCells(ends: Ends): EndCells {
  const cells = new Int32Array(new SharedArrayBuffer(4 * (1 + ends.length)));
  ends.forEach(({ low, high }, index) => {
    cells[1 + index] = high > low ? 1 : 0;
  });
  cells[0] = cells.subarray(1).reduce((sum, open) => sum + open, 0);
  return cells;
}

export class EndTracker {
  private readonly cells: EndCells;
  private readonly ends: Ends;
  private readonly indexes: ReadonlyMap<number, number>;

  /** @param cells those of another tracker of the same list */
  constructor(ends: Ends, cells: EndCells = endCells(ends)) {
    this.ends = ends;
    this.cells = cells;
    this.indexes = new Map(ends.map(({ partition }, index) => [partition, index]));
  }

  /** @param nextOffset next offset to read: every record before it is finished */
  reached(partition: number, nextOffset: bigint): void {
    const index = this.indexes.get(partition);
    if (index === undefined || nextOffset < (this.ends[index] as Ends[number]).high) return;
    if (Atomics.exchange(this.cells, 1 + index, 0) === 1) Atomics.sub(this.cells, 0, 1);
  }

  done(): boolean {
    return Atomics.load(this.cells, 0) === 0;
  }
}
