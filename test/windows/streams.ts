/** Generates random arrival logs that hit edge cases often: timestamps at and next to window ends,
 *  at the limit of lateness, a gap apart, repeated, far behind, far ahead and out of range; values
 *  that overflow; broken records.
 *
 *  A timestamp is drawn as a position ("the third grid line, one ms before it") and becomes a
 *  number by the rules drawn with it, so that a failing stream shrinks in both. */
import fc from 'fast-check';
import type { LogEntry, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { drawFrom } from '../property/engine-kit.ts';

export type WindowKind = 'tumbling' | 'sliding' | 'session';

export interface Stream {
  readonly rules: OracleRules;
  /** Partitions at the start of the stream. */
  readonly partitions: number;
  readonly log: readonly LogEntry[];
}

export interface StreamOptions {
  readonly windows: readonly WindowKind[];
  readonly watermarks?: readonly ('partition' | 'global')[];
  readonly partitionsMax?: number;
  /** Includes idle partitions and partitions that are added. */
  readonly decisions?: boolean;
  /** Includes rules with a max-future, and records with an append time. */
  readonly maxFuture?: boolean;
  readonly entriesMax?: number;
}

const I64_MIN = -(1n << 63n);
const I64_MAX = (1n << 63n) - 1n;
const U64_MAX = (1n << 64n) - 1n;
const LIMIT = 1n << 52n;
/** Greatest size, slide, gap, skew and lateness, ms. */
const LENGTH_MAX = 25;

const accountIds = fc.oneof(
  { weight: 4, arbitrary: fc.bigInt({ min: 0n, max: 3n }) },
  { weight: 1, arbitrary: fc.constantFrom(0n, 1n << 32n, (1n << 63n) - 1n, 1n << 63n, U64_MAX) },
);

const values = fc.oneof(
  { weight: 3, arbitrary: fc.bigInt({ min: -10n, max: 10n }) },
  { weight: 1, arbitrary: fc.constantFrom(I64_MIN, I64_MAX, -(1n << 32n), 0xffff_ffffn, -1n) },
  { weight: 1, arbitrary: fc.bigInt({ min: I64_MIN, max: I64_MAX }) },
);

const near = fc.bigInt({ min: -1n, max: 1n });

/** Position of an event in time. */
const places = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({ at: fc.constant('free' as const), ts: fc.bigInt({ min: -30n, max: 30n }) }),
  },
  {
    weight: 8,
    arbitrary: fc.record({ at: fc.constant('grid' as const), line: fc.bigInt({ min: -3n, max: 3n }), near }),
  },
  { weight: 4, arbitrary: fc.record({ at: fc.constant('limit' as const), near }) },
  {
    weight: 3,
    arbitrary: fc.record({ at: fc.constant('length' as const), side: fc.constantFrom(1n, -1n), near }),
  },
  { weight: 2, arbitrary: fc.record({ at: fc.constant('again' as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ at: fc.constant('far' as const), by: fc.bigInt({ min: -2000n, max: 200n }) }),
  },
);

type Place = typeof places extends fc.Arbitrary<infer T> ? T : never;

/** Timestamps that are refused, and the last valid ones. They are rare, because every later event
 *  would be late. */
const poison = fc.constantFrom(I64_MIN, I64_MAX, LIMIT, -LIMIT - 1n, -LIMIT, LIMIT - 1n);

const anyPartition = fc.nat({ max: 59 });

const events = fc.record({
  kind: fc.constant('event' as const),
  partition: anyPartition,
  accountId: accountIds,
  value: values,
  place: places,
  appendDelay: fc.option(fc.bigInt({ min: -5n, max: 20n }), { freq: 8, nil: undefined }),
});

const entriesOf = (decisions: boolean) =>
  fc.oneof(
    { weight: 60, arbitrary: events },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('broken' as const), partition: anyPartition }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant('poison' as const),
        partition: anyPartition,
        accountId: accountIds,
        eventTs: poison,
      }),
    },
    ...(decisions
      ? [
          {
            weight: 5,
            arbitrary: fc.record({ kind: fc.constant('idle' as const), partition: anyPartition }),
          },
          { weight: 1, arbitrary: fc.record({ kind: fc.constant('added' as const) }) },
        ]
      : []),
  );

const length = (min: number) => fc.integer({ min, max: LENGTH_MAX }).map(BigInt);

function rulesFor(options: StreamOptions): fc.Arbitrary<OracleRules> {
  return fc
    .record({
      window: fc.constantFrom(...options.windows),
      watermark: fc.constantFrom(...(options.watermarks ?? (['partition'] as const))),
      size: length(1),
      slide: length(0),
      skewMs: length(0),
      latenessMs: length(0),
      maxFutureMs:
        options.maxFuture === true ? fc.option(length(0), { nil: undefined }) : fc.constant(undefined),
    })
    .map(({ window, size, slide, ...shared }): OracleRules => {
      if (window === 'session') return { ...shared, window, gapMs: size };
      if (window === 'sliding') return { ...shared, window, sizeMs: size, slideMs: 1n + (slide % size) };
      return { ...shared, window, sizeMs: size };
    });
}

/** Distance of the grid lines, ms: the slide or the size of the windows. */
const stepOf = (of: OracleRules): bigint =>
  of.window === 'session' ? of.gapMs : of.window === 'sliding' ? of.slideMs : of.sizeMs;
const lengthOf = (of: OracleRules): bigint => (of.window === 'session' ? of.gapMs : of.sizeMs);

/** Converts positions to timestamps, in the order of the log. */
class Placing {
  private readonly of: OracleRules;
  /** Greatest timestamp by partition, used only to aim at the limit of lateness. */
  private readonly seen = new Map<number, bigint>();
  private before = 0n;

  constructor(of: OracleRules) {
    this.of = of;
  }

  /** Timestamp of a position.
   *  @param now timestamp that the stream as a whole has reached */
  place(partition: number, place: Place, now: bigint): bigint {
    const ts = this.timestamp(partition, place, now);
    this.before = ts;
    const seen = this.seen.get(partition);
    if (seen === undefined || ts > seen) this.seen.set(partition, ts);
    return ts;
  }

  private timestamp(partition: number, place: Place, now: bigint): bigint {
    switch (place.at) {
      case 'free':
        return now + place.ts;
      case 'grid': {
        const step = stepOf(this.of);
        return (now / step + place.line) * step + place.near;
      }
      case 'limit':
        return (this.seen.get(partition) ?? now) - this.of.skewMs - this.of.latenessMs + place.near;
      case 'length':
        return this.before + place.side * lengthOf(this.of) + place.near;
      case 'again':
        return this.before;
      case 'far':
        return now + place.by;
    }
  }
}

export function streams(options: StreamOptions): fc.Arbitrary<Stream> {
  return fc
    .record({
      rules: rulesFor(options),
      partitions: fc.integer({ min: 1, max: options.partitionsMax ?? 3 }),
      /** Event time advances by this much per entry, so that windows fire before the end. */
      drift: fc.bigInt({ min: 0n, max: 3n }),
      base: fc.oneof(
        { weight: 8, arbitrary: fc.constant(0n) },
        { weight: 1, arbitrary: fc.constantFrom(1_750_000_000_000n, LIMIT - 60n, -LIMIT + 60n) },
      ),
      entries: fc.array(entriesOf(options.decisions === true), {
        maxLength: options.entriesMax ?? 60,
        size: 'max',
      }),
    })
    .map(({ rules, partitions, drift, base, entries }) => {
      const placing = new Placing(rules);
      const log: LogEntry[] = [];
      let count = partitions;
      for (const [i, entry] of entries.entries()) {
        const now = base + drift * BigInt(i);
        if (entry.kind === 'added') {
          count++;
          log.push(entry);
          continue;
        }
        const partition = entry.partition % count;
        if (entry.kind === 'idle' || entry.kind === 'broken') log.push({ kind: entry.kind, partition });
        else if (entry.kind === 'poison')
          log.push({
            kind: 'event',
            partition,
            accountId: entry.accountId,
            value: 1n,
            eventTs: entry.eventTs,
          });
        else {
          const { accountId, value, place, appendDelay } = entry;
          const eventTs = placing.place(partition, place, now);
          // Append times follow the arrival, not the event time.
          const appendTs =
            options.maxFuture !== true || appendDelay === undefined ? undefined : now + appendDelay;
          log.push({ kind: 'event', partition, accountId, value, eventTs, appendTs });
        }
      }
      return { rules, partitions, log };
    });
}

/** One long stream with one event per millisecond. Some events are late or broken, and accounts
 *  recur after a while. */
export function longStream(rules: OracleRules, count: number): Stream {
  const draw = drawFrom(count);
  const partitions = 3;
  const log = Array.from({ length: count }, (_, i): LogEntry => {
    const partition = draw(partitions);
    if (draw(500) === 0) return { kind: 'broken', partition };
    const delay = draw(50) === 0 ? draw(1000) : draw(100);
    const value = BigInt(draw(2001) - 1000);
    return { kind: 'event', partition, accountId: BigInt(draw(300)), value, eventTs: BigInt(i - delay) };
  });
  return { rules, partitions, log };
}

/** Interleaves the partitions of a log in another order and keeps the order within each partition.
 *  @param turns index, among the partitions, of the next record's partition */
export function interleaved(log: readonly LogEntry[], turns: readonly number[]): LogEntry[] {
  const queues = new Map<number, LogEntry[]>();
  for (const entry of log) {
    if (entry.kind === 'added' || entry.kind === 'idle')
      throw new Error('decisions belong to one order of the log');
    const queue = queues.get(entry.partition);
    if (queue === undefined) queues.set(entry.partition, [entry]);
    else queue.push(entry);
  }
  const order: LogEntry[] = [];
  const left = [...queues.values()];
  for (const turn of turns) {
    const queue = left[turn % Math.max(1, left.length)];
    order.push(...(queue?.splice(0, 1) ?? []));
  }
  for (const queue of left) order.push(...queue);
  return order;
}

export const turnLists = fc.array(fc.nat({ max: 59 }), { maxLength: 60 });
