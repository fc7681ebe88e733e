/** Input and output types of the oracle: the rules of a job, the arrival log, rows and counters. */

interface Shared {
  readonly skewMs: bigint;
  readonly latenessMs: bigint;
  /** Scope of the greatest timestamp that an event is compared with: its partition (default), or
   *  all partitions. */
  readonly watermark?: 'partition' | 'global' | undefined;
  /** Limit on how far beyond its append time an event moves the greatest timestamp; undefined:
   *  none. */
  readonly maxFutureMs?: bigint | undefined;
}

export type OracleRules = Shared &
  (
    | { readonly window?: 'tumbling' | undefined; readonly sizeMs: bigint }
    | { readonly window: 'sliding'; readonly sizeMs: bigint; readonly slideMs: bigint }
    | { readonly window: 'session'; readonly gapMs: bigint }
  );

/** Entry of the arrival log: records and decisions in the order in which the engine processed them.
 */
export type LogEntry =
  | {
      readonly kind: 'event';
      readonly partition: number;
      readonly accountId: bigint;
      readonly value: bigint;
      readonly eventTs: bigint;
      /** Time at which the broker appended the record; undefined: unknown. */
      readonly appendTs?: bigint | undefined;
    }
  /** A record whose value is not an event. */
  | { readonly kind: 'broken'; readonly partition: number }
  /** The decision that the partition is idle until its next record. */
  | { readonly kind: 'idle'; readonly partition: number }
  /** The topic has one more partition, with the next number. */
  | { readonly kind: 'added' };

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

/** Counters of one partition. consumed = accepted + droppedLate + invalid. */
export interface PartitionCounters {
  consumed: bigint;
  accepted: bigint;
  /** All dropped events, late for any reason. */
  droppedLate: bigint;
  /** Dropped events that their own partition's watermark would have admitted: the frontier advanced
   *  while the partition was idle. */
  droppedAfterIdle: bigint;
  invalid: bigint;
  /** Valid events beyond append time + max-future, accepted or not. */
  futureClamped: bigint;
}

export const noCounts = (): PartitionCounters => ({
  consumed: 0n,
  accepted: 0n,
  droppedLate: 0n,
  droppedAfterIdle: 0n,
  invalid: 0n,
  futureClamped: 0n,
});

/** Valid timestamps lie in [-TS_LIMIT, TS_LIMIT). */
export const TS_LIMIT = 1n << 52n;

export function checkRules(rules: OracleRules): OracleRules {
  const atLeast = (name: string, value: bigint, least: bigint): void => {
    if (value < least) throw new Error(`${name} of ${value} ms is below ${least}`);
  };
  atLeast('skew', rules.skewMs, 0n);
  atLeast('lateness', rules.latenessMs, 0n);
  if (rules.maxFutureMs !== undefined) atLeast('max-future', rules.maxFutureMs, 0n);
  if (rules.window === 'session') {
    atLeast('gap', rules.gapMs, 1n);
    return rules;
  }
  atLeast('size', rules.sizeMs, 1n);
  if (rules.window === 'sliding') {
    atLeast('slide', rules.slideMs, 1n);
    if (rules.slideMs > rules.sizeMs)
      throw new Error(`slide of ${rules.slideMs} ms is longer than the size of ${rules.sizeMs} ms`);
  }
  return rules;
}
