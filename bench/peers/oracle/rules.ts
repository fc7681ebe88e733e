/** What the oracle is asked and what it answers: the rules of a job, the arrival log, rows and
 *  counts. */

interface Shared {
  readonly skewMs: bigint;
  readonly latenessMs: bigint;
  /** Whose greatest timestamp judges an event: its partition's (default), or the one of all
   *  partitions. */
  readonly watermark?: 'partition' | 'global' | undefined;
  /** How far beyond its append time an event may move the greatest timestamp; undefined: as far as
   *  it says. */
  readonly maxFutureMs?: bigint | undefined;
}

export type OracleRules = Shared &
  (
    | { readonly window?: 'tumbling' | undefined; readonly sizeMs: bigint }
    | { readonly window: 'sliding'; readonly sizeMs: bigint; readonly slideMs: bigint }
    | { readonly window: 'session'; readonly gapMs: bigint }
  );

/** The arrival log: what the engine met, in the one order in which it met it. */
export type LogEntry =
  | {
      readonly kind: 'event';
      readonly partition: number;
      readonly accountId: bigint;
      readonly value: bigint;
      readonly eventTs: bigint;
      /** When the broker appended the record; undefined: it does not say. */
      readonly appendTs?: bigint | undefined;
    }
  /** A record whose value is no event. */
  | { readonly kind: 'broken'; readonly partition: number }
  /** The decision that the partition is idle before its next record. */
  | { readonly kind: 'idle'; readonly partition: number }
  /** The topic has one more partition, numbered after the others. */
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

/** Of one partition. consumed = accepted + droppedLate + invalid. */
export interface PartitionCounters {
  consumed: bigint;
  accepted: bigint;
  /** All that came too late, whatever the reason. */
  droppedLate: bigint;
  /** The part of them that its own partition would have accepted: the frontier went on while the
   *  partition was idle. */
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
