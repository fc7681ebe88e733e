/** Reads what a topic can still deliver from the broker: its retention and the age of the first
 *  record of each partition. */
import { RecordBatch } from '../../../core/layout/record-batch.ts';
import {
  type BatchConsumer,
  type BrokerAdmin,
  type BrokerDriver,
  NO_OFFSET,
} from '../../../io/kafka/port.ts';
import { outboxError } from '../../errors.ts';
import { canonicalUuid } from '../../ids.ts';
import { isUuidV7, leading48 } from '../names.ts';
import type { TopicReading } from './live-horizon.ts';

export interface TopicAgesOptions {
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly topic: string;
  /** Group whose committed offsets count; undefined: none. */
  readonly group: string | undefined;
  /** Timeout of each broker request. */
  readonly timeoutMs: number;
}

const ARENA_BYTES = 256 * 1024;
const ARENA_BYTES_MAX = 256 * 1024 * 1024;
/** Fetch sizes for reading a single record. */
const FETCH = { 'fetch.message.max.bytes': 65_536, 'queued.min.messages': 1 };

/** Reads the ages of a topic's records.
 *  @throws topic_missing; horizon_unknown if the broker does not report them; errors of the driver
 */
export async function readTopicAges(options: TopicAgesOptions): Promise<TopicReading> {
  const { driver, brokers, topic, group, timeoutMs } = options;
  const admin = await driver.admin({ brokers, clientId: 'millrace-inbox-horizon' });
  let partitions: readonly number[];
  let retentionMs: number;
  try {
    partitions = await partitionsOf(admin, topic);
    retentionMs = await retentionOf(admin, topic);
  } finally {
    await admin.close();
  }
  const probe = await driver.consumer({
    brokers,
    clientId: 'millrace-inbox-horizon',
    isolation: 'uncommitted',
    partitionEof: true,
    properties: FETCH,
    ...(group === undefined ? {} : { group }),
  });
  try {
    const committed = new Map<number, bigint>();
    if (group !== undefined) {
      for (const at of await probe.committed(partitions.map((partition) => ({ topic, partition }))))
        committed.set(at.partition, at.offset);
    }
    let oldestRecordMs: number | undefined;
    let oldestUncommittedMs: number | undefined;
    for (const partition of partitions) {
      const { low, high } = await probe.watermarkOffsets({ topic, partition }, timeoutMs);
      if (low >= high) continue;
      const first = await timeAt(probe, topic, partition, low, timeoutMs);
      oldestRecordMs = older(oldestRecordMs, first);
      if (group === undefined) continue;
      const next = committed.get(partition) ?? NO_OFFSET;
      if (next >= high) continue;
      const pending = next <= low ? first : await timeAt(probe, topic, partition, next, timeoutMs);
      oldestUncommittedMs = older(oldestUncommittedMs, pending);
    }
    return { retentionMs, oldestRecordMs, oldestUncommittedMs };
  } finally {
    await probe.close();
  }
}

const older = (a: number | undefined, b: number | undefined): number | undefined =>
  a === undefined ? b : b === undefined ? a : Math.min(a, b);

async function partitionsOf(admin: BrokerAdmin, topic: string): Promise<readonly number[]> {
  const found = (await admin.listTopics()).find((one) => one.topic === topic);
  if (found !== undefined) return found.partitions;
  throw outboxError('topic_missing', `there is no topic ${topic}`, { next: 'create it' });
}

async function retentionOf(admin: BrokerAdmin, topic: string): Promise<number> {
  const config = (await admin.describeTopic(topic))?.config;
  const text = config?.get('retention.ms');
  if (config === undefined || text === undefined || !/^-?\d{1,19}$/.test(text)) {
    throw outboxError('horizon_unknown', `the broker does not report the retention.ms of ${topic}`, {
      next: 'allow this client to describe the configuration of the topic',
    });
  }
  const deletes = (config.get('cleanup.policy') ?? 'delete')
    .split(',')
    .some((one) => one.trim() === 'delete');
  const ms = Number(text);
  return ms < 0 || !deletes ? Number.POSITIVE_INFINITY : ms;
}

/** Returns the publish time of the first record at or after the offset, or the earlier creation
 *  time of its message; undefined: there is no record.
 *  @throws horizon_unknown */
async function timeAt(
  probe: BatchConsumer,
  topic: string,
  partition: number,
  offset: bigint,
  timeoutMs: number,
): Promise<number | undefined> {
  await probe.assign([{ topic, partition, offset }]);
  let arenaBytes = ARENA_BYTES;
  let batch = RecordBatch.create(1, arenaBytes);
  // Each consume call waits up to `timeoutMs`; a driver may return early without a row.
  for (let turns = 0; turns < 10; turns++) {
    const { rowCount, ends, events } = await probe.consume(batch, timeoutMs);
    const time = rowCount > 0 ? timeOf(batch) : undefined;
    if (time !== undefined) return time;
    if (rowCount > 0) break;
    if (ends.length > 0) return undefined;
    if (events.some((event) => event.name === 'MILLRACE_OVERSIZE') && arenaBytes < ARENA_BYTES_MAX) {
      arenaBytes = Math.min(ARENA_BYTES_MAX, arenaBytes * 16);
      batch = RecordBatch.create(1, arenaBytes);
    } else if (events.length === 0) break;
  }
  throw outboxError(
    'horizon_unknown',
    `the broker does not deliver the record at ${topic}/${partition}/${offset}, or not its time`,
    {
      next: 'check the broker; nothing expires until it does',
    },
  );
}

const utf8 = new TextDecoder();

function timeOf(batch: RecordBatch): number | undefined {
  const published = Number(batch.columns.timestamp[0]);
  const [, id] = batch.headers(0).find(([name]) => name === 'ce_id') ?? [];
  const uuid = id === undefined || id === null ? undefined : canonicalUuid(utf8.decode(id.slice(0, 64)));
  const made = uuid !== undefined && isUuidV7(uuid) ? leading48(uuid) : undefined;
  return older(published > 0 ? published : undefined, made);
}
