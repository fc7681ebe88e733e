/** Durability rule for every topic that Millrace creates, and a warning about an existing topic
 *  that breaks the rule. */
import type { Logger } from './log.ts';

/** Replication factor from which two replicas must have a record before it is acknowledged. */
const REPLICAS_MIN = 3;
const IN_SYNC_MIN = 2;
const IN_SYNC = 'min.insync.replicas';

/** Returns the configuration of a new topic; entries of `given` take precedence. With one required
 *  in-sync replica, losing one broker can lose an acknowledged record. With all replicas required,
 *  one restarting broker stops all writes. */
export function newTopicConfig(
  replicas: number,
  given: Readonly<Record<string, string>> = {},
): Record<string, string> {
  return { ...(replicas >= REPLICAS_MIN ? { [IN_SYNC]: String(IN_SYNC_MIN) } : {}), ...given };
}

/** Properties of a topic that determine its durability; every TopicDescription implements this. */
export interface TopicReplicas {
  readonly replicas: number;
  /** Undefined when the configuration cannot be read; then there is no warning. */
  readonly config: ReadonlyMap<string, string> | undefined;
}

/** Warns about a topic that can lose acknowledged records with one broker.
 *  @param facts undefined if the topic does not exist
 *  @param brokers number of brokers in the cluster; absent: the number of replicas is not judged */
export function warnOfThinTopic(
  log: Logger,
  topic: string,
  facts: TopicReplicas | undefined,
  brokers = 1,
): void {
  const wanted = Math.min(REPLICAS_MIN, brokers);
  // A topic that was just created may have no partitions yet.
  if (facts !== undefined && facts.replicas > 0 && facts.replicas < wanted) {
    log.warn(
      { topic, replicas: facts.replicas, brokers },
      `acknowledged records of this topic can be lost with one broker; raise its replicas to ${wanted} with kafka-reassign-partitions`,
    );
  }
  const inSync = Number(facts?.config?.get(IN_SYNC) ?? Number.NaN);
  if (facts === undefined || facts.replicas < REPLICAS_MIN || !(inSync < IN_SYNC_MIN)) return;
  log.warn(
    { topic, replicas: facts.replicas, [IN_SYNC]: inSync },
    `acknowledged records of this topic can be lost with one broker; set ${IN_SYNC}=${IN_SYNC_MIN} on it`,
  );
}
