/** Loads the schemas of a topic before its first record, from the versions of its subjects or from
 *  its last records. */
import type { Clock } from '../../core/clock.ts';
import { RecordBatch } from '../../core/layout/record-batch.ts';
import type { BatchConsumer, BrokerDriver, BrokerProperties, TopicPartition } from '../../io/kafka/port.ts';
import type { RegistryClient, SubjectVersion } from '../../serde/client.ts';
import { KEY_ID_HEADER, readHeaderId, readPrefixId, VALUE_ID_HEADER } from '../../serde/frame.ts';
import { demandContext } from './options.ts';
import { subjectOf } from './subject.ts';

/** Bounded read of a topic's last records; it commits nothing and joins no group. */
export interface TopicTail {
  /** From `openBroker` of `millrace/drivers`. The main thread alone can list partitions. */
  readonly broker: BrokerDriver;
  /** `host:port` with commas between. */
  readonly brokers: string;
  /** Properties of librdkafka. */
  readonly properties?: BrokerProperties;
  /** Most records to read, over all partitions. Default 1000. */
  readonly records?: number;
  /** Most bytes of records to read. Default 8 MiB. */
  readonly bytes?: number;
  /** Time after which the read ends with the records that arrived, ms. Default 10,000. */
  readonly timeoutMs?: number;
}

export interface PrefetchOptions {
  /** Subjects of the topic. Default: those of TopicName, `TOPIC-value` and `TOPIC-key`; with `tail`
   *  none. */
  readonly subjects?: readonly string[];
  /** Loads the schemas of the last records of the topic. */
  readonly tail?: TopicTail;
  /** Context of the schema ids in the records of `tail`, such as `.staging`. Default: that of the
   *  registry's address. */
  readonly context?: string;
}

/** Result of a prefetch. */
export interface Prefetched {
  /** Ids and guids of the loaded schemas. */
  readonly ids: ReadonlyArray<number | string>;
  /** Ids and guids of records whose schema the registry does not have, or that cannot be read. */
  readonly failed: ReadonlyArray<number | string>;
  /** Number of records read. */
  readonly records: number;
}

const RECORDS = 1000;
const BYTES = 8 << 20;
const TIMEOUT_MS = 10_000;
/** Longest wait of one poll, ms. */
const POLL_MS = 250;
/** Most rows of one poll. */
const POLL_ROWS_MAX = 1024;
const CLIENT_ID = 'millrace-prefetch';

/** Version of a list in ascending order. */
export const versionOf = (
  versions: readonly SubjectVersion[] | undefined,
  version: number | 'latest',
): SubjectVersion | undefined =>
  version === 'latest' ? versions?.at(-1) : versions?.find((one) => one.version === version);

/** @throws registry_unavailable, registry_protocol, unauthenticated, forbidden */
export async function prefetchTopic(
  client: RegistryClient,
  clock: Clock,
  topic: string,
  { subjects, tail, context }: PrefetchOptions,
): Promise<Prefetched> {
  demandContext(context);
  const ids = new Set<number | string>();
  const named = [false, true].map((isKey) => subjectOf('TopicName', { topic, isKey, recordName: undefined }));
  for (const subject of subjects ?? (tail === undefined ? named : []))
    for (const { id } of await client.prefetch(subject)) ids.add(id);
  if (tail === undefined) return { ids: [...ids], failed: [], records: 0 };
  const seen = await readTail(clock, topic, tail);
  const failed = await loadSeen(client, seen.byId, context, ids);
  return { ids: [...ids], failed, records: seen.records };
}

/** Loads the schemas of records, the most frequent first. @returns the ids without a schema */
async function loadSeen(
  client: RegistryClient,
  byId: ReadonlyMap<number | string, number>,
  context: string | undefined,
  loaded: Set<number | string>,
): Promise<Array<number | string>> {
  const failed: Array<number | string> = [];
  for (const [id, found] of await client.schemasOf(byId, context))
    if (found instanceof Error) failed.push(id);
    else loaded.add(id);
  return failed;
}

interface Seen {
  /** Number of records by schema id or guid. */
  readonly byId: Map<number | string, number>;
  records: number;
}

async function readTail(clock: Clock, topic: string, tail: TopicTail): Promise<Seen> {
  const { broker, brokers, properties = {}, records = RECORDS, timeoutMs = TIMEOUT_MS } = tail;
  const seen: Seen = { byId: new Map(), records: 0 };
  const at = { brokers, clientId: CLIENT_ID, properties };
  const admin = await broker.admin(at);
  let partitions: number;
  try {
    partitions = (await admin.describeTopic(topic))?.partitions ?? 0;
  } finally {
    await admin.close();
  }
  if (partitions === 0) return seen;
  const consumer = await broker.consumer({ ...at, partitionEof: true });
  try {
    const deadlineMs = clock.monotonicMs() + timeoutMs;
    const share = BigInt(Math.ceil(records / partitions));
    const places = Array.from({ length: partitions }, (_, partition) => ({ topic, partition }));
    const starts = await Promise.all(
      places.map(async (place) => {
        const { low, high } = await consumer.watermarkOffsets(place, timeoutMs);
        return { ...place, offset: high - share > low ? high - share : low, high };
      }),
    );
    const open = starts.filter(({ offset, high }) => offset < high);
    await consumer.assign(open);
    await readToEnds(consumer, new Set(open.map(keyOf)), seen, tail, () => deadlineMs - clock.monotonicMs());
  } finally {
    await consumer.close();
  }
  return seen;
}

const keyOf = ({ partition }: TopicPartition): number => partition;

/** @param open partitions that have records; each is removed at its end */
async function readToEnds(
  consumer: BatchConsumer,
  open: Set<number>,
  seen: Seen,
  { records = RECORDS, bytes = BYTES }: TopicTail,
  leftMs: () => number,
): Promise<void> {
  const batch = RecordBatch.create(Math.max(1, Math.min(records, POLL_ROWS_MAX)), bytes);
  let read = 0;
  while (open.size > 0 && seen.records < records && read < bytes && leftMs() > 0) {
    const { ends, events } = await consumer.consume(batch, Math.min(POLL_MS, leftMs()));
    for (let row = 0; row < batch.rowCount && seen.records < records; row++) {
      seen.records++;
      read += (batch.value(row)?.length ?? 0) + (batch.key(row)?.length ?? 0);
      for (const id of idsOf(batch, row)) seen.byId.set(id, (seen.byId.get(id) ?? 0) + 1);
    }
    for (const end of ends) open.delete(keyOf(end));
    // A record larger than the bound ends the read of its partition.
    for (const { name, partition } of events)
      if (name === 'MILLRACE_OVERSIZE' && partition !== undefined) open.delete(partition);
  }
}

/** Schema ids of a record: of its value and of its key. */
function idsOf(batch: RecordBatch, row: number): ReadonlyArray<number | string> {
  const headers = batch.headers(row);
  const ids: Array<number | string> = [];
  for (const [name, bytes] of [
    [VALUE_ID_HEADER, batch.value(row)],
    [KEY_ID_HEADER, batch.key(row)],
  ] as const) {
    if (bytes === null) continue;
    const header = headers.find(([one]) => one === name)?.[1];
    try {
      ids.push((header ? readHeaderId(header) : readPrefixId(bytes)).id);
    } catch {
      // A record without a frame has no schema.
    }
  }
  return ids;
}
