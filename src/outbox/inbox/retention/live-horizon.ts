/** The redelivery horizon as it is now, rather than as it was planned: what may still be delivered
 *  again, asked of whoever would deliver it.
 *
 *    retention   the broker deletes later than it was told at the start: all of the topic can be read again
 *    record      the oldest record that can be read, whatever the retention says (segments are deleted whole)
 *    group       the oldest record whose offset is not committed
 *    outbox      the oldest row that is not marked: it is published again when its relay is back
 *
 *  Everything is compared by the database's clock, and each bound is a point in time rather than an
 *  age, so a clock that jumps forward forgets nothing that the log still has. Where the clock of
 *  this process says something else by more than the clock skew, one of the two is wrong: then the
 *  horizon is not known, or a floor would rise above what is still to come.
 */
import { formatDuration } from '../../../core/quantity.ts';
import { outboxError } from '../../errors.ts';
import type { HorizonParts } from './horizon.ts';

export interface TopicReading {
  /** Infinity: nothing is ever deleted. */
  readonly retentionMs: number;
  /** When the oldest readable record was published or its message made, ms since the epoch;
   *  undefined: the topic is empty. */
  readonly oldestRecordMs: number | undefined;
  /** Of the oldest record that the group has not committed; undefined: none, or no group was asked
   *  for. */
  readonly oldestUncommittedMs: number | undefined;
}

/** Who is asked. What throws cannot be asked: then nothing expires. */
export interface HorizonSources {
  /** ms since the epoch by the clock of the inbox's database. */
  databaseNowMs(): Promise<number>;
  /** ms since the epoch by the clock of this process: a second witness. */
  processNowMs(): number;
  topic(): Promise<TopicReading>;
  /** created_at of the oldest row without a mark; undefined: there is none. Left out where that
   *  database cannot be asked: the planned relay outage stands for it. */
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
  /** Which of them reaches back furthest. */
  readonly bound: HorizonBound;
  /** TTL less horizon; below zero, keys are kept beyond their TTL unless that is overridden. */
  readonly marginMs: number;
  /** Keys of messages made before this may be forgotten. */
  readonly cutoffMs: number;
  /** How far each reaches back, ms; only those that apply. */
  readonly ages: ReadonlyMap<HorizonBound, number>;
}

/** @throws clocks_disagree, and what the sources throw */
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
      { next: `set the wrong one; up to ${formatDuration(clockSkewMs)} (-clock-skew) are allowed for` },
    );
  }
  return { ...topic, oldestUnmarkedMs, nowMs };
}

/** @param unsafe forget by the TTL alone */
export function liveHorizon(
  reading: HorizonReading,
  parts: Omit<HorizonParts, 'topicRetentionMs'>,
  ttlMs: number,
  unsafe: boolean,
): LiveHorizon {
  const { nowMs } = reading;
  const { relayOutageMs, consumerOutageMs, clockSkewMs } = parts;
  // A record's message was made up to a relay outage before it was published.
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

/** The ages, written out, the furthest first. */
export function horizonText(horizon: LiveHorizon): string {
  return [...horizon.ages]
    .sort(([, a], [, b]) => b - a)
    .map(([name, age]) => `${name} ${Number.isFinite(age) ? formatDuration(Math.max(0, age)) : 'for ever'}`)
    .join(', ');
}
