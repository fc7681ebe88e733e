/** The end of a topic, as its brokers know it. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { until } from '../wait.ts';

/** Settles when no broker of the stack has a log of the topic any more. A deletion is decided before it has reached the logs: until
 *  then they take and acknowledge records, which go with them. */
export const topicGone = (folder: string, topic: string): Promise<true> =>
  until('the end of the logs of a deleted topic', async () => {
    const logs = readdirSync(folder)
      .filter((name) => /^kafka-\d+$/.test(name))
      .flatMap((name) => readdirSync(join(folder, name)))
      .filter((name) => name.startsWith(`${topic}-`) && /^\d+$/.test(name.slice(topic.length + 1)));
    return logs.length === 0 ? true : undefined;
  });
