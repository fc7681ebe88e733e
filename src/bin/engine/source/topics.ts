/** Topics of `millrace engine`: the input, and topics beside it that a run creates. */
import { sleep } from '../../../core/clock.ts';
import type { SettingTable } from '../../../core/settings.ts';
import { engineError } from '../../../engine/errors.ts';
import type { BrokerAdmin } from '../../../io/kafka/port.ts';
import type { CommandContext } from '../../../shell/command.ts';
import { warnOfThinTopics } from '../../../shell/topics.ts';

type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: {
    readonly 'create-topics': boolean;
    readonly partitions: number;
    readonly 'replication-factor': number;
    readonly retention: number;
  };
};

/** Returns the number of partitions of a topic. Creates the topic if it is missing and
 *  -create-topics is on. */
async function partitionsOf(context: Context, admin: BrokerAdmin, topic: string): Promise<number> {
  const { settings } = context;
  const find = async () => (await admin.listTopics()).find((one) => one.topic === topic);
  let found = await find();
  if (found === undefined && settings['create-topics']) {
    const spec = {
      topic,
      partitions: settings.partitions,
      replicationFactor: settings['replication-factor'],
      config: { 'retention.ms': String(settings.retention) },
    };
    await admin.createTopics([spec]);
    context.log.info(spec, 'topic created');
    for (let tries = 0; found === undefined && tries < 50; tries++) {
      await sleep(context.clock, 100);
      found = await find();
    }
  }
  if (found === undefined) {
    throw (
      (await admin.refusalOf(topic)) ??
      engineError('topic_missing', `there is no topic ${topic}`, {
        next: 'create it, or leave -create-topics on',
      })
    );
  }
  await warnOfThinTopics(context.log, admin, [topic]);
  return found.partitions.length;
}

/** Creates missing topics and describes the input topic. Closes the admin client. */
export async function openTopics(
  context: Context,
  admin: BrokerAdmin,
  { topic, lateNames }: { readonly topic: string; readonly lateNames: readonly (string | undefined)[] },
): Promise<{ readonly partitionCount: number; readonly topicId: string | undefined }> {
  try {
    for (const name of lateNames) if (name !== undefined) await partitionsOf(context, admin, name);
    const partitionCount = await partitionsOf(context, admin, topic);
    return { partitionCount, topicId: await admin.topicId(topic) };
  } finally {
    await admin.close();
  }
}
