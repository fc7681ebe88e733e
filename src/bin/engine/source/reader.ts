/** Reader of a run: one consumer of the topic, from which each window gets its events. */
import { randomUUID } from 'node:crypto';
import { invariant } from '../../../core/errors.ts';
import type { MemoryShares } from '../../../engine/durability/spill/budget.ts';
import type { Job } from '../../../engine/job.ts';
import type { KeyDictionary } from '../../../engine/keys/dictionary.ts';
import { BrokerSource } from '../../../engine/source/events.ts';
import { BINARY256 } from '../../../engine/source/input/binary256.ts';
import { type InputDefinition, withAggregates } from '../../../engine/source/input/definition.ts';
import type { TopicInput } from '../../../engine/source/input/topic-input.ts';
import { SharedReader } from '../../../engine/source/shared/reader.ts';
import type { Stages } from '../../../engine/stages.ts';
import type { BrokerAdmin, BrokerDriver, BrokerEvent } from '../../../io/kafka/port.ts';
import { kernels } from '../../../shell/drivers.ts';
import { type EngineContext, neededBrokers } from '../actions/settings.ts';
import { openInput } from '../input.ts';
import type { WindowPlan } from '../windows/plan.ts';
import { fetchLimits } from './fetch-limits.ts';
import { groupName, leased } from './group.ts';
import { openEvents } from './lists.ts';
import { openTopics } from './topics.ts';

/** Returns a function that queries the topic over its own admin connection, opened on first use. */
function topicFinder(
  context: EngineContext,
  driver: BrokerDriver,
): () => Promise<{ readonly partitions: number; readonly id: string | undefined }> {
  const { topic } = context.settings;
  let opening: Promise<BrokerAdmin> | undefined;
  context.onClose(async () => (await opening?.catch(() => undefined))?.close());
  return async () => {
    opening ??= driver.admin({ brokers: neededBrokers(context), clientId: 'millrace-engine-partitions' });
    opening.catch(() => {
      opening = undefined;
    });
    const admin = await opening;
    const topics = await admin.listTopics();
    const found = topics.find((one) => one.topic === topic);
    return { partitions: found?.partitions.length ?? 0, id: await admin.topicId(topic) };
  };
}

async function openSource(
  context: EngineContext,
  driver: BrokerDriver,
  input: TopicInput,
  found: { readonly partitionCount: number; readonly topicId: string | undefined },
  stages: Pick<Stages, 'recordsReady' | 'enter'>,
  shares: MemoryShares | undefined,
) {
  const { settings, log } = context;
  const consumer = await driver.consumer({
    brokers: neededBrokers(context),
    clientId: 'millrace-engine',
    // Offsets are stored in the checkpoint; nothing is committed.
    group: `millrace-engine-${randomUUID()}`,
    autoOffsetReset: 'error',
    partitionEof: true,
    properties: {
      'enable.auto.commit': false,
      ...fetchLimits(shares, settings['broker-property'] ?? {}),
      // The client can assign a new partition only after its own metadata refresh.
      ...(settings['partition-interval'] === 0
        ? {}
        : { 'topic.metadata.refresh.interval.ms': Math.max(10, settings['partition-interval']) }),
    },
  });
  const parts = {
    ...{ consumer, clock: context.clock, stages, topic: settings.topic, ...found },
    findTopic: topicFinder(context, driver),
    rowCapacity: settings['batch-rows'],
    arenaBytes: settings['batch-bytes'],
    onEvent: (event: BrokerEvent) =>
      log.warn({ event: event.name, message: event.message, partition: event.partition }, 'broker'),
  };
  const timing = { stages, clock: context.clock };
  const source = openEvents(input, settings, timing, (own) => new BrokerSource({ ...parts, input: own }));
  context.onClose(async () => {
    await source.stop();
    await consumer.close();
  });
  return source;
}

/** The windows of a run intern keys themselves, each under ids of its own. */
const KEYS_OF_WINDOWS = { open: async (): Promise<void> => {}, intern: (): void => {} };

export const openAdmin = (context: EngineContext, driver: BrokerDriver): Promise<BrokerAdmin> =>
  driver.admin({ brokers: neededBrokers(context), clientId: 'millrace-engine-admin' });

/** Job of the reader: that of the window without a name, or of all windows, with the fields of all
 *  of their aggregates. */
function readJob(plans: readonly WindowPlan[]): Job {
  const [first] = plans;
  invariant(first !== undefined, 'a run has a window');
  const { name, job } = first;
  const aggregates = [...new Set(plans.flatMap((plan) => plan.job.input?.aggregate ?? []))];
  if (name === undefined || aggregates.length === 0) return job;
  return { ...job, input: withAggregates(job.input ?? BINARY256, { aggregates }) };
}

/** Opens the reader of all windows of a run.
 *  @param onInferred called with the definition that the first records completed */
export async function openReader(
  context: EngineContext,
  plans: readonly (WindowPlan & { readonly keys: KeyDictionary })[],
  driver: BrokerDriver,
  drain: AbortSignal,
  onInferred: (definition: InputDefinition) => void,
) {
  const { log, settings } = context;
  const [first] = plans;
  invariant(first !== undefined, 'a run has a window');
  const { name, shares, keys } = first;
  const brokers = neededBrokers(context);
  const group = groupName(context);
  const owner = name === undefined ? keys : KEYS_OF_WINDOWS;
  const decoding = kernels(context, context.settings.shards);
  const input = await openInput({ ...context, drain }, readJob(plans), decoding, owner, onInferred);
  const admin = await openAdmin(context, driver);
  const clusterId = await admin.clusterId();
  const lateNames = plans.map(({ names }) => names.late);
  const found = await openTopics(context, admin, { topic: settings.topic, lateNames });
  const { partitionCount, topicId } = found;
  log.info(
    { topic: settings.topic, id: topicId, partitions: partitionCount, cluster: clusterId },
    'topic found',
  );
  const stages: { of: SharedReader['stages'] } = { of: { recordsReady: () => {}, enter: () => {} } };
  const timed: SharedReader['stages'] = {
    recordsReady: (askedMs, readyMs) => stages.of.recordsReady(askedMs, readyMs),
    enter: (stage) => stages.of.enter(stage),
  };
  const topicSource = await openSource(context, driver, input, found, timed, shares);
  const { source, lease } =
    group === undefined
      ? { source: topicSource, lease: undefined }
      : leased(context, driver, { brokers, group, source: topicSource });
  log.info({ consumer: driver.name }, 'consumer open');
  const { clock } = context;
  const reader = name === undefined ? undefined : new SharedReader({ source, input, drain, clock });
  if (reader !== undefined) stages.of = reader.stages;
  return { brokers, clusterId, partitionCount, topicId, source, input, lease, reader, stages };
}
