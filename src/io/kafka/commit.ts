/** Commits that meet a rebalance on its way through. A broker takes one request of a connection after the other, and what a member
 *  asks of its group shares one: while it has joined again and others have not, a commit waits behind that, at worst until this
 *  member reads again. And for a moment the group's generation is new at the broker and old at the client. So who commits waits
 *  for a bounded time, and is then told to go on. */
import { ERR, errorOfEvent } from './errors.ts';
import type { BrokerEvent, CommitOutcome, TopicPartition } from './port.ts';

const ILLEGAL_GENERATION = 22;
const REBALANCE_IN_PROGRESS = 27;
const PASSING: ReadonlySet<number> = new Set([ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, ERR.TIMED_OUT]);
const RETRY_MS = 25;

/** Others of the group wait for the next read of a member that waits here. */
const MEMBER_ANSWER_MS = 1000;
const ANSWER_MS = 30_000;

/** How long an answer of the group is waited for. */
export const groupAnswerMs = (isMember: boolean): number => (isMember ? MEMBER_ANSWER_MS : ANSWER_MS);

/** A member tries again within its time while the partitions stay its own. @param once gives up after its time
 *  @throws group_fenced, broker_unavailable, broker_refused, timeout */
export async function commitToGroup(
  isMember: boolean,
  once: (timeoutMs: number) => Promise<BrokerEvent | undefined>,
  partitions: readonly TopicPartition[],
  ours: (at: TopicPartition) => boolean,
): Promise<CommitOutcome> {
  const waitMs = groupAnswerMs(isMember);
  const endMs = performance.now() + waitMs;
  for (let leftMs = waitMs; leftMs > 0; leftMs = endMs - performance.now()) {
    const event = await once(Math.ceil(leftMs));
    if (event === undefined) return 'committed';
    if (!isMember || !PASSING.has(event.code) || !partitions.every(ours)) throw errorOfEvent('commit', event);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
  return 'not_now';
}
