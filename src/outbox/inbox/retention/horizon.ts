/** The redelivery horizon: how long after its first delivery a message can come again. A dedup key
 *  that is forgotten sooner lets such a late duplicate through as unseen. */
import { formatDuration } from '../../../core/quantity.ts';
import { outboxError } from '../../errors.ts';

export interface HorizonParts {
  /** A group that starts over reads everything that the topic still has. */
  readonly topicRetentionMs: number;
  /** What was published and not marked is published again when the relay is back. */
  readonly relayOutageMs: number;
  /** What was charged and whose offset was not committed is read again when the consumer is back.
   */
  readonly consumerOutageMs: number;
  /** Between the clocks of broker, relay and database. */
  readonly clockSkewMs: number;
}

export interface DedupTtl {
  readonly ttlMs: number;
  readonly horizonMs: number;
  /** Below zero only with -unsafe-ttl. */
  readonly marginMs: number;
  /** The sum, written out. */
  readonly arithmetic: string;
}

/** @param ttlMs undefined: the horizon itself
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
        next: `give -dedup-ttl=${formatDuration(horizonMs)} or more, or lower a part of the sum; -unsafe-ttl goes on all the same`,
        details: { ttlMs: ttl, horizonMs },
      },
    );
  }
  return { ttlMs: ttl, horizonMs, marginMs: ttl - horizonMs, arithmetic };
}
