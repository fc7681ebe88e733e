/** The broker client's part of the addon. Only the librdkafka driver calls it.
 *
 *  Lists cross as flat arrays: places as topics, partitions and offsets of one length. Answers are promises; an error of
 *  the broker is a value in them. A batch, and the status and offset columns, are borrowed until the promise settles.
 */
import type { BatchBytes } from './bytes.ts';

/** code, message, fatal, topic, partition (-1: none) */
export type NativeEvent = readonly [number, string, boolean, string | null, number];
/** topic, partition, offset */
export type NativePlace = readonly [string, number, bigint];
/** What a control call resolves to: its error or null, and the places it is about. */
export type NativeAnswer = readonly [NativeEvent | null, readonly NativePlace[] | null];

/** Type-tagged; closed explicitly, once or more often. */
export type ConsumerHandle = object & { readonly __consumer?: never };
export type ProducerHandle = object & { readonly __producer?: never };

type Places = readonly [topics: readonly string[], partitions: Int32Array, offsets: BigInt64Array];

export interface BrokerFunctions {
  /** Version, builtin.features, and the error table of the librdkafka that is loaded. */
  brokerLibrary(): readonly [string, string, ReadonlyArray<readonly [number, string, string]>];

  /** `onRebalance` is called in the middle of a rebalance, which waits for brokerConsumerAnswer. */
  brokerConsumerOpen(
    properties: readonly string[],
    onRebalance: (kind: 'assigned' | 'revoked' | 'lost', places: readonly NativePlace[]) => void,
  ): ConsumerHandle;
  brokerConsumerConnect(handle: ConsumerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Rows, ends, events, the names of topics met since the last call, the milliseconds it took, and runs of rows that were
   *  received together: how many rows, how many milliseconds before the end of the call, and so on. */
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
  /** Two places for each: low offset, high offset. */
  brokerConsumerWatermarks(
    handle: ConsumerHandle,
    ...within: readonly [...Places, timeoutMs: number]
  ): Promise<NativeAnswer>;
  /** The assigned partitions and the next offset of each. */
  brokerConsumerPositions(handle: ConsumerHandle): Promise<NativeAnswer>;
  brokerConsumerAnswer(handle: ConsumerHandle): void;
  /** Gives the partitions back and leaves the group; after it only close may follow. */
  brokerConsumerLeave(handle: ConsumerHandle): Promise<NativeAnswer>;
  brokerConsumerClose(handle: ConsumerHandle): void;

  brokerProducerOpen(properties: readonly string[]): ProducerHandle;
  brokerProducerConnect(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** Failed rows and their distinct errors, once every row has its report. */
  brokerProducerProduce(
    handle: ProducerHandle,
    batch: BatchBytes,
    topics: readonly string[],
    status: Int32Array,
    offset: BigInt64Array,
  ): Promise<readonly [number, readonly NativeEvent[]]>;
  /** Steps: 0 init, 1 begin, 2 commit, 3 abort. Answers with its error or null, and retriable 1 + abortable 2. */
  brokerProducerTransact(
    handle: ProducerHandle,
    step: number,
    timeoutMs: number,
  ): Promise<readonly [NativeEvent | null, number]>;
  brokerProducerFlush(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  /** The error that ended the client, or null. */
  brokerProducerFatal(handle: ProducerHandle): NativeEvent | null;
  /** Flushes, gives up what is left, frees the client; after it only close may follow. */
  brokerProducerLeave(handle: ProducerHandle, timeoutMs: number): Promise<NativeAnswer>;
  brokerProducerClose(handle: ProducerHandle): void;
}
