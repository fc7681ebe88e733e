/** Redelivery horizon as measured now, in contrast to the planned one of horizon.ts. Each source of
 *  a redelivery reports its bound:
 *
 *    retention   topic retention now, which may have changed: all of the topic can be reread
 *    record      the oldest readable record, even past the retention (segments are deleted whole)
 *    group       the oldest record whose offset is not committed
 *    outbox      the oldest unmarked row, which the relay publishes again
 *
 *  All bounds are compared by the database's clock, and each bound is a point in time rather than
 *  an age. A clock that jumps forward therefore expires nothing that the log still has. If the
 *  clock of this process differs by more than the clock skew, one of the two is wrong. Then the
 *  horizon is unknown, because the floor could rise above messages that are still to come.
 */
import { formatDuration } from '../../../core/quantity.ts';
import { outboxError } from '../../errors.ts';
import type { HorizonParts } from './horizon.ts';

export interface TopicReading {
  /** Infinity: no record is ever deleted. */
  readonly retentionMs: number;
  /** Publish time of the oldest readable record, or the earlier creation time of its message, ms
   *  since the epoch; undefined: the topic is empty. */
  readonly oldestRecordMs: number | undefined;
  /** The same time for the oldest record that the group has not committed; undefined: there is
   *  none, or no group was given. */
  readonly oldestUncommittedMs: number | undefined;
}

/** Sources of the horizon. If one throws, the horizon is unknown and nothing expires. */
export interface HorizonSources {
  /** Time by the clock of the inbox's database, ms since the epoch. */
  databaseNowMs(): Promise<number>;
  /** Time by the clock of this process, ms since the epoch; detects a wrong database clock. */
  processNowMs(): number;
  topic(): Promise<TopicReading>;
  /** Returns created_at of the oldest unmarked row; undefined: there is none. Absent if that
   *  database is not reachable from here: then the planned relay outage covers it. */
  readonly outbox?: () => Promise<number | undefined>;
}

export interface HorizonReading extends TopicReading {
  readonly nowMs: number;
  readonly oldestUnmarkedMs: number | undefined;
}

export type HorizonBound = 'retention' | 'record' | 'group' | 'outbox';

export interface LiveHorizon {
  readonly nowMs: number;
  readonly horizonMs: number;
  /** The bound that reaches back furthest. */
  readonly bound: HorizonBound;
  /** TTL minus horizon, ms. If negative, keys are kept beyond their TTL, unless `unsafe`. */
  readonly marginMs: number;
  /** Keys of messages created before this time may expire. */
  readonly cutoffMs: number;
  /** Age of each bound that applies, ms. */
  readonly ages: ReadonlyMap<HorizonBound, number>;
}

/** Reads all sources.
 *  @throws clocks_disagree; errors of the sources */
export async function readHorizon(sources: HorizonSources, clockSkewMs: number): Promise<HorizonReading> {
  const topic = await sources.topic();
  const oldestUnmarkedMs = await sources.outbox?.();
  const nowMs = await sources.databaseNowMs();
  const aheadMs = nowMs - sources.processNowMs();
  if (Math.abs(aheadMs) > clockSkewMs) {
    const apart = formatDuration(Math.round(Math.abs(aheadMs)));
    throw outboxError(
      'clocks_disagree',
      `the database's clock is ${apart} ${aheadMs > 0 ? 'ahead of' : 'behind'} the clock of this process`,
      { next: `correct the wrong clock; ${formatDuration(clockSkewMs)} (-clock-skew) are tolerated` },
    );
  }
  return { ...topic, oldestUnmarkedMs, nowMs };
}

/** Computes the horizon and the cutoff of expiry.
 *  @param unsafe expires by the TTL alone */
export function liveHorizon(
  reading: HorizonReading,
  parts: Omit<HorizonParts, 'topicRetentionMs'>,
  ttlMs: number,
  unsafe: boolean,
): LiveHorizon {
  const { nowMs } = reading;
  const { relayOutageMs, consumerOutageMs, clockSkewMs } = parts;
  // A message may be created up to one relay outage before it is published.
  const beforePublished = relayOutageMs + clockSkewMs;
  const ages = new Map<HorizonBound, number>();
  ages.set('retention', reading.retentionMs + beforePublished + consumerOutageMs);
  if (reading.oldestRecordMs !== undefined)
    ages.set('record', nowMs - reading.oldestRecordMs + beforePublished);
  if (reading.oldestUncommittedMs !== undefined)
    ages.set('group', nowMs - reading.oldestUncommittedMs + beforePublished);
  if (reading.oldestUnmarkedMs !== undefined)
    ages.set('outbox', nowMs - reading.oldestUnmarkedMs + clockSkewMs);
  let bound: HorizonBound = 'retention';
  for (const [name, age] of ages) if (age > (ages.get(bound) as number)) bound = name;
  const horizonMs = ages.get(bound) as number;
  return {
    nowMs,
    horizonMs,
    bound,
    marginMs: ttlMs - horizonMs,
    cutoffMs: nowMs - (unsafe ? ttlMs : Math.max(ttlMs, horizonMs)),
    ages,
  };
}

/** Formats the ages, the highest first. */
export function horizonText(horizon: LiveHorizon): string {
  return [...horizon.ages]
    .sort(([, a], [, b]) => b - a)
    .map(([name, age]) => `${name} ${Number.isFinite(age) ? formatDuration(Math.max(0, age)) : 'for ever'}`)
    .join(', ');
}
