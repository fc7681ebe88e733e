/** Identifiers in session windows.
 *
 *  An event is a duplicate if the session that it would be in has its identifier: the events of its
 *  key that are connected with it by distances below the gap. A duplicate extends and merges no
 *  session. Two sessions that a later event merges may both have an identifier: each event was the
 *  first of its session.
 *  Invariant: the sessions of a key are those of the engine's state, because both follow from the
 *  times of the folded events alone. */
import { EXPIRED_MAX, SEEN_BYTES, type SeenId, type SeenIds } from './seen.ts';

interface Session {
  readonly key: string;
  first: number;
  last: number;
  /** Event times of each identifier; almost always one. */
  ids: Map<string, readonly number[]>;
  /** Number of event times. */
  count: number;
  bytes: number;
  /** False once the session is a part of another one, or forgotten. */
  isOpen: boolean;
}

export class SessionIds implements SeenIds {
  count = 0;
  bytes = 0;
  private readonly gapMs: number;
  private readonly byKey = new Map<string, readonly Session[]>();
  /** Sessions by the end that they had when they were noted, in steps of the gap. */
  private readonly ends = new Map<number, Session[]>();

  constructor(gapMs: number) {
    this.gapMs = gapMs;
  }

  add(key: string, id: string, eventTs: number): boolean {
    const near = this.near(key, eventTs);
    if (near.some(({ ids }) => ids.has(id))) return false;
    this.put(key, id, eventTs, near);
    return true;
  }

  restore({ key, id, eventTs }: SeenId): void {
    const near = this.near(key, eventTs);
    if (near.some(({ ids }) => ids.get(id)?.includes(eventTs) === true)) return;
    this.put(key, id, eventTs, near);
  }

  expire(frontier: number): boolean {
    let left = EXPIRED_MAX;
    for (const [end, sessions] of this.ends) {
      if (end > frontier) continue;
      while (sessions.length > 0 && left > 0) {
        const session = sessions.pop() as Session;
        left--;
        if (!session.isOpen) continue;
        if (session.last + this.gapMs > frontier) this.note(session);
        else this.release(session);
      }
      if (sessions.length > 0) return false;
      this.ends.delete(end);
    }
    return true;
  }

  *all(): Iterator<SeenId> {
    // The identifiers of a key are read together: a merge moves them within the key.
    for (const sessions of this.byKey.values()) yield* seenIn(sessions);
  }

  /** Sessions of the key that an event at this time would be in. */
  private near(key: string, eventTs: number): readonly Session[] {
    const { gapMs } = this;
    return (this.byKey.get(key) ?? []).filter(
      ({ first, last }) => eventTs > first - gapMs && eventTs < last + gapMs,
    );
  }

  private put(key: string, id: string, eventTs: number, near: readonly Session[]): void {
    const [head = this.opened(key, eventTs), ...others] = near;
    for (const other of others) absorb(head, other);
    if (others.length > 0)
      this.byKey.set(
        key,
        (this.byKey.get(key) ?? []).filter(({ isOpen }) => isOpen),
      );
    head.first = Math.min(head.first, eventTs);
    head.last = Math.max(head.last, eventTs);
    head.ids.set(id, [...(head.ids.get(id) ?? []), eventTs]);
    head.count++;
    head.bytes += bytesOf(key, id);
    this.count++;
    this.bytes += bytesOf(key, id);
  }

  private opened(key: string, eventTs: number): Session {
    const session = { key, first: eventTs, last: eventTs, ids: new Map(), count: 0, bytes: 0, isOpen: true };
    this.byKey.set(key, [...(this.byKey.get(key) ?? []), session]);
    this.note(session);
    return session;
  }

  /** Notes when the session may have ended: at the first step after its present end. */
  private note(session: Session): void {
    const step = (Math.floor((session.last + this.gapMs) / this.gapMs) + 1) * this.gapMs;
    const ended = this.ends.get(step);
    if (ended === undefined) this.ends.set(step, [session]);
    else ended.push(session);
  }

  private release(session: Session): void {
    const { key, count, bytes } = session;
    session.isOpen = false;
    this.count -= count;
    this.bytes -= bytes;
    const left = (this.byKey.get(key) ?? []).filter((one) => one !== session);
    if (left.length === 0) this.byKey.delete(key);
    else this.byKey.set(key, left);
  }
}

function absorb(into: Session, other: Session): void {
  other.isOpen = false;
  into.first = Math.min(into.first, other.first);
  into.last = Math.max(into.last, other.last);
  into.count += other.count;
  into.bytes += other.bytes;
  // The smaller map is copied into the larger one.
  const [large, small] = into.ids.size < other.ids.size ? [other.ids, into.ids] : [into.ids, other.ids];
  for (const [id, times] of small) large.set(id, [...(large.get(id) ?? []), ...times]);
  into.ids = large;
  other.ids = new Map();
}

function* seenIn(sessions: readonly Session[]): Iterable<SeenId> {
  const found = sessions.flatMap(({ key, ids }) =>
    [...ids].flatMap(([id, times]) => times.map((eventTs) => ({ key, id, eventTs }))),
  );
  yield* found;
}

const bytesOf = (key: string, id: string): number => SEEN_BYTES + 2 * (key.length + id.length);
