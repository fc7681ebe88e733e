/** The log broker in our words. Two drivers stand behind it: `librdkafka` (the addon reads and writes whole batches)
 *  and `node-rdkafka` (one JavaScript object a message; works without the addon). `src/sim` has a third in memory.
 *
 *  Everything that moves is a RecordBatch: columns and payload bytes in one ArrayBuffer owned by the caller. A driver
 *  borrows it until the returned promise settles; touching it before that is a bug of the caller.
 */
import type { RecordBatch } from '../../core/layout/record-batch.ts';

/** Any librdkafka property by its own name; the driver's defaults stand below it. */
export type BrokerProperties = Readonly<Record<string, string | number | boolean>>;

export interface BrokerOptions {
  /** `host:port` with commas between. */
  readonly brokers: string;
  readonly clientId: string;
  readonly properties?: BrokerProperties;
  /** How long a new client waits for the first answer of a broker; then it is `unreachable`. */
  readonly connectTimeoutMs?: number;
}

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** `offset` is the next position to read, never the last one read. */
export interface TopicPartitionOffset extends TopicPartition {
  readonly offset: bigint;
}

/** Positions with a meaning instead of a number. */
export const OFFSET_BEGINNING = -2n;
export const OFFSET_END = -1n;
/** Where the group last committed, else as auto.offset.reset says. */
export const OFFSET_STORED = -1000n;
/** No offset: nothing committed, nothing delivered. */
export const NO_OFFSET = -1001n;

/** Something that went wrong at the broker or on the way to it; a value, not an exception. */
export interface BrokerEvent {
  /** librdkafka's error code (negative: local), 0 for none; -10000 for `MILLRACE_OVERSIZE`. */
  readonly code: number;
  /** librdkafka's name of it, e.g. `_MSG_TIMED_OUT`. */
  readonly name: string;
  readonly message: string;
  readonly retriable: boolean;
  readonly fatal: boolean;
  readonly topic?: string;
  readonly partition?: number;
}

export interface Rebalance {
  readonly kind: 'assigned' | 'revoked' | 'lost';
  readonly partitions: readonly TopicPartition[];
}

export interface ConsumeResult {
  /** Rows in the batch; 0 when the wait ended first. */
  readonly rowCount: number;
  /** Partitions whose end was reached by this batch (with `partitionEof`). */
  readonly ends: readonly TopicPartitionOffset[];
  /** Errors met while filling; the rows are good all the same. */
  readonly events: readonly BrokerEvent[];
  /** Milliseconds from the call until the batch was ready, where that may be long before the promise settles. */
  readonly tookMs?: number;
  /** Runs of rows, in their order and all of them: how long before the batch was ready this process received them from the
   *  broker. Absent where the client does not say. */
  readonly receipts?: ReadonlyArray<{ readonly rows: number; readonly ageMs: number }>;
}

export interface ConsumerOptions extends BrokerOptions {
  /** Needed for subscribe and commit. */
  readonly group?: string;
  readonly autoOffsetReset?: 'earliest' | 'latest' | 'error';
  /** Report partition ends in ConsumeResult.ends. */
  readonly partitionEof?: boolean;
  /** Whether rows of transactions that are open or were aborted are given too. Default: only committed ones, and
   *  `high` is then the last stable offset: the first row of the oldest open transaction, or the end. */
  readonly isolation?: 'committed' | 'uncommitted';
  /** Called in the middle of a rebalance, before it is completed: the place to finish and commit what was read of
   *  the partitions that leave. The rebalance completes when the promise settles. Cooperative by default. */
  readonly onRebalance?: (rebalance: Rebalance) => void | Promise<void>;
}

/** What became of a commit. `not_now`: the group, which is between two assignments, has refused it or not answered yet. */
export type CommitOutcome = 'committed' | 'not_now';

export interface PartitionLag extends TopicPartition {
  /** First and next offset of the partition at the broker. */
  readonly low: bigint;
  readonly high: bigint;
  /** Next offset this consumer reads; OFFSET_STORED when unknown. */
  readonly position: bigint;
}

export interface BatchConsumer {
  /** Topic names by the `topicIndex` column. Grows, never reorders. */
  readonly topics: readonly string[];
  /** Reads these partitions from these offsets; replaces the assignment. */
  assign(partitions: readonly TopicPartitionOffset[]): Promise<void>;
  /** Joins the group for these topics. */
  subscribe(topics: readonly string[]): Promise<void>;
  /** Fills the batch with what is there, waiting at most `waitMs` for the first row. Rows of one partition are in
   *  offset order, across calls too. Stops early when rows or arena are full; a record larger than the whole arena
   *  is an error event `MILLRACE_OVERSIZE` and the consumer stays before it.
   *  One call at a time. @throws closed, unreachable (fatal client errors only) */
  consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult>;
  pause(partitions: readonly TopicPartition[]): Promise<void>;
  resume(partitions: readonly TopicPartition[]): Promise<void>;
  seek(position: TopicPartitionOffset): Promise<void>;
  /** Commits these next-to-read offsets for the group. A member waits for about a second, never for a rebalance to end: that may
   *  take its own next consume, or the return of its onRebalance. After `not_now`, consume and commit again; what is never
   *  committed is read again by the next owner. Who has not subscribed waits for the broker's answer.
   *  @throws group_fenced when the group has given them away, broker_unavailable, timeout */
  commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome>;
  /** NO_OFFSET where the group has committed none. A member waits as it does for a commit. @throws timeout */
  committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]>;
  assignment(): readonly TopicPartition[];
  /** Asks the broker for low and high; costs a round trip a partition. @throws timeout, broker_unavailable */
  lag(timeoutMs: number): Promise<readonly PartitionLag[]>;
  /** Asks whichever broker answers first for nothing but an answer. @throws unreachable */
  reach(timeoutMs: number): Promise<void>;
  /** Low and high offsets of any partition; a new one is asked again until its leader knows it. */
  watermarkOffsets(
    partition: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }>;
  /** Leaves the group and frees the client. A second close does nothing. */
  close(): Promise<void>;
}

export interface ProducerOptions extends BrokerOptions {
  /** -1 all, 1 leader, 0 none. */
  readonly acks?: -1 | 0 | 1;
  readonly idempotence?: boolean;
  readonly compression?: 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';
  /** Bytes in flight above which produce waits. */
  readonly queueBytesMax?: number;
}

/** Outcome of one batch, one entry a row in the batch's order. */
export interface DeliveryReport {
  /** Rows acknowledged as the options' acks say. */
  readonly delivered: number;
  readonly failed: number;
  /** 0 or librdkafka's error code, one a row. Owned by the caller of produce. */
  readonly status: Int32Array;
  /** Offset given by the broker, -1001 where none. */
  readonly offset: BigInt64Array;
  /** The distinct errors of the failed rows. */
  readonly events: readonly BrokerEvent[];
}

export interface BatchProducer {
  /** Sends every row: topic by `topics[topicIndex]`, `partition` -1 for the partitioner (murmur2 of the key),
   *  timestamp 0 for now. Settles when every row has its delivery report; per partition, rows are appended in row
   *  order. Several calls may be under way; back-pressure by bytes delays the start of the next.
   *  @throws closed, unreachable (fatal client errors only); a failed row is a status, not a throw */
  produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport>;
  /** Bytes handed over and not yet reported. */
  queuedBytes(): number;
  flush(timeoutMs: number): Promise<void>;
  /** Waits at most so long (default 30 s) for rows under way, then gives them up. */
  close(flushMs?: number): Promise<void>;
}

export interface TransactionalOptions extends ProducerOptions {
  /** Who writes: the newest producer of an id that was initialised fences all older ones of it. */
  readonly transactionalId: string;
  /** The broker aborts a transaction that stays open this long. */
  readonly transactionTimeoutMs?: number;
}

/** What a step of a transaction met:
 *    fenced  a newer producer of the same id exists; this one writes nothing any more
 *    fatal   this producer is of no use any more
 *    abort   the transaction cannot be committed; abort it and begin another
 *    retry   not known yet: make the same call again */
export interface TransactionFailure {
  readonly kind: 'fenced' | 'fatal' | 'abort' | 'retry';
  readonly event: BrokerEvent;
}

/** One transaction at a time: begin, produce, then commit or abort. Undefined: the step was done. */
export interface TransactionalProducer extends BatchProducer {
  /** Once, before all else. Ends the transactions of older producers of the id and fences them. */
  init(timeoutMs: number): Promise<TransactionFailure | undefined>;
  begin(): Promise<TransactionFailure | undefined>;
  /** After `retry` (no answer in time) the outcome is open: call again, or open another producer of the id. */
  commit(timeoutMs: number): Promise<TransactionFailure | undefined>;
  /** Rows on their way are given up. */
  abort(timeoutMs: number): Promise<TransactionFailure | undefined>;
}

export interface TopicSpec {
  readonly topic: string;
  readonly partitions: number;
  /** Absent or 0: three, or as many as there are brokers where they are fewer. */
  readonly replicationFactor?: number;
  /** Beside `min.insync.replicas=2`, which a topic of three replicas or more gets where this does not say otherwise. */
  readonly config?: Readonly<Record<string, string>>;
}

export interface TopicInfo {
  readonly topic: string;
  readonly partitions: readonly number[];
}

export interface TopicDescription {
  readonly partitions: number;
  /** Number of the partition that has the fewest. */
  readonly replicas: number;
  /** Undefined where the driver cannot ask (see its description of limits). */
  readonly config: ReadonlyMap<string, string> | undefined;
}

/** Topics and cluster facts. One driver (node-rdkafka) on the main thread serves both data drivers. */
export interface BrokerAdmin {
  clusterId(): Promise<string>;
  /** Creates what is missing; an existing topic is left alone and reported as false. */
  createTopics(specs: readonly TopicSpec[]): Promise<readonly boolean[]>;
  deleteTopics(topics: readonly string[]): Promise<void>;
  listTopics(): Promise<readonly TopicInfo[]>;
  /** Undefined where there is no such topic. */
  describeTopic(topic: string): Promise<TopicDescription | undefined>;
  /** Id that the cluster gave the topic when it was made: a topic made again under the same name has another one.
   *  Undefined where there is no such topic, or the broker gives no ids (before Kafka 2.8). */
  topicId(topic: string): Promise<string | undefined>;
  /** Whether the topic is there and each of its partitions has a leader. */
  isLed(topic: string): Promise<boolean>;
  /** How many brokers the cluster has. */
  brokerCount(): Promise<number>;
  close(): Promise<void>;
}

export interface BrokerDriver {
  readonly name: string;
  consumer(options: ConsumerOptions): Promise<BatchConsumer>;
  producer(options: ProducerOptions): Promise<BatchProducer>;
  transactional(options: TransactionalOptions): Promise<TransactionalProducer>;
  admin(options: BrokerOptions): Promise<BrokerAdmin>;
}
