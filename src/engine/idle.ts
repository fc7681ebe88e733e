/** Partitions that hold every window back though nothing comes from them: one is idle when all that it has was read, and that
 *  stayed so for the timeout. The decision is the changelog's before a result that depends on it leaves.
 */
import type { WatermarkGenerator } from './admission.ts';
import type { EventSource } from './source.ts';

/** Between two looks at all partitions. */
const LOOK_MS = 100;
const NEVER = Number.NEGATIVE_INFINITY;

export class IdleWatch {
  private readonly watermarks: Pick<
    WatermarkGenerator,
    'mode' | 'partitionCount' | 'position' | 'isIdle' | 'progress'
  >;
  private readonly source: Pick<EventSource, 'endOf'>;
  private readonly timeoutMs: number;
  /** Monotonic ms since when a partition has nothing to read. */
  private readonly since = new Map<number, number>();
  private nextLook = 0;

  constructor(watermarks: IdleWatch['watermarks'], source: IdleWatch['source'], timeoutMs: number) {
    this.watermarks = watermarks;
    this.source = source;
    this.timeoutMs = timeoutMs;
  }

  /** For so long nobody read, whatever there was to read. */
  unread(ms: number): void {
    for (const [partition, from] of this.since) this.since.set(partition, from + ms);
  }

  /** Partitions that are to be taken for idle now, and were not. The order matters where all become idle together, for then
   *  the frontier stays where the last one leaves it: those without an event hold nobody's results back any more, of the
   *  others the one that lags behind most is the last, so that none of its events becomes late by the others' silence. */
  due(now: number): readonly number[] {
    const { watermarks, source, since, timeoutMs } = this;
    // One watermark over all of them waits for none.
    if (timeoutMs === 0 || watermarks.mode === 'global' || now < this.nextLook) return [];
    this.nextLook = now + LOOK_MS;
    const due: number[] = [];
    for (let partition = 0; partition < watermarks.partitionCount; partition++) {
      if (watermarks.isIdle(partition) || source.endOf(partition) < watermarks.position(partition)) {
        since.delete(partition);
        continue;
      }
      const from = since.get(partition);
      if (from === undefined) since.set(partition, now);
      else if (now - from >= timeoutMs) due.push(partition);
    }
    if (due.length === 0) return due;
    const seen = watermarks.progress().map(({ maxSeenTs }) => maxSeenTs);
    const isEmpty = (partition: number): boolean => seen[partition] === NEVER;
    // Nothing has left while one without an event holds everything; were it the last, nothing ever would.
    const isHeld = seen.some((_, one) => isEmpty(one) && !watermarks.isIdle(one) && !due.includes(one));
    if (isHeld) return due.filter(isEmpty);
    const rank = (partition: number): number => (isEmpty(partition) ? NEVER : -(seen[partition] as number));
    return due.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(a) - rank(b)));
  }
}
