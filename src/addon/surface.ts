/** Kernels: one interface for the addon and the TypeScript reference implementation.
 *
 *  Ownership: every batch and array belongs to the caller; a kernel borrows it until it returns.
 *  Kernels allocate nothing for single rows. They report invalid data in counts and status columns,
 *  never by an exception. */
import type { EventBatch } from '../core/layout/event-batch.ts';
import type { FrameBatch } from '../core/layout/frame-batch.ts';
import type { RecordBatch } from '../core/layout/record-batch.ts';

export interface Kernels {
  /** `native` or `reference`; it is logged, and the metric `native_addon_loaded` is 1 or 0. */
  readonly name: 'native' | 'reference';

  /** Computes the shard of each key: MurmurHash3 x86_32 (seed SHARD_HASH_SEED) of the 8
   *  little-endian bytes of account_id, as an unsigned number modulo `shards`.
   *  @shape out i32[events.rowCount] */
  shardOf(events: EventBatch, shards: number, out: Int32Array): void;

  /** Decodes the value of each record, 256 B little-endian, into columns. Rows keep their number;
   *  `status` marks the values that could not be decoded. Returns the number of rows with status
   *  OK.
   *  @throws out_of_range when `into` has too few rows */
  decodeEvents(records: RecordBatch, into: EventBatch): number;

  /** Reads the 5-byte header of each value, and with `protobuf` the message indexes behind it.
   *  Returns the number of rows with status OK. Never reads outside a value's span. */
  scanFrames(records: RecordBatch, protobuf: boolean, into: FrameBatch): number;

  /** Appends one framed record for each payload from row `into.rowCount` on, with topicIndex 0,
   *  partition -1 and a null key. Header, message indexes (Protobuf) and payload are copied into
   *  the arena of `into`. Returns the number of payloads written. It is lower than `count` when
   *  rows or arena are full; then no part of the next payload is written.
   *  @shape payloadStart u32[n], payloadLength i32[n] over `payloads` */
  writeFrames(
    payloads: Uint8Array,
    payloadStart: Uint32Array,
    payloadLength: Int32Array,
    count: number,
    schemaId: number,
    messageIndexes: Int32Array | null,
    into: RecordBatch,
  ): number;
}

/** Seed of the shard hash; part of the published definition, so it never changes. */
export const SHARD_HASH_SEED = 0x4d52_4331;
