/** Properties that keep what the Kafka client holds within the engine's share of memory. */
import type { MemoryShares } from '../../../engine/durability/spill/budget.ts';

/** Least of a fetch: a batch of 1 MiB, which topics accept by default. */
const FETCH_BYTES_MIN = 1 << 20;
/** Bytes of framing by which librdkafka lets a response exceed a fetch. */
const FRAMING_BYTES = 512;

/** Half of the share is for the queue, half for the fetch in flight. This is a soft limit: each
 *  broker has a fetch of its own, and compressed batches grow when they are unpacked.
 *
 *  librdkafka refuses a fetch below the user's `message.max.bytes`, which clients share with
 *  producers, and one above `receive.message.max.bytes` less its framing.
 *  @param user properties of -broker-config and -broker-property, which override those returned
 *  @returns nothing without a budget */
export function fetchLimits(
  shares: Pick<MemoryShares, 'fetchBytes'> | undefined,
  user: Readonly<Record<string, string>>,
): Readonly<Record<string, number>> {
  if (shares === undefined) return {};
  const kilobytes = Math.floor(shares.fetchBytes / 2048);
  const least = Math.max(FETCH_BYTES_MIN, Number(user['message.max.bytes'] ?? 0) || 0);
  const received = Number(user['receive.message.max.bytes'] ?? Number.POSITIVE_INFINITY);
  const most = Number.isNaN(received) ? Number.POSITIVE_INFINITY : received - FRAMING_BYTES;
  return {
    'queued.max.messages.kbytes': kilobytes,
    'fetch.max.bytes': Math.min(most, Math.max(least, kilobytes * 1024)),
  };
}
