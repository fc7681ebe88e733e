/** Shard hash. Definition and vectors: docs/reference/shard-hash.md; the addon's implementation is
 *  native/kernel/hash.cc. */
import type { EventBatch } from '../../core/layout/event-batch.ts';
import { SHARD_HASH_SEED } from '../surface.ts';
import { demandInteger, demandRows, rowsOf } from './check.ts';

function mix(hash: number, block: number): number {
  let k = Math.imul(block, 0xcc9e2d51);
  k = (k << 15) | (k >>> 17);
  let h = hash ^ Math.imul(k, 0x1b873593);
  h = (h << 13) | (h >>> 19);
  return (Math.imul(h, 5) + 0xe6546b64) | 0;
}

/** MurmurHash3 x86_32 of eight bytes, given as two little-endian words. Returns u32. */
export function shardHash(low: number, high: number): number {
  let h = mix(mix(SHARD_HASH_SEED, low), high);
  h ^= 8; // length in bytes
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Kernels.shardOf. */
export function shardOf(events: EventBatch, shards: number, out: Int32Array): void {
  const rows = rowsOf(events, 'events');
  demandInteger(shards, 1, 0x7fff_ffff, 'shards');
  demandRows(out.length, rows, 'out');
  const words = new Int32Array(events.buffer, events.columns.accountId.byteOffset, rows * 2);
  for (let row = 0; row < rows; row++) {
    out[row] = shardHash(words[2 * row] as number, words[2 * row + 1] as number) % shards;
  }
}
