/** Functions of the addon, in the order of native/binding: identity, kernels, codecs, keys,
 *  generator, windows, locks, broker client.
 *
 *  A batch crosses as its bytes: the ArrayBuffer itself, or a Uint8Array over a whole
 *  SharedArrayBuffer. Every call checks its arguments: a wrong type is a TypeError, every other
 *  error has a code of core/errors.ts. Only load.ts and the drivers use this interface. */
import type { BrokerFunctions } from './broker-functions.ts';
import type { BatchBytes } from './bytes.ts';

interface Identity {
  /** LAYOUT_FINGERPRINT of the sources that the addon was built from. */
  readonly layoutFingerprint: number;
  /** ADDON_ABI of these sources. */
  readonly abi: number;
}

/** Threads that decode events together. */
export type EventDecoderHandle = object & { readonly __eventDecoder?: never };

interface KernelFunctions {
  shardOf(events: BatchBytes, shards: number, out: Int32Array): void;
  decodeEvents(records: BatchBytes, into: BatchBytes): number;
  /** Threads that decode events together, as many as shards and cores. */
  eventDecoderOpen(shards: number): EventDecoderHandle;
  eventDecoderDecode(decoder: EventDecoderHandle, records: BatchBytes, into: BatchBytes): number;
  eventDecoderClose(decoder: EventDecoderHandle): void;
  /** Sets, in tests, the least rows of a batch that threads share, and the number of cores (0:
   *  those of the machine), for all states and decoders that the process opens from now on. */
  tuneWorkers(rowsMin: number, cores: number): void;
  scanFrames(records: BatchBytes, protobuf: boolean, into: BatchBytes): number;
  writeFrames(
    payloads: Uint8Array,
    payloadStart: Uint32Array,
    payloadLength: Int32Array,
    count: number,
    schemaId: number,
    messageIndexes: Int32Array | null,
    into: BatchBytes,
  ): number;
}

/** Opened program of a codec kernel. */
export type CodecHandle = object & { readonly __codec?: never };

/** Opened program that encodes columns. */
export type EncoderHandle = object & { readonly __encoder?: never };

interface CodecFunctions {
  codecOpenAvro(code: Int32Array, pool: Uint8Array, table: Int32Array): CodecHandle;
  codecOpenProtobuf(code: Int32Array, table: Int32Array): CodecHandle;
  codecDecode(
    program: CodecHandle,
    payloads: Uint8Array,
    start: Uint32Array,
    length: Int32Array,
    from: number,
    to: number,
    skips: boolean,
    into: ArrayBuffer,
    state: Uint32Array,
  ): number;
  codecClose(program: CodecHandle): void;
  codecOpenAvroEncoder(code: Int32Array, tables: Int32Array, table: Int32Array): EncoderHandle;
  codecOpenProtobufEncoder(code: Int32Array, tables: Int32Array, table: Int32Array): EncoderHandle;
  codecEncode(
    program: EncoderHandle,
    columns: ArrayBuffer,
    columnState: Uint32Array,
    from: number,
    to: number,
    prefix: Uint8Array,
    skips: boolean,
    into: ArrayBuffer,
    offsets: Uint32Array,
    status: Uint8Array,
    errorColumn: Uint32Array,
    state: Uint32Array,
  ): number;
  codecCloseEncoder(program: EncoderHandle): void;
}

/** Opened finder of JSON fields. */
export type FinderHandle = object & { readonly __finder?: never };

interface JsonFunctions {
  jsonOpenFinder(table: Int32Array, names: Uint8Array, fields: number): FinderHandle;
  jsonFind(
    finder: FinderHandle,
    payloads: Uint8Array,
    start: Uint32Array,
    length: Int32Array,
    from: number,
    to: number,
    isDocument: Uint8Array,
    kind: Uint8Array,
    starts: Uint32Array,
    ends: Uint32Array,
    integer: BigInt64Array,
  ): void;
  jsonCloseFinder(finder: FinderHandle): void;
}

interface KeyFunctions {
  probeKeys(
    events: BatchBytes,
    at: Int32Array,
    length: Int32Array,
    words: Int32Array,
    from: number,
    secret: Uint32Array,
    slots: Int32Array,
    ring: Int32Array,
    generation: number,
    bytesMax: number,
    rest: Int32Array,
    state: Float64Array,
  ): void;
  copyKeys(
    words: Int32Array,
    first: number,
    rowWords: number,
    from: number,
    to: number,
    slots: Int32Array,
    ring: Int32Array,
    generations: Int32Array,
    bytes: Uint8Array,
    ends: Uint32Array,
    missing: Int32Array,
    state: Float64Array,
  ): number;
}

interface GenFunctions {
  genArrivals(
    params: Float64Array,
    state: Float64Array,
    wheel: BatchBytes,
    pool: BatchBytes,
    seqs: Float64Array,
  ): number;
  genRecords(
    params: Float64Array,
    zipf: BatchBytes,
    noise: Uint8Array,
    seqs: Float64Array,
    count: number,
    into: BatchBytes,
  ): void;
  genEvents(
    params: Float64Array,
    zipf: BatchBytes,
    seqs: Float64Array,
    count: number,
    into: BatchBytes,
  ): void;
  genDigest(state: Uint32Array, records: BatchBytes): void;
}

/** Handles have a type tag; closing one again has no effect. */
export type WindowStateHandle = object & { readonly __windowState?: never };
export type SortedRunHandle = object & { readonly __sortedRun?: never };
/** Values of the events of a batch, their validity, the cells of a column, and texts; or four times
 *  null. */
export type Values =
  | [cells: BigInt64Array, valid: Uint8Array, capacity: number, texts: BigInt64Array | null]
  | [null, null, null, null];
export type SessionStateHandle = object & { readonly __sessionState?: never };

interface WindowFunctions {
  windowAdmit(
    clock: Float64Array,
    progress: Float64Array,
    records: BatchBytes,
    events: BatchBytes,
    from: number,
    admitted: BatchBytes,
    refused: BatchBytes | null,
  ): number;
  windowOpen(sliceMs: number, shards: number, steps: Uint32Array | null): WindowStateHandle;
  windowClose(state: WindowStateHandle): void;
  windowAccumulate(
    state: WindowStateHandle,
    events: BatchBytes,
    admitted: BatchBytes,
    ...values: Values
  ): void;
  windowDeltaBytesMax(state: WindowStateHandle): number;
  windowEncodeDeltas(state: WindowStateHandle, out: Uint8Array): number;
  windowApplyDeltas(
    state: WindowStateHandle,
    bytes: Uint8Array,
    seq: number,
    covered: Float64Array | null,
  ): number;
  windowReserve(state: WindowStateHandle, sliceStart: number, rows: number): void;
  windowLoad(state: WindowStateHandle, sliceStart: number, rows: BatchBytes, count: number): void;
  windowCopy(state: WindowStateHandle, sliceStart: number, cursor: Float64Array, into: BatchBytes): number;
  windowCopyRange(
    state: WindowStateHandle,
    range: number,
    sliceStart: number,
    cursor: Float64Array,
    into: BatchBytes,
  ): number;
  windowFind(state: WindowStateHandle, sliceStart: number, accountId: bigint, into: BatchBytes): number;
  windowSlices(state: WindowStateHandle, out: Float64Array): number;
  windowKeys(state: WindowStateHandle): number;
  windowBytes(state: WindowStateHandle): number;
  windowDrop(state: WindowStateHandle, sliceStart: number): void;
  windowTrim(state: WindowStateHandle): void;
  windowSeal(state: WindowStateHandle, sliceStart: number): SortedRunHandle;
  windowRunSort(run: SortedRunHandle): Promise<void>;
  windowRunRows(run: SortedRunHandle): number;
  windowRunBytes(run: SortedRunHandle): number;
  windowRunRead(run: SortedRunHandle, from: number, into: BatchBytes): number;
  windowRunReadAside(run: SortedRunHandle, from: number, into: BatchBytes): Promise<number>;
  windowRunFind(run: SortedRunHandle, accountId: bigint, into: BatchBytes): number;
  windowRunClose(run: SortedRunHandle): void;
  windowMerge(
    pages: readonly BatchBytes[],
    cursors: Uint32Array,
    into: BatchBytes,
    steps: Uint32Array | null,
  ): number;
  windowMergeAhead(
    pages: readonly BatchBytes[],
    cursors: Uint32Array,
    into: BatchBytes,
    steps: Uint32Array | null,
  ): Promise<number>;
}

interface SessionFunctions {
  sessionMerge(
    gapMs: number,
    pages: readonly BatchBytes[],
    cursors: Uint32Array,
    open: BatchBytes,
    into: BatchBytes,
    steps: Uint32Array | null,
  ): number;
  sessionOpen(gapMs: number, shards: number, steps: Uint32Array | null): SessionStateHandle;
  sessionClose(state: SessionStateHandle): void;
  sessionAccumulate(
    state: SessionStateHandle,
    events: BatchBytes,
    admitted: BatchBytes,
    ...values: Values
  ): void;
  sessionDeltaBytesMax(state: SessionStateHandle): number;
  sessionEncodeDeltas(state: SessionStateHandle, out: Uint8Array): number;
  sessionApplyDeltas(
    state: SessionStateHandle,
    bytes: Uint8Array,
    seq: number,
    covered: Float64Array | null,
  ): number;
  sessionReserve(state: SessionStateHandle, rows: number): void;
  sessionLoad(state: SessionStateHandle, rows: BatchBytes, count: number): void;
  sessionCopy(state: SessionStateHandle, cursor: Float64Array, into: BatchBytes): number;
  sessionCopyRange(state: SessionStateHandle, range: number, cursor: Float64Array, into: BatchBytes): number;
  sessionFind(state: SessionStateHandle, accountId: bigint, into: BatchBytes): number;
  sessionFire(state: SessionStateHandle, watermark: number): SortedRunHandle;
  sessionDetach(state: SessionStateHandle): SortedRunHandle;
  sessionTrim(state: SessionStateHandle): void;
  sessionLeastEnd(state: SessionStateHandle): number;
  sessionCount(state: SessionStateHandle): number;
  sessionMerged(state: SessionStateHandle): number;
  sessionBytes(state: SessionStateHandle): number;
}

interface FileFunctions {
  /** Acquires an exclusive flock(2) on an open file without waiting. Returns 0 or the errno. */
  tryLockFile(fd: number): number;
  /** Returns 0 where an open pipe or socket has no reader any more, else 1. */
  hasReader(fd: number): number;
}

export interface Addon
  extends Identity,
    KernelFunctions,
    CodecFunctions,
    JsonFunctions,
    KeyFunctions,
    GenFunctions,
    WindowFunctions,
    SessionFunctions,
    FileFunctions,
    BrokerFunctions {}

/** ABI number. It grows when a function of the addon changes its meaning; native/binding/addon.cc
 *  has the same number. */
export const ADDON_ABI = 6;

/** Bytes of a batch for the addon. Node-API reads an ArrayBuffer directly, and shared memory only
 *  through a view. */
export function batchBytes(batch: { readonly buffer: ArrayBufferLike }): BatchBytes {
  return batch.buffer instanceof ArrayBuffer ? batch.buffer : new Uint8Array(batch.buffer);
}
