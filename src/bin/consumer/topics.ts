/** Topics of `millrace consumer`: created if missing, with their limits; offsets to start from and
 *  to end at. */
import { coreError } from '../../core/errors.ts';
import {
  type BatchConsumer,
  type BrokerAdmin,
  type BrokerDriver,
  type BrokerOptions,
  NO_OFFSET,
  type TopicPartition,
  type TopicPartitionOffset,
} from '../../io/kafka/port.ts';
import { quarantineConfig } from '../../serde/quarantine.ts';
import { brokerDriver } from '../../shell/drivers.ts';
import { createTopics, type WantedTopic } from '../registry-clients/shared.ts';
import { type StartPosition, startIn } from '../registry-clients/start.ts';
import { brokerBase } from './broker.ts';
import type { ConsumerPlan } from './plan.ts';
import type { ConsumerContext } from './settings.ts';

/** Largest `max.message.bytes` of a topic: a signed 32-bit integer. */
const TOPIC_RECORD_BYTES_MAX = 2_147_483_647;
/** Bytes of JSON per byte of a record: a control character takes six. */
const JSON_GROWTH = 6;

/** @param recordBytesMax largest record that is read */
const quarantineSpec = (topic: string, recordBytesMax: number): WantedTopic => ({
  topic,
  partitions: 1,
  config: quarantineConfig(recordBytesMax),
});

export function outputSpec(topic: string, recordBytesMax: number): WantedTopic {
  const bytes = Math.min(TOPIC_RECORD_BYTES_MAX, recordBytesMax * JSON_GROWTH);
  return { topic, config: { 'max.message.bytes': String(bytes) } };
}

/** Creates missing topics and returns the partitions of the input topic. Without a group the input
 *  topic is not created: it is read, not prepared for a producer.
 *  @throws unreachable, broker_forbidden */
async function openTopics(
  context: ConsumerContext,
  admin: BrokerAdmin,
  { topic, group, output, quarantineTopic }: ConsumerPlan,
): Promise<readonly TopicPartition[]> {
  const recordBytesMax = context.settings['batch-bytes'];
  await createTopics(context, admin, [
    ...(group === undefined ? [] : [{ topic }]),
    ...(output?.kind === 'kafka' ? [outputSpec(output.topic, recordBytesMax)] : []),
    ...(quarantineTopic === undefined ? [] : [quarantineSpec(quarantineTopic, recordBytesMax)]),
  ]);
  const info = (await admin.listTopics()).find((one) => one.topic === topic);
  if (info === undefined) {
    throw (
      (await admin.refusalOf(topic)) ??
      coreError('unreachable', `topic ${topic} does not exist`, {
        next:
          group === undefined
            ? 'check its name with millrace topic list'
            : 'create it, or leave -create-topics on',
      })
    );
  }
  return info.partitions.map((partition) => ({ topic, partition }));
}

/** Offsets of a partition: those it holds, and where the run starts. */
export interface PartitionRange extends TopicPartition {
  readonly low: bigint;
  readonly high: bigint;
  readonly from: bigint;
}

/** Resolves `-start` in each partition. @throws timeout, broker_unavailable */
async function rangesOf(
  admin: BrokerAdmin,
  probe: BatchConsumer,
  partitions: readonly TopicPartition[],
  start: StartPosition,
  timeoutMs: number,
): Promise<readonly PartitionRange[]> {
  const times = start.kind === 'timestamp' ? await admin.offsetsForTime(partitions, start.ms) : ([] as const);
  return Promise.all(
    partitions.map(async (at) => {
      const { low, high } = await probe.watermarkOffsets(at, timeoutMs);
      const time = times.find(({ partition }) => partition === at.partition)?.offset;
      return { ...at, low, high, from: startIn(start, { low, high, time }) };
    }),
  );
}

/** Offsets at which each partition starts, for `-start`, `-exit-at-end` and reading without a
 *  group; topics are created if they are missing. @throws unreachable, usage */
export async function openRanges(
  context: ConsumerContext,
  plan: ConsumerPlan,
): Promise<readonly PartitionRange[]> {
  const driver = await brokerDriver(context);
  const base = brokerBase(context);
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  const partitions = await openTopics(context, admin, plan);
  const probe = await driver.consumer({ ...base, clientId: 'millrace-consumer-ends' });
  try {
    const ranges = await rangesOf(admin, probe, partitions, plan.start, context.settings['connect-timeout']);
    if (plan.group !== undefined && plan.start.kind !== 'earliest')
      await seedGroup(driver, { ...base, group: plan.group }, ranges);
    return ranges;
  } finally {
    await probe.close();
  }
}

/** Commits the start of each partition for which the group has no offset. The group must have no
 *  members. @throws usage where the group has members */
async function seedGroup(
  driver: BrokerDriver,
  options: BrokerOptions & { readonly group: string },
  ranges: readonly PartitionRange[],
): Promise<void> {
  const consumer = await driver.consumer({ ...options, clientId: 'millrace-consumer-start' });
  try {
    const held = await consumer.committed(ranges.map(({ topic, partition }) => ({ topic, partition })));
    const known = new Set(
      held.filter(({ offset }) => offset !== NO_OFFSET).map(({ partition }) => partition),
    );
    const fresh: TopicPartitionOffset[] = ranges
      .filter(({ partition }) => !known.has(partition))
      .map(({ topic, partition, from }) => ({ topic, partition, offset: from }));
    if (fresh.length > 0) await consumer.commit(fresh);
  } catch (cause) {
    const { code, message } = cause as { readonly code?: string; readonly message: string };
    if (code !== 'group_fenced') throw cause;
    throw coreError('usage', `-start cannot be set for the group ${options.group}: ${message}`, {
      next: 'leave -start out, stop the other members first, or give another -group',
      cause,
    });
  } finally {
    await consumer.close();
  }
}
