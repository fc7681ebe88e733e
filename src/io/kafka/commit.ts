/** Offset commits during a rebalance. A broker handles the requests of a connection in order, and
 *  all requests of a member to its group share one connection. After a member has rejoined and
 *  while others have not, its commit waits behind that request, at worst until its own next
 *  consume. A new generation is also known to the broker before the client. So a commit waits for a
 *  bounded time and then returns `not_now`. */
import { ERR, errorOfEvent } from './errors.ts';
import type { BrokerEvent, CommitOutcome, TopicPartition } from './port.ts';

const ILLEGAL_GENERATION = 22;
const REBALANCE_IN_PROGRESS = 27;
const TRANSIENT: ReadonlySet<number> = new Set([ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, ERR.TIMED_OUT]);
const RETRY_MS = 25;

/** Time that a member waits: the rest of the group waits for its next consume. */
const MEMBER_ANSWER_MS = 1000;
const ANSWER_MS = 30_000;

/** Timeout of a request to the group. */
export const groupAnswerMs = (isMember: boolean): number => (isMember ? MEMBER_ANSWER_MS : ANSWER_MS);

/** Commits; a member retries transient refusals within its timeout while the partitions remain its
 *  own. @param once sends one commit with a timeout
 *  @throws group_fenced, broker_unavailable, broker_refused, timeout */
export async function commitToGroup(
  isMember: boolean,
  once: (timeoutMs: number) => Promise<BrokerEvent | undefined>,
  partitions: readonly TopicPartition[],
  isOwn: (at: TopicPartition) => boolean,
): Promise<CommitOutcome> {
  const waitMs = groupAnswerMs(isMember);
  const endMs = performance.now() + waitMs;
  for (let leftMs = waitMs; leftMs > 0; leftMs = endMs - performance.now()) {
    const event = await once(Math.ceil(leftMs));
    if (event === undefined) return 'committed';
    if (!isMember || !TRANSIENT.has(event.code) || !partitions.every(isOwn))
      throw errorOfEvent('commit', event);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  return 'not_now';
}
