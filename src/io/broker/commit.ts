/** Commits that meet a rebalance on its way through: the group's generation is new at the broker a moment before the
 *  client hears of it, and a cooperative member keeps its partitions all the while. */
import { errorOfEvent } from './errors.ts';
import type { BrokerEvent, TopicPartition } from './port.ts';

const ILLEGAL_GENERATION = 22;
const REBALANCE_IN_PROGRESS = 27;
const RETRY_MS = 25;
const RETRY_FOR_MS = 10_000;

/** Tries again while the partitions stay ours. @throws group_fenced, broker_unavailable, broker_refused, timeout */
export async function commitThroughRebalance(
  once: () => Promise<BrokerEvent | undefined>,
  partitions: readonly TopicPartition[],
  ours: (at: TopicPartition) => boolean,
): Promise<void> {
  const deadline = performance.now() + RETRY_FOR_MS;
  for (;;) {
    const event = await once();
    if (event === undefined) return;
    const passing = event.code === ILLEGAL_GENERATION || event.code === REBALANCE_IN_PROGRESS;
    if (!passing || !partitions.every(ours) || performance.now() > deadline)
      throw errorOfEvent('commit', event);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
