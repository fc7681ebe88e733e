/** What the window engine must compute, written a second time from the requirements: obvious code, BigInt arithmetic,
 *  one object a window and key. It shares no module with the engine; the layout of the 256-byte event is restated here.
 *
 *  Rules, for each event in the order its partition holds it:
 *    seen    = the greatest event_ts of this partition so far, this event included
 *    dropped iff event_ts < seen - skew - lateness, and counted for the partition
 *    else it belongs to the window [floor(event_ts / size) * size, + size)
 *  An event whose value is not 256 bytes, or whose event_ts lies outside [-2^52, 2^52), is invalid and changes nothing.
 *  A window is final when its end <= the least of (seen - skew - lateness) over all partitions, none of them empty.
 */

export interface OracleRules {
  readonly sizeMs: bigint;
  readonly skewMs: bigint;
  readonly latenessMs: bigint;
}

export interface OracleRow {
  readonly accountId: bigint;
  readonly windowStart: bigint;
  readonly windowEnd: bigint;
  readonly count: bigint;
  /** Low 64 bits of the exact sum, two's complement. */
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
  readonly lastUpdateTs: bigint;
  readonly overflow: boolean;
}

interface Aggregate {
  count: bigint;
  sum: bigint;
  min: bigint;
  max: bigint;
  last: bigint;
}

const EVENT_BYTES = 256;
const TS_LIMIT = 1n << 52n;

function floorDivide(a: bigint, b: bigint): bigint {
  const quotient = a / b;
  return a % b < 0n ? quotient - 1n : quotient;
}

export class Oracle {
  readonly droppedLate: bigint[] = [];
  readonly invalid: bigint[] = [];
  readonly consumed: bigint[] = [];
  private readonly rules: OracleRules;
  private readonly seen: Array<bigint | undefined> = [];
  private readonly windows = new Map<bigint, Map<bigint, Aggregate>>();
  private readonly dropsLate: boolean;

  /** `dropsLate` false: the batch result of all events, whatever their order. */
  constructor(rules: OracleRules, partitions: number, dropsLate = true) {
    this.rules = rules;
    this.dropsLate = dropsLate;
    for (let p = 0; p < partitions; p++) {
      this.droppedLate.push(0n);
      this.invalid.push(0n);
      this.consumed.push(0n);
      this.seen.push(undefined);
    }
  }

  /** The value of one record; null for a record without one. */
  value(partition: number, value: Uint8Array | null): void {
    if (value === null || value.length !== EVENT_BYTES) {
      this.consumed[partition] = (this.consumed[partition] as bigint) + 1n;
      this.invalid[partition] = (this.invalid[partition] as bigint) + 1n;
      return;
    }
    const view = new DataView(value.buffer, value.byteOffset, EVENT_BYTES);
    this.event(partition, view.getBigUint64(0, true), view.getBigInt64(8, true), view.getBigInt64(16, true));
  }

  event(partition: number, accountId: bigint, value: bigint, eventTs: bigint): void {
    this.consumed[partition] = (this.consumed[partition] as bigint) + 1n;
    if (eventTs < -TS_LIMIT || eventTs >= TS_LIMIT) {
      this.invalid[partition] = (this.invalid[partition] as bigint) + 1n;
      return;
    }
    const before = this.seen[partition];
    const seen = before === undefined || eventTs > before ? eventTs : before;
    this.seen[partition] = seen;
    if (this.dropsLate && eventTs < seen - this.rules.skewMs - this.rules.latenessMs) {
      this.droppedLate[partition] = (this.droppedLate[partition] as bigint) + 1n;
      return;
    }
    const windowStart = floorDivide(eventTs, this.rules.sizeMs) * this.rules.sizeMs;
    let keys = this.windows.get(windowStart);
    if (keys === undefined) {
      keys = new Map();
      this.windows.set(windowStart, keys);
    }
    const aggregate = keys.get(accountId);
    if (aggregate === undefined) {
      keys.set(accountId, { count: 1n, sum: value, min: value, max: value, last: eventTs });
      return;
    }
    aggregate.count += 1n;
    aggregate.sum += value;
    if (value < aggregate.min) aggregate.min = value;
    if (value > aggregate.max) aggregate.max = value;
    if (eventTs > aggregate.last) aggregate.last = eventTs;
  }

  /** Rows ascending by (window_end, account_id). `finalOnly`: without the windows that are still open. */
  *rows(finalOnly = false): Iterable<OracleRow> {
    const frontier = this.frontier();
    const starts = [...this.windows.keys()].sort((a, b) => (a < b ? -1 : 1));
    for (const windowStart of starts) {
      const windowEnd = windowStart + this.rules.sizeMs;
      if (finalOnly && (frontier === undefined || windowEnd > frontier)) continue;
      const keys = this.windows.get(windowStart) as Map<bigint, Aggregate>;
      for (const accountId of BigUint64Array.from(keys.keys()).sort()) {
        const { count, sum, min, max, last } = keys.get(accountId) as Aggregate;
        const wrapped = BigInt.asIntN(64, sum);
        yield {
          accountId,
          windowStart,
          windowEnd,
          count,
          sum: wrapped,
          min,
          max,
          lastUpdateTs: last,
          overflow: wrapped !== sum,
        };
      }
    }
  }

  private frontier(): bigint | undefined {
    let least: bigint | undefined;
    for (const seen of this.seen) {
      if (seen === undefined) return undefined;
      if (least === undefined || seen < least) least = seen;
    }
    return least === undefined ? undefined : least - this.rules.skewMs - this.rules.latenessMs;
  }
}
