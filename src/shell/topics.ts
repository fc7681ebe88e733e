/** Topics that a command makes where they are missing. */
import type { Logger } from '../core/log.ts';
import { warnOfThinTopic } from '../core/topics.ts';
import type { BrokerAdmin, TopicSpec } from '../io/kafka/port.ts';

/** Creates what is missing, and warns of an existing topic whose acknowledged records one broker
 *  can lose.
 *  @returns for each topic, whether it was created */
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
