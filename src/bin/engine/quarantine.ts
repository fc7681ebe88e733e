/** `-quarantine` of `millrace engine`: where invalid records go. */
import { coreError } from '../../core/errors.ts';
import type { SettingsOf, SettingTable } from '../../core/settings.ts';
import { engineError } from '../../engine/errors.ts';
import { KafkaQuarantine } from '../../engine/output/quarantine/topic.ts';
import { SINK_TOPIC_NAME } from '../../engine/output/sink/kafka.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import { quarantineConfig, quarantineTopicOf } from '../../serde/quarantine.ts';
import type { CommandContext } from '../../shell/command.ts';
import { makeTopics } from '../../shell/topics.ts';

export const QUARANTINE_SETTINGS = {
  quarantine: {
    type: 'string',
    excludes: ['format=binary256'],
    help: 'topic of the records that are no event, whole and with the reason, as millrace consumer -quarantine lists them and -redrive replays them; off: they are only counted (default: TOPIC.quarantine, created with its first record; records of the fixed layout are only counted)',
  },
} as const satisfies SettingTable;

/** The copies of a batch are in one changelog record, whose size is bounded. */
const BATCH_BYTES_MAX = 128 * 1024 * 1024;
const OFF = 'off';

/** Settings of other tables that this module reads. */
interface OtherSettings {
  readonly topic: string;
  readonly format: string | undefined;
  readonly sink: string;
  readonly 'late-topic': string | undefined;
  readonly 'batch-bytes': number;
  readonly 'create-topics': boolean;
  readonly 'replication-factor': number;
}
type Context = Omit<CommandContext<SettingTable>, 'settings'> & {
  readonly settings: SettingsOf<typeof QUARANTINE_SETTINGS> & OtherSettings;
};

/** Name of the quarantine topic; undefined: invalid records are only counted. @throws bad_value,
 *  usage */
export function quarantineName({ settings }: Pick<Context, 'settings'>): string | undefined {
  const { quarantine: given, topic, format } = settings;
  if (given === OFF || format === 'binary256') return undefined;
  const name = given ?? quarantineTopicOf(topic);
  const refused = (why: string, next: string): Error =>
    coreError('bad_value', `-quarantine=${name.slice(0, 260)} ${why}`, {
      next,
      details: { setting: given === undefined ? 'topic' : 'quarantine' },
    });
  if (!SINK_TOPIC_NAME.test(name))
    throw refused(
      'is not the name of a topic',
      'use up to 249 letters, digits, dots, underscores and dashes, or give -quarantine=off',
    );
  const own = 'give invalid records a topic of their own, or -quarantine=off';
  if (name === topic) throw refused('is the topic that is read', own);
  if (name === settings['late-topic']) throw refused('is the topic of late events', own);
  if (settings.sink === `kafka:${name}`) throw refused('is the topic of the results', own);
  if (settings['batch-bytes'] > BATCH_BYTES_MAX) {
    throw coreError('usage', 'a quarantine allows -batch-bytes of at most 128MiB', {
      next: 'give a smaller -batch-bytes, or -quarantine=off',
      details: { setting: 'batch-bytes' },
    });
  }
  return name;
}

/** Opens the quarantine. The topic is created before its first record: most topics have no invalid
 *  record, and a topic of the fixed layout never needs one. */
export function openQuarantine(
  context: Context,
  driver: BrokerDriver,
  { brokers, name }: { readonly brokers: string; readonly name: string },
): KafkaQuarantine {
  const { settings, log } = context;
  const prepare = async (): Promise<void> => {
    const admin = await driver.admin({ brokers, clientId: 'millrace-engine-quarantine' });
    try {
      if ((await admin.describeTopic(name)) !== undefined) return;
      if (!settings['create-topics'])
        throw engineError('topic_missing', `there is no topic ${name} for invalid records`, {
          next: 'create it, leave -create-topics on, or give -quarantine=off',
        });
      const config = quarantineConfig(settings['batch-bytes']);
      const replicationFactor = settings['replication-factor'];
      await makeTopics(log, admin, [{ topic: name, partitions: 1, replicationFactor, config }]);
    } finally {
      await admin.close();
    }
  };
  const quarantine = new KafkaQuarantine({
    driver,
    brokers,
    topic: name,
    sourceTopic: settings.topic,
    prepare,
  });
  context.onClose(() => quarantine.close());
  return quarantine;
}
