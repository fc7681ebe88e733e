/** Session windows: the accepted events of a key in time order, split where an event is at least a
 *  gap after its predecessor. A session is [first, last + gap), so two sessions that only touch
 *  stay separate. */
import { type Aggregate, aggregateOf, fold, rowOf } from './aggregate.ts';
import type { OracleRow } from './rules.ts';

interface StoredEvent {
  readonly value: bigint;
  readonly eventTs: bigint;
}

const ascending = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);

export class SessionWindows {
  private readonly gapMs: bigint;
  private readonly events = new Map<bigint, StoredEvent[]>();

  constructor(gapMs: bigint) {
    this.gapMs = gapMs;
  }

  add(accountId: bigint, value: bigint, eventTs: bigint): void {
    const events = this.events.get(accountId);
    if (events === undefined) this.events.set(accountId, [{ value, eventTs }]);
    else events.push({ value, eventTs });
  }

  /** Rows ascending by (window_end, account_id). */
  rows(): Iterable<OracleRow> {
    const rows: OracleRow[] = [];
    for (const [accountId, events] of this.events) {
      const inTime = [...events].sort((a, b) => ascending(a.eventTs, b.eventTs));
      let start = 0n;
      let session: Aggregate | undefined;
      for (const { value, eventTs } of inTime) {
        if (session !== undefined && eventTs - session.last < this.gapMs) {
          fold(session, value, eventTs);
          continue;
        }
        if (session !== undefined) rows.push(rowOf(accountId, start, session.last + this.gapMs, session));
        start = eventTs;
        session = aggregateOf(value, eventTs);
      }
      if (session !== undefined) rows.push(rowOf(accountId, start, session.last + this.gapMs, session));
    }
    return rows.sort((a, b) => ascending(a.windowEnd, b.windowEnd) || ascending(a.accountId, b.accountId));
  }
}
