/** Shard hash: published vectors, an oracle by the definition of MurmurHash3, both kernels. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SHARD_HASH_SEED } from '../../src/addon/surface.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { runs } from '../tier.ts';
import { both, fillWithPattern, native, outcome, reference } from './kernel-kit.ts';

interface Vector {
  readonly account_id: string;
  readonly hash: number;
  readonly [shards: `shard_of_${number}`]: number;
}
const published = JSON.parse(
  readFileSync(new URL('../vectors/shard-hash.json', import.meta.url), 'utf8'),
) as { seed: number; vectors: Vector[] };

/** MurmurHash3 x86_32 of any bytes, in big integers. */
function murmur3(bytes: Uint8Array, seed: number): number {
  const word = (x: bigint): bigint => x & 0xffff_ffffn;
  const rotate = (x: bigint, bits: bigint): bigint => word(x << bits) | (x >> (32n - bits));
  const scramble = (block: bigint): bigint => word(rotate(word(block * 0xcc9e2d51n), 15n) * 0x1b873593n);
  const read = (from: number, to: number): bigint =>
    [...bytes.subarray(from, to)].reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);
  let hash = BigInt(seed);
  let at = 0;
  for (; at + 4 <= bytes.length; at += 4)
    hash = word(rotate(hash ^ scramble(read(at, at + 4)), 13n) * 5n + 0xe6546b64n);
  if (at < bytes.length) hash ^= scramble(read(at, bytes.length));
  hash ^= BigInt(bytes.length);
  hash = word((hash ^ (hash >> 16n)) * 0x85ebca6bn);
  hash = word((hash ^ (hash >> 13n)) * 0xc2b2ae35n);
  return Number(hash ^ (hash >> 16n));
}

function bytesOf(accountId: bigint): Uint8Array {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, accountId, true);
  return bytes;
}

function eventsOf(accountIds: readonly bigint[], shared = false): EventBatch {
  const events = EventBatch.create(Math.max(1, accountIds.length), shared);
  events.columns.accountId.set(accountIds);
  events.rowCount = accountIds.length;
  return events;
}

const ids = fc.array(fc.bigInt(0n, 2n ** 64n - 1n), { maxLength: 40 });
const shardCounts = fc.oneof(
  fc.integer({ min: 1, max: 0x7fff_ffff }),
  fc.integer({ min: 1, max: 70 }),
  fc.nat(30).map((bits) => 2 ** bits),
);

describe('shard hash', () => {
  it('the oracle agrees with published vectors of MurmurHash3 x86_32', () => {
    const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
    expect(murmur3(utf8(''), 0)).toBe(0);
    expect(murmur3(utf8(''), 1)).toBe(0x514e28b7);
    expect(murmur3(utf8(''), 0xffffffff)).toBe(0x81f16f39);
    expect(murmur3(Uint8Array.of(0xff, 0xff, 0xff, 0xff), 0)).toBe(0x76293b50);
    expect(murmur3(Uint8Array.of(0x21, 0x43, 0x65, 0x87), 0)).toBe(0xf55b516b);
    expect(murmur3(Uint8Array.of(0x21, 0x43, 0x65, 0x87), 0x5082edee)).toBe(0x2362f9de);
    expect(murmur3(Uint8Array.of(0x21, 0x43, 0x65), 0)).toBe(0x7e4a8634);
    expect(murmur3(utf8('aaaa'), 0x9747b28c)).toBe(0x5a97808a);
    expect(murmur3(utf8('Hello, world!'), 0x9747b28c)).toBe(0x24884cba);
    expect(murmur3(utf8('The quick brown fox jumps over the lazy dog'), 0x9747b28c)).toBe(0x2fa826cd);
  });

  it('every published vector matches in seed, hash and shards', () => {
    expect(published.seed).toBe(SHARD_HASH_SEED);
    expect(published.vectors.length).toBeGreaterThan(40);
    const events = eventsOf(published.vectors.map((vector) => BigInt(vector.account_id)));
    const out = new Int32Array(events.rowCount);
    for (const vector of published.vectors)
      expect(murmur3(bytesOf(BigInt(vector.account_id)), SHARD_HASH_SEED)).toBe(vector.hash);
    for (const kernels of [reference, native]) {
      for (const shards of [2, 7, 16, 1000] as const) {
        kernels.shardOf(events, shards, out);
        expect([...out]).toEqual(published.vectors.map((vector) => vector[`shard_of_${shards}`]));
      }
    }
  });

  it('docs/reference/shard-hash.md lists the vectors as well', () => {
    const text = readFileSync(new URL('../../docs/reference/shard-hash.md', import.meta.url), 'utf8');
    const rows = [...text.matchAll(/^\| `(\d+)` \| `0x([0-9a-f]{8})` \| (\d+) \| (\d+) \| (\d+) \|$/gm)];
    expect(rows.length).toBeGreaterThanOrEqual(8);
    for (const [, id, hash, ...shards] of rows) {
      const vector = published.vectors.find((one) => one.account_id === id);
      expect([parseInt(hash as string, 16), ...shards.map(Number)], id).toEqual([
        vector?.hash,
        vector?.shard_of_2,
        vector?.shard_of_7,
        vector?.shard_of_16,
      ]);
    }
  });

  it.each([reference, native])(
    'the shard hash equals the oracle modulo any number of shards: $name',
    (kernels) => {
      fc.assert(
        fc.property(ids, shardCounts, fc.boolean(), (accountIds, shards, shared) => {
          const out = new Int32Array(accountIds.length);
          kernels.shardOf(eventsOf(accountIds, shared), shards, out);
          expect([...out]).toEqual(accountIds.map((id) => murmur3(bytesOf(id), SHARD_HASH_SEED) % shards));
        }),
        { numRuns: runs(200) },
      );
    },
  );

  it('the shard hash is the same in both kernels for any header, shard number and output', () => {
    const word = fc.oneof(fc.nat(50), fc.integer({ min: 0, max: 0xffff_ffff }));
    const shardNumbers = fc.oneof(
      shardCounts,
      fc.constantFrom(0, -1, 0.5, Number.NaN, Infinity, 2 ** 31, 2 ** 32),
    );
    fc.assert(
      fc.property(
        ids,
        fc.option(fc.record({ at: fc.constantFrom(0, 2, 3), value: word })),
        shardNumbers,
        fc.nat(45),
        (accountIds, lie, shards, room) => {
          const [fromReference, addon] = both(
            () => {
              const events = eventsOf(accountIds);
              if (lie !== null) events.columns.header[lie.at] = lie.value;
              return { events, out: fillWithPattern({ buffer: new ArrayBuffer(64 + room * 4) }, 3) };
            },
            (kernels, { events, out }) => {
              kernels.shardOf(events, shards, new Int32Array(out.buffer, 64));
              return undefined;
            },
            ({ events, out }) => [events, out],
          );
          expect(addon).toEqual(fromReference);
        },
      ),
      { numRuns: runs(400) },
    );
  });

  it.each([reference, native])('the shard hash spreads consecutive accounts evenly: $name', (kernels) => {
    const events = eventsOf(Array.from({ length: 40_000 }, (_, i) => BigInt(i)));
    const out = new Int32Array(40_000);
    for (const shards of [2, 3, 4, 7, 8, 16]) {
      kernels.shardOf(events, shards, out);
      const counts = new Array<number>(shards).fill(0);
      for (const shard of out) counts[shard] = (counts[shard] as number) + 1;
      const even = 40_000 / shards;
      // Five standard deviations of a uniform distribution.
      for (const count of counts) expect(Math.abs(count - even)).toBeLessThan(5 * Math.sqrt(even));
    }
  });

  it('the shard hash refuses an output that is too short', () => {
    const events = eventsOf([1n, 2n, 3n]);
    for (const kernels of [reference, native])
      expect(
        outcome(() => {
          kernels.shardOf(events, 4, new Int32Array(2));
          return undefined;
        }),
      ).toBe('out_of_range');
  });
});
