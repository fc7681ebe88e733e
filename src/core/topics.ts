/** Durability of topics: one rule for every topic that is created, and a warning about an existing one that breaks it. */
import type { Logger } from './log.ts';

/** Replicas from which on two must have a record before it is acknowledged. */
const REPLICAS_MIN = 3;
const IN_SYNC_MIN = 2;
const IN_SYNC = 'min.insync.replicas';

/** Configuration of a new topic with so many replicas; what is given wins. With one replica in sync an acknowledged record is
 *  lost with one broker; with as many as there are, one broker that restarts stops all writes. */
export function newTopicConfig(
  replicas: number,
  given: Readonly<Record<string, string>> = {},
): Record<string, string> {
  return { ...(replicas >= REPLICAS_MIN ? { [IN_SYNC]: String(IN_SYNC_MIN) } : {}), ...given };
}

/** The facts of a topic that decide; every TopicDescription fits. */
export interface TopicReplicas {
  readonly replicas: number;
  /** Undefined where it cannot be asked; then there is no warning. */
  readonly config: ReadonlyMap<string, string> | undefined;
}

/** @param facts undefined where the topic does not exist */
export function warnOfThinTopic(log: Logger, topic: string, facts: TopicReplicas | undefined): void {
  const inSync = Number(facts?.config?.get(IN_SYNC) ?? Number.NaN);
  if (facts === undefined || facts.replicas < REPLICAS_MIN || !(inSync < IN_SYNC_MIN)) return;
  log.warn(
    { topic, replicas: facts.replicas, [IN_SYNC]: inSync },
    `acknowledged records of this topic can be lost with one broker; set ${IN_SYNC}=${IN_SYNC_MIN} on it`,
  );
}
