/** Port of the log broker. Three drivers implement it: `librdkafka` (the addon reads and writes
 *  whole batches), `direct` (the addon also fetches and reads record batches itself) and
 *  `node-rdkafka` (one JavaScript object a message; works without the addon). `src/sim` has another
 *  in memory.
 *
 *  Records travel as a RecordBatch: columns and payload bytes in one ArrayBuffer owned by the
 *  caller. A driver borrows it until the returned promise settles; access before that is a bug of
 *  the caller.
 */
import type { MillraceError } from '../../core/errors.ts';
import type { RecordBatch } from '../../core/layout/record-batch.ts';

/** librdkafka properties by their own names; they override the driver's defaults. */
export type BrokerProperties = Readonly<Record<string, string | number | boolean>>;

export interface BrokerOptions {
  /** `host:port` with commas between. */
  readonly brokers: string;
  readonly clientId: string;
  readonly properties?: BrokerProperties;
  /** Time that a new client waits for the first answer of a broker; then it is `unreachable`. */
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

/** Symbolic positions: first offset. */
export const OFFSET_BEGINNING = -2n;
export const OFFSET_END = -1n;
/** Last committed offset of the group, else the position of auto.offset.reset. */
export const OFFSET_STORED = -1000n;
/** No offset: nothing committed, nothing delivered. */
export const NO_OFFSET = -1001n;

/** Failure at the broker or on the way to it; a value, not an exception. */
export interface BrokerEvent {
  /** librdkafka's error code (negative: local), 0 for none; -10000 for `MILLRACE_OVERSIZE`. */
  readonly code: number;
  /** Name of the code in librdkafka, such as `_MSG_TIMED_OUT`. */
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
  /** Errors during the call; the rows are valid all the same. */
  readonly events: readonly BrokerEvent[];
  /** Milliseconds from the call until the batch was ready, where that may be long before the
   *  promise settles. */
  readonly tookMs?: number;
  /** Runs of consecutive rows that cover the batch; `ageMs` is the time between their arrival from
   *  the broker and the end of the batch. Absent when the client does not report it. */
  readonly receipts?: ReadonlyArray<{ readonly rows: number; readonly ageMs: number }>;
}

export interface ConsumerOptions extends BrokerOptions {
  /** Needed for subscribe and commit. */
  readonly group?: string;
  readonly autoOffsetReset?: 'earliest' | 'latest' | 'error';
  /** Report partition ends in ConsumeResult.ends. */
  readonly partitionEof?: boolean;
  /** Visibility of rows in open or aborted transactions. Default: committed rows only, and `high`
   *  is then the last stable offset: the first row of the oldest open transaction, or the end. */
  readonly isolation?: 'committed' | 'uncommitted';
  /** Called during a rebalance, before it completes: finish and commit the rows of revoked
   *  partitions here. The rebalance completes when the promise settles. Cooperative by default. */
  readonly onRebalance?: (rebalance: Rebalance) => void | Promise<void>;
}

/** Outcome of a commit. `not_now`: the group is between two assignments and refused the commit or
 *  has not answered. */
export type CommitOutcome = 'committed' | 'not_now';

export interface PartitionLag extends TopicPartition {
  /** First and next offset of the partition at the broker. */
  readonly low: bigint;
  readonly high: bigint;
  /** Next offset that this consumer reads; OFFSET_STORED when unknown. */
  readonly position: bigint;
}

export interface BatchConsumer {
  /** Topic names by the `topicIndex` column. Grows, never reorders. */
  readonly topics: readonly string[];
  /** Reads these partitions from these offsets; replaces the assignment. */
  assign(partitions: readonly TopicPartitionOffset[]): Promise<void>;
  /** Joins the group for these topics. */
  subscribe(topics: readonly string[]): Promise<void>;
  /** Fills the batch with available rows, and waits at most `waitMs` for the first row. Rows of one
   *  partition are in offset order, across calls too. Stops early when rows or arena are full. A
   *  record larger than the whole arena is an error event `MILLRACE_OVERSIZE`, and the position
   *  stays before it.
   *  One call at a time. @throws closed, unreachable (fatal client errors only) */
  consume(into: RecordBatch, waitMs: number): Promise<ConsumeResult>;
  pause(partitions: readonly TopicPartition[]): Promise<void>;
  resume(partitions: readonly TopicPartition[]): Promise<void>;
  seek(position: TopicPartitionOffset): Promise<void>;
  /** Commits these next-to-read offsets for the group. A member waits about a second and never for
   *  the end of a rebalance: that end may depend on its own next consume, or on the return of its
   *  onRebalance. After `not_now`, consume and commit again; the next owner reads uncommitted rows
   *  again. A consumer without a subscription waits for the broker's answer.
   *  @throws group_fenced when other members own the partitions; broker_unavailable, timeout */
  commit(offsets: readonly TopicPartitionOffset[]): Promise<CommitOutcome>;
  /** Committed offsets of the group; NO_OFFSET without one. A member waits as for a commit. @throws
   *  timeout */
  committed(partitions: readonly TopicPartition[]): Promise<readonly TopicPartitionOffset[]>;
  assignment(): readonly TopicPartition[];
  /** Requests low and high from the broker; costs a round trip a partition. @throws timeout,
   *  broker_unavailable */
  lag(timeoutMs: number): Promise<readonly PartitionLag[]>;
  /** Checks that any broker answers. @throws unreachable */
  reach(timeoutMs: number): Promise<void>;
  /** Low and high offsets of any partition. For a new partition the request is repeated until its
   *  leader knows the partition. */
  watermarkOffsets(
    partition: TopicPartition,
    timeoutMs: number,
  ): Promise<{ readonly low: bigint; readonly high: bigint }>;
  /** Leaves the group and frees the client. A second call has no effect. */
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
  /** Rows acknowledged as the options' acks require. */
  readonly delivered: number;
  readonly failed: number;
  /** 0 or librdkafka's error code, one a row. Owned by the caller of produce. */
  readonly status: Int32Array;
  /** Offset assigned by the broker; -1001 without one. */
  readonly offset: BigInt64Array;
  /** The distinct errors of the failed rows. */
  readonly events: readonly BrokerEvent[];
}

export interface BatchProducer {
  /** Sends every row: topic by `topics[topicIndex]`, `partition` -1 for the partitioner (murmur2 of
   *  the key), timestamp 0 for now. Settles when every row has its delivery report; per partition,
   *  rows are appended in row order. Several calls may be in flight; back-pressure by bytes delays
   *  the start of the next.
   *  @throws closed, unreachable (fatal client errors only); a failed row is a status, not a throw
   */
  produce(batch: RecordBatch, topics: readonly string[]): Promise<DeliveryReport>;
  /** Bytes sent and not yet reported. */
  queuedBytes(): number;
  flush(timeoutMs: number): Promise<void>;
  /** Waits up to `flushMs` (default 30 s) for rows in flight, then fails them. */
  close(flushMs?: number): Promise<void>;
}

export interface TransactionalOptions extends ProducerOptions {
  /** Identity of the writer: initializing a producer of an id fences all older producers of that
   *  id. */
  readonly transactionalId: string;
  /** The broker aborts a transaction that stays open this long. */
  readonly transactionTimeoutMs?: number;
}

/** Failure of a transaction step:
 *    fenced  a newer producer of the same id exists; this one writes nothing any more
 *    fatal   this producer is unusable; open another
 *    abort   the transaction cannot be committed; abort it and begin another
 *    retry   outcome unknown: repeat the same call */
export interface TransactionFailure {
  readonly kind: 'fenced' | 'fatal' | 'abort' | 'retry';
  readonly event: BrokerEvent;
}

/** Producer with one transaction at a time: begin, produce, then commit or abort. A step that
 *  succeeded returns undefined. */
export interface TransactionalProducer extends BatchProducer {
  /** Must be the first call, once. Ends the transactions of older producers of the id and fences
   *  them. */
  init(timeoutMs: number): Promise<TransactionFailure | undefined>;
  begin(): Promise<TransactionFailure | undefined>;
  /** Commits. After `retry` (no answer in time) the outcome is unknown: repeat the call, or open
   *  another producer of the id. */
  commit(timeoutMs: number): Promise<TransactionFailure | undefined>;
  /** Aborts; rows in flight are discarded. */
  abort(timeoutMs: number): Promise<TransactionFailure | undefined>;
}

export interface TopicSpec {
  readonly topic: string;
  readonly partitions: number;
  /** Replicas; absent or 0: three, or the number of brokers when it is lower. */
  readonly replicationFactor?: number;
  /** Further configuration. A topic of three replicas or more gets `min.insync.replicas=2` unless
   *  this overrides it. */
  readonly config?: Readonly<Record<string, string>>;
}

export interface TopicInfo {
  readonly topic: string;
  readonly partitions: readonly number[];
}

export interface TopicDescription {
  readonly partitions: number;
  /** Replicas of the partition with the fewest. */
  readonly replicas: number;
  /** Undefined when the driver cannot read it (see topic-config.ts). */
  readonly config: ReadonlyMap<string, string> | undefined;
}

/** Topic and cluster administration. One driver (node-rdkafka), on the main thread, serves both
 *  data drivers. */
export interface BrokerAdmin {
  clusterId(): Promise<string>;
  /** Creates missing topics; an existing topic stays unchanged and is reported as false. Only a
   *  missing topic needs the right to create it. */
  createTopics(specs: readonly TopicSpec[]): Promise<readonly boolean[]>;
  deleteTopics(topics: readonly string[]): Promise<void>;
  listTopics(): Promise<readonly TopicInfo[]>;
  /** Error of the access rules for which a topic is not in `listTopics`; undefined where it does
   *  not exist, or the brokers give no reason. */
  refusalOf(topic: string): Promise<MillraceError | undefined>;
  /** Describes a topic; undefined when it does not exist. */
  describeTopic(topic: string): Promise<TopicDescription | undefined>;
  /** Id that the cluster assigned at the creation of the topic: a recreated topic has another id.
   *  Undefined when the topic does not exist, or the broker has no topic ids (before Kafka 2.8). */
  topicId(topic: string): Promise<string | undefined>;
  /** True when the topic exists and each of its partitions has a leader. */
  isLed(topic: string): Promise<boolean>;
  /** Offset of the first record of each partition whose timestamp is `timestampMs` or later;
   *  OFFSET_END where a partition has none. @throws timeout, broker_unavailable */
  offsetsForTime(
    partitions: readonly TopicPartition[],
    timestampMs: number,
  ): Promise<readonly TopicPartitionOffset[]>;
  /** Number of brokers in the cluster. */
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
