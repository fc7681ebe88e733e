/** Differences of one comparison by class: exact counts, and the first ids of each class. */
import type { MergedRow, Met } from './merge.ts';
import { type Difference, LATE, type PairClass, type PairClasses } from './pair.ts';

export interface PairFinding {
  readonly class: string;
  readonly meaning: string;
  readonly count: number;
  /** First ids in their order. */
  readonly ids: readonly string[];
}

/** Decides which differences are none. */
export interface Judge {
  /** True if the row is in range. */
  inRange(row: MergedRow): boolean;
  /** False for a left row whose effect may have expired. */
  left(row: MergedRow): boolean;
  /** False for a right row whose intent may have expired. */
  right(row: MergedRow): boolean;
  /** Bound of class `late`, ms; undefined: lateness is not judged. */
  readonly lateAfterMs: number | undefined;
}

interface Entry {
  readonly of: PairClass;
  count: number;
  readonly ids: string[];
}

export class PairFindings {
  private readonly entries = new Map<string, Entry>();
  private readonly classes: PairClasses;
  private readonly idsMax: number;
  private readonly lateEntry: Entry = { of: LATE, count: 0, ids: [] };
  private readonly places: boolean;
  private waiting: string[] = [];
  /** Left ids in range that have a right row. */
  matched = 0;

  /** @param places true if `place` decides between a missing effect and one that was set aside */
  constructor(classes: PairClasses, idsMax: number, places = false) {
    this.classes = classes;
    this.idsMax = idsMax;
    this.places = places;
  }

  /** Ids without an effect that `place` has not decided. */
  unplaced(): readonly string[] {
    return this.waiting;
  }

  place(ids: readonly string[], setAside: ReadonlySet<string>): void {
    this.waiting = [];
    for (const id of ids) this.add(setAside.has(id) ? 'setAside' : 'missing', id);
  }

  add(kind: Difference, id: string): void {
    const of = this.classes[kind];
    if (of === undefined) return;
    let entry = this.entries.get(of.name);
    if (entry === undefined) {
      entry = { of, count: 0, ids: [] };
      this.entries.set(of.name, entry);
    }
    this.put(entry, id);
  }

  private put(entry: Entry, id: string): void {
    entry.count++;
    if (entry.ids.length < this.idsMax) entry.ids.push(id);
  }

  /** Judges the rows of one id. */
  judge({ id, left, right }: Met, judge: Judge): void {
    const judged = left.filter((row) => judge.inRange(row));
    const missing = right.length === 0 && judged.some((row) => judge.left(row));
    if (missing && this.places) this.waiting.push(id);
    else if (missing) this.add('missing', id);
    if (judged.length > 0 && right.length > 0) this.matched++;
    if (judged.some((row) => row.pending)) this.add('pending', id);
    if (left.length > 1 && judged.length > 0) this.add('leftTwice', id);
    const effects = right.filter((row) => judge.inRange(row));
    if (left.length === 0 && effects.some((row) => judge.right(row))) this.add('extra', id);
    if (right.length > 1 && effects.length > 0) this.add('rightTwice', id);
    const [intent] = left;
    if (intent === undefined) return;
    if (effects.some((row) => row.value !== intent.value)) this.add('differs', id);
    const { lateAfterMs } = judge;
    if (lateAfterMs === undefined || judged.length === 0 || right.length === 0) return;
    const first = Math.min(...right.map(({ ms }) => ms));
    if (first - intent.ms > lateAfterMs) this.put(this.lateEntry, id);
  }

  /** Classes with members, in the order of the classes of the pair. */
  list(): PairFinding[] {
    return Object.values(this.classes).flatMap((of) => {
      const entry = this.entries.get(of.name);
      return entry === undefined ? [] : [findingOf(entry)];
    });
  }

  get late(): PairFinding {
    return findingOf(this.lateEntry);
  }
}

const findingOf = ({ of, count, ids }: Entry): PairFinding => ({
  class: of.name,
  meaning: of.meaning,
  count,
  ids,
});
