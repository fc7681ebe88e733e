/** `-late-topic` of `millrace engine`: side output for copies of late events. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import type { Job } from '../../engine/job.ts';
import { KafkaLateTopic } from '../../engine/output/late/topic.ts';
import { SINK_TOPIC_NAME } from '../../engine/output/sink/kafka.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import type { CommandContext } from '../../shell/command.ts';

export const LATE_SETTINGS = {
  'late-topic': {
    type: 'string',
    help: 'topic for copies of late events, of the fixed layout also of invalid ones, with the reason, partition, offset and watermark as headers; a crash may duplicate copies',
  },
} as const satisfies SettingTable;

/** The copies of a batch are in one changelog record, whose size is bounded. */
const BATCH_BYTES_MAX = 128 * 1024 * 1024;

type Settings = SettingsOf<typeof LATE_SETTINGS> & { readonly sink: string; readonly 'batch-bytes': number };
type Context = Omit<CommandContext<SettingTable>, 'settings'> & { readonly settings: Settings };

/** Name of the late topic; undefined if the flag is absent. @throws bad_value, usage */
export function lateTopicName({ settings }: Context, topic: string): string | undefined {
  const name = settings['late-topic'];
  if (name === undefined) return undefined;
  const refused = (why: string, next: string): Error =>
    coreError('bad_value', `-late-topic=${name.slice(0, 260)} ${why}`, {
      next,
      details: { setting: 'late-topic' },
    });
  if (!SINK_TOPIC_NAME.test(name))
    throw refused(
      'is not the name of a topic',
      'use up to 249 letters, digits, dots, underscores and dashes',
    );
  if (name === topic) throw refused('is the topic that is read', 'give late events a topic of their own');
  if (settings.sink === `kafka:${name}`)
    throw refused('is the topic of the results', 'give late events a topic of their own');
  if (settings['batch-bytes'] > BATCH_BYTES_MAX) {
    throw coreError('usage', '-late-topic allows -batch-bytes of at most 128MiB', {
      next: 'give a smaller -batch-bytes',
      details: { setting: 'batch-bytes' },
    });
  }
  return name;
}

export function openLateTopic(
  context: Context,
  driver: BrokerDriver,
  { brokers, name, job }: { readonly brokers: string; readonly name: string; readonly job: Job },
): KafkaLateTopic {
  const topic = new KafkaLateTopic({
    ...{ driver, brokers, topic: name },
    ...{ sourceTopic: job.topic, latenessMs: job.latenessMs },
  });
  context.onClose(() => topic.close());
  return topic;
}
