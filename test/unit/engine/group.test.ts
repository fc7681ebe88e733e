/** The lease on a topic: when it is complete, which offsets it commits, and which member yields. A
 *  leased source reads only under the lease. */
import { describe, expect, it } from 'vitest';
import { silentLogger } from '../../../src/core/log.ts';
import { GroupLease } from '../../../src/engine/source/group.ts';
import { LeasedSource } from '../../../src/engine/source/leased.ts';
import { brokerError } from '../../../src/io/kafka/errors.ts';
import type {
  BatchConsumer,
  ConsumeResult,
  Rebalance,
  TopicPartitionOffset,
} from '../../../src/io/kafka/port.ts';
import { MemorySource } from '../../property/engine-kit.ts';

const PARTITIONS = 3;
const STALL_MS = 1_000;
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Consumer group whose assignments and clock the test controls. */
class Group {
  now = 0;
  joined = 0;
  left = 0;
  readonly paused: number[] = [];
  readonly commits: number[][] = [];
  commitFails = false;
  refusal: Error | undefined;
  /** Number of commits that find the group busy, each after STALL_MS. */
  stalls = 0;
  private onRebalance: (rebalance: Rebalance) => void = () => {};
  readonly lease = new GroupLease({
    topic: 'events',
    partitionCount: () => PARTITIONS,
    join: async (onRebalance) => {
      this.joined++;
      this.onRebalance = onRebalance;
      return this.member as BatchConsumer;
    },
    clock: { monotonicMs: () => this.now, wallNowMs: () => this.now },
    log: silentLogger,
    sleep: async (ms) => {
      this.now += ms;
      await turn();
    },
    random: () => 0.5,
  });
  private readonly member: Pick<BatchConsumer, 'subscribe' | 'consume' | 'pause' | 'commit' | 'close'> = {
    subscribe: async () => {},
    consume: async (): Promise<ConsumeResult> => {
      this.now += 100;
      await turn();
      if (this.refusal !== undefined) throw this.refusal;
      return { rowCount: 0, ends: [], events: [] };
    },
    pause: async (places) => void this.paused.push(...places.map(({ partition }) => partition)),
    commit: async (offsets: readonly TopicPartitionOffset[]) => {
      if (this.commitFails) throw new Error('refused');
      if (this.stalls > 0) {
        this.stalls--;
        this.now += STALL_MS;
        return 'not_now';
      }
      this.commits.push(offsets.map(({ offset }) => Number(offset)));
      return 'committed';
    },
    close: async () => {
      this.left++;
    },
  };

  rebalance(kind: Rebalance['kind'], ...partitions: readonly number[]): void {
    this.onRebalance({ kind, partitions: partitions.map((partition) => ({ topic: 'events', partition })) });
  }
  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) await turn();
  }
}

async function joined(): Promise<Group> {
  const group = new Group();
  group.lease.start();
  await group.until(() => group.joined === 1);
  return group;
}

describe('topic lease', () => {
  it('the lease is complete while it has every partition, and reads no partition itself', async () => {
    const group = await joined();
    group.rebalance('assigned', 0, 1);
    expect(group.lease.isWhole).toBe(false);
    group.rebalance('assigned', 2);
    expect(group.lease.isWhole).toBe(true);
    await group.until(() => group.paused.length === 3);
    group.rebalance('revoked', 1);
    expect([group.lease.isWhole, group.lease.has(1), group.lease.has(2)]).toEqual([false, false, true]);
    await group.lease.close();
    expect(group.left).toBe(1);
  });

  it('a leased source fails when the access control list refuses its group', async () => {
    const group = new Group();
    const source = new LeasedSource(new MemorySource([], 1, 10), group.lease, async () => {});
    group.refusal = brokerError('broker_forbidden', 'Group authorization failed');
    group.lease.start();
    await group.until(() => group.left === 1);
    await expect(source.next(0)).rejects.toBe(group.refusal);
    await group.lease.close();
    expect(group.joined).toBe(1);
  });

  it('a member joins again after any other error', async () => {
    const group = new Group();
    group.refusal = brokerError('broker_unavailable', 'no coordinator');
    group.lease.start();
    await group.until(() => group.joined === 2);
    group.lease.check();
    await group.lease.close();
  });

  it('the lease commits the newest offsets while it is complete, and at its end', async () => {
    const group = await joined();
    group.lease.commit([1, 2, 3]);
    for (let i = 0; i < 5; i++) await turn();
    expect(group.commits).toEqual([]);
    group.rebalance('assigned', 0, 1, 2);
    await group.until(() => group.commits.length === 1);
    group.commitFails = true;
    group.lease.commit([2, 3, 4]);
    for (let i = 0; i < 5; i++) await turn();
    group.commitFails = false;
    group.lease.commit([5, 6, 7]);
    await group.lease.close();
    expect(group.commits).toEqual([
      [1, 2, 3],
      [5, 6, 7],
    ]);
  });

  it('the lease retries its last offsets while the group is busy, up to its limit', async () => {
    const group = await joined();
    group.rebalance('assigned', 0, 1, 2);
    group.lease.commit([1, 2, 3]);
    group.stalls = 3;
    await group.lease.close(5_000);
    expect([group.commits, group.left]).toEqual([[[1, 2, 3]], 1]);

    const other = await joined();
    other.rebalance('assigned', 0, 1, 2);
    other.lease.commit([1, 2, 3]);
    other.stalls = Number.POSITIVE_INFINITY;
    const from = other.now;
    await other.lease.close(5_000);
    expect([other.commits, other.left]).toEqual([[], 1]);
    expect(other.now - from).toBeLessThan(5_000 + 2 * STALL_MS);
  });

  it('the lease commits at its end the offsets that were refused before and meanwhile', async () => {
    const group = await joined();
    group.rebalance('assigned', 0, 1, 2);
    group.commitFails = true;
    group.lease.commit([1, 2, 3]);
    for (let i = 0; i < 5; i++) await turn();
    const closing = group.lease.close(5_000);
    for (let i = 0; i < 5; i++) await turn();
    group.commitFails = false;
    await closing;
    expect([group.commits, group.left]).toEqual([[[1, 2, 3]], 1]);
  });

  it('the lease leaves the group soon with a partial assignment if it has not read, and rejoins', async () => {
    const group = await joined();
    group.rebalance('assigned', 1);
    const from = group.now;
    await group.until(() => group.left === 1);
    expect(group.now - from).toBeLessThan(2_000);
    expect(group.lease.has(1)).toBe(false);
    await group.until(() => group.joined === 2);
    await group.lease.close();
  });

  it('the lease waits for the other partitions if it has read, but not forever, and not after a lost session', async () => {
    const group = await joined();
    group.rebalance('assigned', 0, 1, 2);
    await turn();
    group.rebalance('revoked', 1);
    const from = group.now;
    await group.until(() => group.left === 1);
    expect(group.now - from).toBeGreaterThan(29_000);
    await group.until(() => group.joined === 2);
    group.rebalance('assigned', 0, 1, 2);
    group.rebalance('lost', 0, 1, 2);
    group.rebalance('assigned', 2);
    const again = group.now;
    await group.until(() => group.left === 2);
    expect(group.now - again).toBeLessThan(2_000);
    await group.lease.close();
  });
});

describe('leased source', () => {
  const events = [1n, 2n, 3n, 4n].map((eventTs) => ({
    partition: 0,
    accountId: 1n,
    value: 1n,
    eventTs,
  }));

  function leased() {
    const held = new Set<number>();
    const committed: Array<readonly number[]> = [];
    const reader = new MemorySource(events, 2, 2);
    const lease = {
      holds: (partitions: number) =>
        Array.from({ length: partitions }, (_, p) => p).every((p) => held.has(p)),
      has: (partition: number) => held.has(partition),
      check: () => {},
      commit: (offsets: readonly number[]) => void committed.push(offsets),
    };
    return { source: new LeasedSource(reader, lease, turn), reader, held, committed };
  }

  it('a leased source returns nothing without its lease, and then everything in order', async () => {
    const { source, reader, held } = leased();
    await source.start([0, 0]);
    expect([await source.next(1), source.endOf(0)]).toEqual([undefined, -1]);
    held.add(0);
    expect(await source.next(1)).toBeUndefined();
    held.add(1);
    expect(source.endOf(0)).toBe(0);
    const read = reader.next.bind(reader);
    // The lease is lost while rows are in flight.
    reader.next = async () => {
      held.delete(1);
      return read();
    };
    expect(await source.next(1)).toBeUndefined();
    reader.next = read;
    held.add(1);
    const offsets: bigint[] = [];
    for (let i = 0; i < 2; i++) {
      const rows = await source.next(1);
      offsets.push(...(rows?.records.columns.offset.subarray(0, rows.records.rowCount) ?? []));
    }
    expect(offsets).toEqual([0n, 1n, 2n, 3n]);
  });

  it("a leased source starts at the group's assignment and reports the saved offsets", async () => {
    const { source, reader, held, committed } = leased();
    reader.added = async () => [0, 0, 0];
    expect(await source.added()).toEqual([]);
    held.add(2).add(4);
    expect(await source.added()).toEqual([0]);
    held.add(3);
    expect(await source.added()).toEqual([0, 0, 0]);
    source.saved([3, 4]);
    expect(committed).toEqual([[3, 4]]);
  });
});
