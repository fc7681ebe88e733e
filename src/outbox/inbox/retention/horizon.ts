/** Redelivery horizon: the longest time between the first and the last delivery of a message. If a
 *  dedup key expires sooner, a late duplicate counts as unseen. */
import { formatDuration } from '../../../core/quantity.ts';
import { outboxError } from '../../errors.ts';

export interface HorizonParts {
  /** A group that is reset reads every record that the topic still has. */
  readonly topicRetentionMs: number;
  /** A row that was published and not marked is published again after the relay's outage. */
  readonly relayOutageMs: number;
  /** A record that was charged but not committed is read again after the consumer's outage. */
  readonly consumerOutageMs: number;
  /** Largest difference between the clocks of broker, relay and database. */
  readonly clockSkewMs: number;
}

export interface DedupTtl {
  readonly ttlMs: number;
  readonly horizonMs: number;
  /** Negative only with -unsafe-ttl. */
  readonly marginMs: number;
  /** The sum as text. */
  readonly arithmetic: string;
}

/** Compares a dedup TTL with the redelivery horizon.
 *  @param ttlMs default: the horizon
 *  @throws ttl_below_horizon unless `unsafe` */
export function checkTtl(ttlMs: number | undefined, parts: HorizonParts, unsafe: boolean): DedupTtl {
  const horizonMs = parts.topicRetentionMs + parts.relayOutageMs + parts.consumerOutageMs + parts.clockSkewMs;
  const arithmetic = [
    `${formatDuration(parts.topicRetentionMs)} topic retention`,
    `${formatDuration(parts.relayOutageMs)} relay outage`,
    `${formatDuration(parts.consumerOutageMs)} consumer outage`,
    `${formatDuration(parts.clockSkewMs)} clock skew = ${formatDuration(horizonMs)}`,
  ].join(' + ');
  const ttl = ttlMs ?? horizonMs;
  if (ttl < horizonMs && !unsafe) {
    throw outboxError(
      'ttl_below_horizon',
      `-dedup-ttl=${formatDuration(ttl)} is shorter than the redelivery horizon: ${arithmetic}`,
      {
        next: `give -dedup-ttl=${formatDuration(horizonMs)} or more, or lower a part of the sum; -unsafe-ttl accepts the risk`,
        details: { ttlMs: ttl, horizonMs },
      },
    );
  }
  return { ttlMs: ttl, horizonMs, marginMs: ttl - horizonMs, arithmetic };
}
