/** Simulated producer: appends to the cluster's logs. */
import { coreError } from '../core/errors.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';
import type {
  BatchProducer,
  BrokerEvent,
  DeliveryReport,
  ProducerOptions,
  TopicPartition,
} from '../io/kafka/port.ts';
import { type SimCluster, simEvent } from './broker-cluster.ts';
import type { SimLink } from './broker-link.ts';
import type { StoredRecord } from './broker-log.ts';
import { partitionOfKey } from './murmur2.ts';

const QUEUE_BYTES_MAX = 64 * 1024 * 1024;
const NO_OFFSET = -1001n;
/** Default of `message.timeout.ms`, as in librdkafka. */
const MESSAGE_TIMEOUT_MS = 300_000;
/** Longest delay of a timer, for `message.timeout.ms` 0: rows wait without a limit. */
const NEVER_MS = 2 ** 31 - 1;

export class SimProducer implements BatchProducer {
  protected readonly cluster: SimCluster;
  protected readonly link: SimLink;
  private readonly messageTimeoutMs: number;
  private readonly queueBytesMax: number;
  private turn: Promise<unknown> = Promise.resolve();
  private bytes = 0;
  private unkeyed = 0;
  /** True with `enable.gapless.guarantee`: no row is appended after a row that failed. */
  private readonly isGapless: boolean;
  private hasGap = false;
  protected closed = false;

  constructor(cluster: SimCluster, link: SimLink, options: ProducerOptions) {
    this.cluster = cluster;
    this.link = link;
    const { properties } = options;
    this.messageTimeoutMs = Number(properties?.['message.timeout.ms'] ?? MESSAGE_TIMEOUT_MS) || NEVER_MS;
    this.isGapless = properties?.['enable.gapless.guarantee'] === true;
    this.queueBytesMax = options.queueBytesMax ?? QUEUE_BYTES_MAX;
  }

  async produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport> {
    this.checkOpen();
    for (let row = 0; row < batch.rowCount; row++) {
      if (topics[batch.columns.topicIndex[row] as number] === undefined) {
        throw coreError(
          'out_of_range',
          `row ${row} names topic ${batch.columns.topicIndex[row]} of ${topics.length}`,
        );
      }
    }
    const bytes = batch.arenaUsed;
    const sending = this.turn.then(async () => {
      while (this.bytes >= this.queueBytesMax) await this.link.sleep(1);
      this.bytes += bytes;
    });
    this.turn = sending;
    await sending;
    const answer = await this.link.ask(this.messageTimeoutMs, () => this.append(batch, topics));
    await this.link.sleep(0);
    this.bytes -= bytes;
    return answer?.reply ?? unanswered(batch.rowCount);
  }

  queuedBytes(): number {
    return this.bytes;
  }

  async flush(_timeoutMs: number): Promise<void> {
    this.checkOpen();
    await this.turn;
  }

  async close(): Promise<void> {
    this.closed = true;
    await this.turn;
  }

  protected checkOpen(): void {
    if (this.closed) throw coreError('closed', 'the producer is closed');
  }

  private append(batch: RecordBatch, topics: readonly string[]): DeliveryReport {
    const rows = batch.rowCount;
    const report = { status: new Int32Array(rows), offset: new BigInt64Array(rows).fill(NO_OFFSET) };
    const events = new Map<number, BrokerEvent>();
    let failed = 0;
    for (let row = 0; row < rows; row++) {
      const event = this.appendRow(
        batch,
        row,
        topics[batch.columns.topicIndex[row] as number] as string,
        report.offset,
      );
      if (event === undefined) continue;
      this.hasGap = this.isGapless;
      report.status[row] = event.code;
      report.offset[row] = NO_OFFSET;
      // librdkafka ends a gapless producer with its first failed row.
      events.set(event.code, this.isGapless ? { ...event, fatal: true } : event);
      failed++;
    }
    this.cluster.changed();
    return { delivered: rows - failed, failed, ...report, events: [...events.values()] };
  }

  private appendRow(
    batch: RecordBatch,
    row: number,
    topic: string,
    offset: BigInt64Array,
  ): BrokerEvent | undefined {
    const { columns } = batch;
    const key = batch.key(row);
    const value = batch.value(row);
    const bytes = (key?.length ?? 0) + (value?.length ?? 0) + (columns.headersLength[row] as number);
    if (bytes > this.cluster.messageBytesMax) return simEvent('MSG_SIZE_TOO_LARGE');
    const partitions = this.cluster.topics.get(topic) ?? [];
    const asked = columns.partition[row] as number;
    const chosen =
      key === null
        ? this.unkeyed++ % Math.max(1, partitions.length)
        : partitionOfKey(key, Math.max(1, partitions.length));
    const partition = asked < 0 ? chosen : asked;
    const log = partitions[partition];
    if (log === undefined) return simEvent('_UNKNOWN_PARTITION');
    const refusal = this.hasGap ? simEvent('_GAPLESS_GUARANTEE') : this.refusal();
    if (refusal !== undefined) return refusal;
    if (this.cluster.strikes('lostRow')) return simEvent('_MSG_TIMED_OUT');
    const at = columns.timestamp[row] as bigint;
    const place = { topic, partition };
    offset[row] = BigInt(log.length);
    this.cluster.append(place, {
      ...this.belonging(place, BigInt(log.length)),
      timestamp: at === 0n ? BigInt(Math.trunc(this.link.clock.wallNowMs())) : at,
      key: key?.slice() ?? null,
      value: value?.slice() ?? null,
      headers: batch.headers(row).map(([name, content]) => [name, content?.slice() ?? null] as const),
    });
    return this.cluster.strikes('lostReport') ? simEvent('_MSG_TIMED_OUT') : undefined;
  }

  /** Returns the event with which the broker refuses every row of this producer, or undefined. */
  protected refusal(): BrokerEvent | undefined {
    return undefined;
  }

  protected belonging(_at: TopicPartition, _offset: bigint): Pick<StoredRecord, 'transaction'> {
    return {};
  }
}

/** Returns the report of rows without an answer from the broker. The rows may be stored. */
function unanswered(rows: number): DeliveryReport {
  const event = simEvent('_MSG_TIMED_OUT');
  return {
    delivered: 0,
    failed: rows,
    status: new Int32Array(rows).fill(event.code),
    offset: new BigInt64Array(rows).fill(NO_OFFSET),
    events: [event],
  };
}
