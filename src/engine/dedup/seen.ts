/** Port of the identifiers that open windows contain.
 *
 *  Two kinds: aligned windows (windows.ts) and sessions (sessions.ts). A key is the text of its 64
 *  bits, an identifier the text that the input made; texts are equal if and only if their bytes
 *  are. The frontier is the event time up to which windows have ended. */

/** Identifier of a folded event. */
export interface SeenId {
  readonly key: string;
  readonly id: string;
  readonly eventTs: number;
}

export interface SeenIds {
  /** Adds the identifier of an event, unless an open window that would contain the event has it.
   *  @returns false for a duplicate
   *  REQUIRES: eventTs >= frontier */
  add(key: string, id: string, eventTs: number): boolean;
  /** Adds the identifier of an event that was folded before a restart. Idempotent. */
  restore(seen: SeenId): void;
  /** Forgets identifiers of windows that ended by the frontier, some at a time: a forgotten
   *  identifier can no longer make a duplicate. Returns true if none is left to forget. */
  expire(frontier: number): boolean;
  /** Approximate bytes of memory. */
  readonly bytes: number;
  readonly count: number;
  /** Every identifier that is present from the beginning of the iteration to its end; those that
   *  are added or removed meanwhile may be missing. */
  all(): Iterator<SeenId>;
}

/** Approximate bytes of an identifier beside its characters: two texts, an entry of a map and one
 *  of a list. */
export const SEEN_BYTES = 200;

/** Most identifiers that one call of `expire` visits. */
export const EXPIRED_MAX = 20_000;
