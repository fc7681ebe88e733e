/** Creates the missing topics of a command. */
import type { Logger } from '../core/log.ts';
import { warnOfThinTopic } from '../core/topics.ts';
import type { BrokerAdmin, TopicSpec } from '../io/kafka/port.ts';

/** Creates the missing topics. Warns about an existing topic whose acknowledged records can be lost
 *  with one broker.
 *  @returns for each topic, true if it was created */
export async function makeTopics(
  log: Logger,
  admin: BrokerAdmin,
  specs: readonly TopicSpec[],
): Promise<readonly boolean[]> {
  const created = await admin.createTopics(specs);
  await warnOfThinTopics(
    log,
    admin,
    specs.filter((_, i) => created[i] === false).map(({ topic }) => topic),
  );
  return created;
}

export async function warnOfThinTopics(
  log: Logger,
  admin: BrokerAdmin,
  topics: readonly string[],
): Promise<void> {
  for (const topic of topics) warnOfThinTopic(log, topic, await admin.describeTopic(topic));
}
