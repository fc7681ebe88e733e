/** The raw addon, in the order of native/binding: identity, kernels, generator, broker client.
 *
 *  A batch crosses as its bytes: the ArrayBuffer itself, or a Uint8Array over all of a SharedArrayBuffer. Every call
 *  checks what it gets: a wrong type is a TypeError, everything else an Error with a code of core/errors.ts. Only
 *  load.ts and the drivers see this surface.
 */
import type { BrokerFunctions } from './broker-functions.ts';
import type { BatchBytes } from './bytes.ts';

interface Identity {
  /** LAYOUT_FINGERPRINT of the sources the addon was built from. */
  readonly layoutFingerprint: number;
  /** ADDON_ABI of the same. */
  readonly abi: number;
}

interface KernelFunctions {
  shardOf(events: BatchBytes, shards: number, out: Int32Array): void;
  decodeEvents(records: BatchBytes, into: BatchBytes): number;
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

export interface Addon extends Identity, KernelFunctions, GenFunctions, BrokerFunctions {}

/** Grows when a function of the addon changes its meaning; native/binding/addon.cc has the same number. */
export const ADDON_ABI = 1;

/** The form in which a batch crosses: Node-API can look into an ArrayBuffer, into shared memory only through a view. */
export function batchBytes(batch: { readonly buffer: ArrayBufferLike }): BatchBytes {
  return batch.buffer instanceof ArrayBuffer ? batch.buffer : new Uint8Array(batch.buffer);
}
