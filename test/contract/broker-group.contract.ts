/** Members of a group share the partitions. Together they commit every row once and in order,
 *  whenever members join and leave. */
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type {
  BatchConsumer,
  BrokerProperties,
  Rebalance,
  TopicPartitionOffset,
} from '../../src/io/kafka/port.ts';
import { pause, until } from '../wait.ts';
import {
  type BrokerSubject,
  batchOf,
  fresh,
  readUntil,
  rowCount,
  rowsOf,
  utf8,
  World,
} from './broker-world.ts';

const PARTITIONS = 4;
const ROWS = 12_000;

/** Offsets that the group has committed; checks that no row is skipped or processed twice. */
class Ledger {
  readonly next = new Array<bigint>(PARTITIONS).fill(0n);
  readonly faults: string[] = [];
  commits = 0;
  private readonly unanswered = new Map<number, bigint>();

  recordCommit(member: string, partition: number, from: bigint, to: bigint): void {
    if (this.next[partition] !== from && this.unanswered.get(partition) !== from)
      this.faults.push(`${member} committed ${partition}/${from}..${to} after ${this.next[partition]}`);
    this.next[partition] = to;
    this.unanswered.delete(partition);
    this.commits++;
  }

  /** Records a commit without an answer: the next owner begins at its offset if the group stored
   *  it. */
  recordUnanswered(partition: number, to: bigint): void {
    this.unanswered.set(partition, to);
  }

  get done(): bigint {
    return this.next.reduce((sum, one) => sum + one, 0n);
  }
}

class Member {
  readonly name: string;
  readonly rebalances: Rebalance[] = [];
  consumer!: BatchConsumer;
  private readonly ledger: Ledger;
  private readonly topic: string;
  /** Rows read and not committed, as offsets from and to, by partition. */
  private readonly read = new Map<number, { from: bigint; to: bigint }>();
  private stopping = false;
  private running: Promise<void> = Promise.resolve();

  constructor(name: string, ledger: Ledger, topic: string) {
    this.name = name;
    this.ledger = ledger;
    this.topic = topic;
  }

  async join(world: World, group: string, properties: BrokerProperties): Promise<void> {
    this.consumer = await world.consumer({
      group,
      properties,
      onRebalance: async (rebalance) => {
        this.rebalances.push(rebalance);
        if (rebalance.kind === 'lost')
          for (const { partition } of rebalance.partitions) this.read.delete(partition);
        if (rebalance.kind !== 'revoked') return;
        const partitions = rebalance.partitions.map((one) => one.partition);
        await this.commit(partitions);
        // The next owner reads uncommitted rows again.
        for (const partition of partitions) {
          const left = this.read.get(partition);
          if (left !== undefined) this.ledger.recordUnanswered(partition, left.to);
          this.read.delete(partition);
        }
      },
    });
    await this.consumer.subscribe([this.topic]);
    this.running = this.run();
  }

  async leave(): Promise<void> {
    this.stopping = true;
    await this.running;
    await this.consumer.close();
  }

  private async commit(partitions: readonly number[]): Promise<void> {
    const taken = partitions.flatMap((partition) => {
      const span = this.read.get(partition);
      this.read.delete(partition);
      return span === undefined ? [] : [{ partition, ...span }];
    });
    if (taken.length === 0) return;
    const outcome = await this.consumer.commit(
      taken.map((one) => ({ topic: this.topic, partition: one.partition, offset: one.to })),
    );
    for (const { partition, from, to } of taken) {
      if (outcome === 'committed') this.ledger.recordCommit(this.name, partition, from, to);
      else this.read.set(partition, { from, to: this.read.get(partition)?.to ?? to });
    }
  }

  private async run(): Promise<void> {
    const into = RecordBatch.create(64, 1 << 14);
    for (let round = 0; !this.stopping; round++) {
      await this.consumer.consume(into, 50);
      for (let row = 0; row < into.rowCount; row++) {
        const partition = into.columns.partition[row] as number;
        const offset = into.columns.offset[row] as bigint;
        const span = this.read.get(partition) ?? { from: offset, to: offset };
        if (span.to !== offset)
          this.ledger.faults.push(`${this.name} read ${partition}/${offset} after ${span.to}`);
        this.read.set(partition, { from: span.from, to: offset + 1n });
      }
      if (round % 3 === 2) await this.commit([...this.read.keys()]);
      // Slow enough that the other member joins before all rows are read.
      await pause(2);
    }
  }
}

/** Commits as a member does whose group replies late: it reads after `not_now` and commits
 *  again. */
async function committed(consumer: BatchConsumer, at: TopicPartitionOffset): Promise<void> {
  const into = RecordBatch.create(8, 1024);
  const outcome = await until('an answer of the group to a commit', async () => {
    const answer = await consumer.commit([at]);
    if (answer !== 'not_now') return answer;
    await consumer.consume(into, 50);
    return undefined;
  });
  expect(outcome).toBe('committed');
}

export function groupContract(subject: BrokerSubject): void {
  describe(`${subject.driver.name}: group`, () => {
    const world = new World(subject);

    for (const strategy of ['cooperative-sticky', 'range']) {
      it(`members that join and leave share the work exactly once and in order (${strategy})`, async () => {
        const topic = await world.topic(PARTITIONS);
        const producer = await world.producer();
        const rows = Array.from({ length: ROWS }, (_, i) => ({
          partition: i % PARTITIONS,
          value: utf8.encode(String(i)),
        }));
        expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
        const ledger = new Ledger();
        const group = fresh('group');
        const properties = {
          'partition.assignment.strategy': strategy,
          'heartbeat.interval.ms': 200,
          'session.timeout.ms': 45_000,
        };
        const committedRows = (rows: number): Promise<boolean> =>
          until(`${rows} committed rows`, () => ledger.done >= BigInt(rows) || ledger.faults.length > 0);
        const [first, second] = ['first', 'second'].map((name) => new Member(name, ledger, topic)) as [
          Member,
          Member,
        ];
        await first.join(world, group, properties);
        await committedRows(ROWS / 10);
        await second.join(world, group, properties);
        await committedRows(ROWS / 2);
        await first.leave();
        await committedRows(ROWS);
        await second.leave();
        expect(ledger.faults).toEqual([]);
        expect(ledger.next).toEqual(new Array(PARTITIONS).fill(BigInt(ROWS / PARTITIONS)));
        expect(first.rebalances[0]).toMatchObject({ kind: 'assigned' });
        expect(first.rebalances.some((one) => one.kind === 'revoked' && one.partitions.length > 0)).toBe(
          true,
        );
        expect(second.rebalances.some((one) => one.kind === 'assigned' && one.partitions.length > 0)).toBe(
          true,
        );
      });
    }

    it('a member that is notified of partition ends and keeps its partitions through rebalances reads each record once', async () => {
      const topic = await world.topic(PARTITIONS);
      const producer = await world.producer();
      const send = async (): Promise<void> => {
        const rows = Array.from({ length: PARTITIONS }, (_, partition) => ({
          partition,
          value: utf8.encode('x'),
        }));
        expect((await producer.produce(batchOf(rows), [topic])).failed).toBe(0);
      };
      const group = fresh('group');
      const properties = { 'heartbeat.interval.ms': 200, 'session.timeout.ms': 45_000 };
      const kept = new Set(Array.from({ length: PARTITIONS }, (_, partition) => partition));
      const first = await world.consumer({
        group,
        properties,
        partitionEof: true,
        onRebalance: ({ kind, partitions }) => {
          if (kind !== 'assigned') for (const { partition } of partitions) kept.delete(partition);
        },
      });
      await first.subscribe([topic]);
      await send();
      const before = await readUntil(
        first,
        ({ rows, ends }) =>
          rows.length >= PARTITIONS && new Set(ends.map(({ partition }) => partition)).size === PARTITIONS,
      );

      const second = await world.consumer({ group, properties });
      await second.subscribe([topic]);
      const seen = [...before.rows];
      const into = RecordBatch.create(8, 1024);
      const readOn = async (enough: () => boolean, beside?: BatchConsumer): Promise<void> => {
        await until('a reading that is enough', async () => {
          if (enough()) return true;
          await beside?.consume(into, 50);
          await first.consume(into, 50);
          seen.push(...rowsOf(into, first.topics));
          return enough();
        });
      };
      await readOn(() => second.assignment().length > 0, second);
      await Promise.all([second.close(), readOn(() => first.assignment().length === PARTITIONS)]);

      expect(kept.size).toBeGreaterThan(0);
      await send();
      const seenOfKept = (): readonly string[] =>
        seen.filter(({ partition }) => kept.has(partition)).map((row) => `${row.partition}/${row.offset}`);
      await readOn(() => new Set(seenOfKept()).size === 2 * kept.size);
      // Rows that are read twice arrive immediately, too.
      await first.consume(into, 500);
      seen.push(...rowsOf(into, first.topics));
      expect([...seenOfKept()].sort()).toEqual(
        [...kept].flatMap((partition) => [`${partition}/0`, `${partition}/1`]),
      );
    });

    it('a new member starts at the offset that the group has committed', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 30);
      const group = fresh('group');
      const before = await world.consumer({ group });
      await before.subscribe([topic]);
      await readUntil(before, rowCount(30));
      expect(before.assignment()).toEqual([{ topic, partition: 0 }]);
      await committed(before, { topic, partition: 0, offset: 12n });
      await before.close();
      const after = await world.consumer({ group });
      await after.subscribe([topic]);
      const { rows } = await readUntil(after, rowCount(18));
      expect(rows[0]?.offset).toBe(12n);
    });

    it('a commit in the middle of a rebalance is refused before the rebalance ends, and accepted after it', async () => {
      const topic = await world.topic(2);
      await world.numbered(topic, 30);
      const group = fresh('group');
      const slow = await world.slowMember(group, topic, 2);
      const properties = { 'heartbeat.interval.ms': 200, 'session.timeout.ms': 45_000 };
      const consumer = await world.consumer({ group, properties });
      await slow.enter();
      await consumer.subscribe([topic]);
      const gathered = slow.gather();
      await readUntil(consumer, rowCount(30));
      await gathered;
      const at = { topic, partition: 0 };
      await committed(consumer, { ...at, offset: 12n });
      await slow.stall();
      // The rebalance ends with complete(), so this answer does not wait for it.
      expect(await consumer.commit([{ ...at, offset: 20n }])).toBe('not_now');
      const probe = await world.consumer({ group });
      expect(await probe.committed([at])).toEqual([{ ...at, offset: 12n }]);
      await slow.complete();
      await committed(consumer, { ...at, offset: 20n });
      expect(await probe.committed([at])).toEqual([{ ...at, offset: 20n }]);
    });

    it('a member continues when onRebalance fails, and reports the failure', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 3);
      const consumer = await world.consumer({
        group: fresh('group'),
        onRebalance: () => {
          throw new Error('no');
        },
      });
      await consumer.subscribe([topic]);
      const { events } = await readUntil(consumer, (so) => so.rows.length >= 3 && so.events.length > 0);
      expect(events[0]).toMatchObject({ name: '_APPLICATION', message: 'onRebalance failed: no' });
    });
  });
}
