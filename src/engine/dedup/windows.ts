/** Identifiers in tumbling and sliding windows.
 *
 *  An event is a duplicate if a window contains both it and a folded event of the same key and
 *  identifier. Such a window is open: it contains an event that is not behind the frontier.
 *  Invariant: folded events of one key and identifier share no window. */
import { floorTo } from '../../core/time.ts';
import { EXPIRED_MAX, SEEN_BYTES, type SeenId, type SeenIds } from './seen.ts';

interface Entry {
  readonly key: string;
  readonly id: string;
  /** Event times of the folded events; almost always one. */
  times: readonly number[];
}

export class WindowIds implements SeenIds {
  count = 0;
  bytes = 0;
  private readonly sizeMs: number;
  private readonly slideMs: number;
  private readonly entries = new Map<string, Entry>();
  /** Entries by the end of the last window that contains one of their events. */
  private readonly ends = new Map<number, Entry[]>();

  constructor(sizeMs: number, slideMs: number) {
    this.sizeMs = sizeMs;
    this.slideMs = slideMs;
  }

  add(key: string, id: string, eventTs: number): boolean {
    const entry = this.entries.get(nameOf(key, id));
    if (entry?.times.some((time) => this.share(time, eventTs)) === true) return false;
    this.put(entry, key, id, eventTs);
    return true;
  }

  restore({ key, id, eventTs }: SeenId): void {
    const entry = this.entries.get(nameOf(key, id));
    if (entry?.times.includes(eventTs) !== true) this.put(entry, key, id, eventTs);
  }

  expire(frontier: number): boolean {
    let left = EXPIRED_MAX;
    for (const [end, entries] of this.ends) {
      if (end > frontier) continue;
      for (; entries.length > 0 && left > 0; left--) this.release(entries.pop() as Entry, frontier);
      if (entries.length > 0) return false;
      this.ends.delete(end);
    }
    return true;
  }

  *all(): Iterator<SeenId> {
    for (const { key, id, times } of this.entries.values())
      for (const eventTs of times) yield { key, id, eventTs };
  }

  /** True if a window contains both times. The window that starts last of those that contain the
   *  earlier time reaches furthest. */
  private share(a: number, b: number): boolean {
    return Math.max(a, b) < floorTo(Math.min(a, b), this.slideMs) + this.sizeMs;
  }

  private endOf(eventTs: number): number {
    return floorTo(eventTs, this.slideMs) + this.sizeMs;
  }

  private put(known: Entry | undefined, key: string, id: string, eventTs: number): void {
    const entry = known ?? { key, id, times: [] };
    entry.times = [...entry.times, eventTs];
    this.entries.set(nameOf(key, id), entry);
    const end = this.endOf(eventTs);
    const ended = this.ends.get(end);
    if (ended === undefined) this.ends.set(end, [entry]);
    else ended.push(entry);
    this.count++;
    this.bytes += bytesOf(key, id);
  }

  private release(entry: Entry, frontier: number): void {
    const { key, id, times } = entry;
    entry.times = times.filter((time) => this.endOf(time) > frontier);
    const gone = times.length - entry.times.length;
    this.count -= gone;
    this.bytes -= gone * bytesOf(key, id);
    if (entry.times.length === 0 && gone > 0) this.entries.delete(nameOf(key, id));
  }
}

/** A key has no space. */
const nameOf = (key: string, id: string): string => `${key} ${id}`;

const bytesOf = (key: string, id: string): number => SEEN_BYTES + 2 * (key.length + id.length);
