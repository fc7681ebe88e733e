/** Parts that `-redrive` and `-quarantine` share: the topics, the selection and the reader. */
import { coreError } from '../../../core/errors.ts';
import type { BrokerAdmin, BrokerDriver, BrokerOptions, TopicInfo } from '../../../io/kafka/port.ts';
import type { QuarantineFilter } from '../../../registry/quarantine/filter.ts';
import { progressTopicOf } from '../../../registry/quarantine/progress.ts';
import type { RedriveReason } from '../../../registry/quarantine/record.ts';
import type { ScanOptions } from '../../../registry/quarantine/scan.ts';
import { QUARANTINE_HEADER_BYTES_MAX, quarantineTopicOf } from '../../../serde/quarantine.ts';
import { brokerDriver } from '../../../shell/drivers.ts';
import { connectOptions, topicName } from '../../registry-clients/shared.ts';
import { parseTime } from '../../registry-clients/start.ts';
import { sourceTopic } from '../plan.ts';
import type { ConsumerContext, ConsumerSettings } from '../settings.ts';

/** @throws bad_value */
export function filterOf({ reason, partition, since, until }: ConsumerSettings): QuarantineFilter {
  const sinceMs = since === undefined ? undefined : parseTime('-since', since);
  const untilMs = until === undefined ? undefined : parseTime('-until', until);
  if (sinceMs !== undefined && untilMs !== undefined && untilMs <= sinceMs)
    throw coreError('bad_value', `-until=${until} is not after -since=${since}`, {
      next: 'give a later -until',
    });
  return { reasons: reason as readonly RedriveReason[] | undefined, partitions: partition, sinceMs, untilMs };
}

export interface QuarantineTopics {
  /** Source topic. */
  readonly topic: string;
  readonly quarantine: string;
  readonly progress: string;
}

/** @throws usage, bad_value */
export function topicsOf(settings: ConsumerSettings): QuarantineTopics {
  const topic = sourceTopic(settings);
  const quarantine = topicName('-quarantine-topic', settings['quarantine-topic'] ?? quarantineTopicOf(topic));
  if (quarantine === topic)
    throw coreError('bad_value', `-quarantine-topic=${quarantine} is the topic of the records`, {
      next: 'give -topic the source topic, and -quarantine-topic the topic of its quarantined records',
    });
  return { topic, quarantine, progress: topicName('-quarantine-topic', progressTopicOf(quarantine)) };
}

export interface OpenQuarantine {
  readonly driver: BrokerDriver;
  readonly base: BrokerOptions;
  readonly admin: BrokerAdmin;
  readonly scan: ScanOptions;
  /** Topics of the cluster, by name. */
  readonly topics: ReadonlyMap<string, TopicInfo>;
  /** Partitions of the quarantine topic. */
  readonly partitions: readonly number[];
}

/** Connects, and finds the quarantine topic.
 *  @throws usage where it does not exist, broker_forbidden, unreachable */
export async function openQuarantine(
  context: ConsumerContext,
  { topic, quarantine }: QuarantineTopics,
): Promise<OpenQuarantine> {
  const { settings, clock, log } = context;
  const driver = await brokerDriver(context);
  const base = { brokers: settings.brokers, clientId: 'millrace-redrive', ...connectOptions(context) };
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  const topics = new Map((await admin.listTopics()).map((info) => [info.topic, info]));
  const found = topics.get(quarantine);
  if (found === undefined) {
    throw (
      (await admin.refusalOf(quarantine)) ??
      coreError('usage', `topic ${quarantine} does not exist, so nothing of ${topic} is quarantined there`, {
        next: 'check -topic and -quarantine-topic with millrace topic list; a consumer group creates the quarantine topic when it starts',
      })
    );
  }
  const policy = (await admin.describeTopic(quarantine))?.config?.get('cleanup.policy') ?? '';
  if (policy.includes('compact'))
    log.warn(
      { topic: quarantine, policy },
      'the quarantine topic is compacted: it keeps only the last record of each key; set cleanup.policy=delete',
    );
  const scan: ScanOptions = {
    driver,
    broker: base,
    clock,
    log,
    batchRows: settings['batch-rows'],
    batchBytes: settings['batch-bytes'] + QUARANTINE_HEADER_BYTES_MAX,
  };
  return { driver, base, admin, scan, topics, partitions: found.partitions };
}
