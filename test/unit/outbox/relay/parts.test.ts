/** Small parts of the relay: the assignment of keys to shards, and the widening of transaction
 *  ids. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { widen } from '../../../../src/outbox/relay/poll/safe-id-horizon.ts';
import { isShardCount, shardOf } from '../../../../src/outbox/relay/shards.ts';

describe('shards', () => {
  it('shard counts are powers of two up to 256, and every key has a shard', () => {
    expect([1, 2, 16, 256].every(isShardCount)).toBe(true);
    expect([0, 3, 512, 1.5].some(isShardCount)).toBe(false);
    fc.assert(
      fc.property(fc.uuid(), fc.constantFrom(1, 2, 16, 256), (id, shards) => {
        const bytes = Buffer.from(id.replaceAll('-', ''), 'hex');
        expect(shardOf(id, shards)).toBe(((bytes[3] as number) ^ (bytes[15] as number)) % shards);
      }),
    );
  });
});

describe('transaction ids', () => {
  it('a transaction id is widened to the epoch in which it was assigned', () => {
    const span = 1n << 32n;
    expect(widen(5n, 3n * span + 10n)).toBe(3n * span + 5n);
    expect(widen(0xffff_fff0n, 3n * span + 10n)).toBe(2n * span + 0xffff_fff0n);
  });
});
