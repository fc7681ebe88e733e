/** Functions of the broker client in the addon. Only the librdkafka driver calls them.
 *
 *  Lists cross as flat arrays: topic partitions as topics, partitions and offsets of equal length.
 *  Results are promises; a broker's error is a value in them. A batch, and the status and offset
 *  columns, are borrowed until the promise settles. */
import type { BatchBytes } from './bytes.ts';

/** code, message, fatal, topic, partition (-1: none) */
export type NativeEvent = readonly [number, string, boolean, string | null, number];
/** topic, partition, offset */
export type NativePlace = readonly [string, number, bigint];
/** Result of a control call: its error or null, and the topic partitions it concerns. */
export type NativeAnswer = readonly [NativeEvent | null, readonly NativePlace[] | null];

/** Handles have a type tag; closing one again has no effect. */
export type ConsumerHandle = object & { readonly __consumer?: never };
export type ProducerHandle = object & { readonly __producer?: never };
export type DirectHandle = object & { readonly __direct?: never };

type Places = readonly [topics: readonly string[], partitions: Int32Array, offsets: BigInt64Array];

export interface BrokerFunctions {
  /** Version, builtin.features, and the error table of the loaded librdkafka. */
  brokerLibrary(): readonly [string, string, ReadonlyArray<readonly [number, string, string]>];

  /** `onRebalance` is called in the middle of a rebalance, which waits for brokerConsumerAnswer. */
  brokerConsumerOpen(
    properties: readonly string[],
    onRebalance: (kind: 'assigned' | 'revoked' | 'lost', places: readonly NativePlace[]) => void,
  ): ConsumerHandle;
  /** One request, of 2 s at most. The message of its event is the latest lines of the log. */
  brokerConsumerConnect(handle: ConsumerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Rows, ends, events, names of topics that are new since the last call, the duration in ms, and
   *  receipts: pairs of a number of rows that were received together and their age in ms at the end
   *  of the call. */
  brokerConsumerConsume(
    handle: ConsumerHandle,
    into: BatchBytes,
    waitMs: number,
  ): Promise<
    readonly [
      number,
      readonly NativePlace[],
      readonly NativeEvent[],
      readonly string[],
      number,
      readonly number[],
    ]
  >;
  brokerConsumerSubscribe(handle: ConsumerHandle, topics: readonly string[]): Promise<NativeAnswer>;
  brokerConsumerAssign(handle: ConsumerHandle, ...places: Places): Promise<NativeAnswer>;
  brokerConsumerPause(handle: ConsumerHandle, ...places: Places): Promise<NativeAnswer>;
  brokerConsumerResume(handle: ConsumerHandle, ...places: Places): Promise<NativeAnswer>;
  brokerConsumerSeek(
    handle: ConsumerHandle,
    ...within: readonly [...Places, timeoutMs: number]
  ): Promise<NativeAnswer>;
  brokerConsumerCommit(
    handle: ConsumerHandle,
    ...within: readonly [...Places, timeoutMs: number]
  ): Promise<NativeAnswer>;
  brokerConsumerCommitted(
    handle: ConsumerHandle,
    ...within: readonly [...Places, timeoutMs: number]
  ): Promise<NativeAnswer>;
  /** Two entries for each partition: low offset, high offset. */
  brokerConsumerWatermarks(
    handle: ConsumerHandle,
    ...within: readonly [...Places, timeoutMs: number]
  ): Promise<NativeAnswer>;
  /** Assigned partitions and the next offset of each. */
  brokerConsumerPositions(handle: ConsumerHandle): Promise<NativeAnswer>;
  brokerConsumerAnswer(handle: ConsumerHandle): void;
  /** Returns the partitions and leaves the group; only close may follow. */
  brokerConsumerLeave(handle: ConsumerHandle): Promise<NativeAnswer>;
  brokerConsumerClose(handle: ConsumerHandle): void;

  brokerProducerOpen(properties: readonly string[]): ProducerHandle;
  brokerProducerConnect(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Number of failed rows and their distinct errors, once every row has its report. */
  brokerProducerProduce(
    handle: ProducerHandle,
    batch: BatchBytes,
    topics: readonly string[],
    status: Int32Array,
    offset: BigInt64Array,
  ): Promise<readonly [number, readonly NativeEvent[]]>;
  /** Steps: 0 init, 1 begin, 2 commit, 3 abort. Result: error or null, and retriable 1 + abortable
   *  2. */
  brokerProducerTransact(
    handle: ProducerHandle,
    step: number,
    timeoutMs: number,
  ): Promise<readonly [NativeEvent | null, number]>;
  brokerProducerFlush(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Fatal error of the client, or null. */
  brokerProducerFatal(handle: ProducerHandle): NativeEvent | null;
  /** Flushes, purges the rows that are left, and frees the client; only close may follow. */
  brokerProducerLeave(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  brokerProducerClose(handle: ProducerHandle): void;

  /** Reason that the direct client is not built; null when it is, and only then the other functions
   *  exist. */
  brokerDirectObstacle(): string | null;
  brokerDirectOpen(properties: readonly string[]): DirectHandle;
  /** Waits for the first answer of a broker, or for a refusal that lasts. */
  brokerDirectConnect(handle: DirectHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Result as that of brokerConsumerConsume. */
  brokerDirectConsume(
    handle: DirectHandle,
    into: BatchBytes,
    waitMs: number,
  ): ReturnType<BrokerFunctions['brokerConsumerConsume']>;
  /** Offsets may be symbolic; one that is no position is replaced by auto.offset.reset. */
  brokerDirectAssign(handle: DirectHandle, ...places: Places): Promise<NativeAnswer>;
  brokerDirectPause(handle: DirectHandle, ...places: Places): Promise<NativeAnswer>;
  brokerDirectResume(handle: DirectHandle, ...places: Places): Promise<NativeAnswer>;
  brokerDirectSeek(handle: DirectHandle, ...places: Places): Promise<NativeAnswer>;
  brokerDirectPositions(handle: DirectHandle): Promise<NativeAnswer>;
  /** Ends a consume that waits; only close may follow. */
  brokerDirectLeave(handle: DirectHandle): Promise<NativeAnswer>;
  brokerDirectClose(handle: DirectHandle): void;
}
