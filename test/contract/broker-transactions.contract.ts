/** Transactions: all of their rows or none, one writer per transactional id, and both isolation
 *  levels. */
import { describe, expect, it } from 'vitest';
import type { TransactionalOptions, TransactionalProducer } from '../../src/io/kafka/port.ts';
import { allOf, type BrokerSubject, batchOf, fresh, readUntil, utf8, World } from './broker-world.ts';

const STEP_MS = 60_000;

export function transactionContract(subject: BrokerSubject): void {
  describe(`${subject.driver.name}: transactions`, () => {
    const world = new World(subject);

    const writer = async (
      transactionalId: string,
      options: Partial<TransactionalOptions> = {},
    ): Promise<TransactionalProducer> => {
      const producer = await world.transactional({
        transactionalId,
        properties: { 'linger.ms': 0 },
        transactionTimeoutMs: 60_000,
        ...options,
      });
      expect(await producer.init(STEP_MS)).toBeUndefined();
      return producer;
    };

    const send = async (producer: TransactionalProducer, topic: string, values: readonly string[]) => {
      const rows = values.map((value) => ({ partition: 0, value: utf8.encode(value) }));
      return producer.produce(batchOf(rows), [topic]);
    };

    const valuesOf = async (topic: string, isolation: 'committed' | 'uncommitted', end: bigint) => {
      const consumer = await world.consumer({ isolation, partitionEof: true });
      await consumer.assign(allOf(topic, 1));
      const { rows } = await readUntil(consumer, (so) => so.ends.some(({ offset }) => offset >= end));
      return rows.map(({ value }) => value);
    };

    it('a reader of committed rows gets only the committed rows, and another reader gets all rows', async () => {
      const topic = await world.topic(1);
      const producer = await writer(fresh('tx'));
      expect(await producer.begin()).toBeUndefined();
      expect([...(await send(producer, topic, ['a', 'b'])).offset]).toEqual([0n, 1n]);
      expect(await producer.commit(STEP_MS)).toBeUndefined();
      expect(await producer.begin()).toBeUndefined();
      expect([...(await send(producer, topic, ['lost'])).offset]).toEqual([3n]);
      expect(await producer.abort(STEP_MS)).toBeUndefined();
      expect(await producer.begin()).toBeUndefined();
      expect([...(await send(producer, topic, ['c'])).offset]).toEqual([5n]);
      expect(await producer.commit(STEP_MS)).toBeUndefined();
      expect(await valuesOf(topic, 'committed', 7n)).toEqual(['a', 'b', 'c']);
      expect(await valuesOf(topic, 'uncommitted', 7n)).toEqual(['a', 'b', 'lost', 'c']);
    });

    it('a partition ends at its oldest open transaction for a reader of committed rows', async () => {
      const topic = await world.topic(1);
      const producer = await writer(fresh('tx'));
      await producer.begin();
      await send(producer, topic, ['open']);
      const ends = async (isolation: 'committed' | 'uncommitted'): Promise<bigint> => {
        const consumer = await world.consumer({ isolation });
        return (await consumer.watermarkOffsets({ topic, partition: 0 }, 10_000)).high;
      };
      expect(await ends('committed')).toBe(0n);
      expect(await ends('uncommitted')).toBe(1n);
      expect(await producer.commit(STEP_MS)).toBeUndefined();
      // A commit is acknowledged before its marker is in the partition.
      await expect.poll(() => ends('committed')).toBe(2n);
    });

    it('the older producer of a transactional id is fenced, and its open transaction is aborted', async () => {
      const topic = await world.topic(1);
      const id = fresh('tx');
      const older = await writer(id);
      await older.begin();
      await send(older, topic, ['old']);
      const newer = await writer(id);
      expect(await older.commit(STEP_MS)).toMatchObject({ kind: 'fenced' });
      await newer.begin();
      await send(newer, topic, ['new']);
      expect(await newer.commit(STEP_MS)).toBeUndefined();
      expect(await valuesOf(topic, 'committed', 4n)).toEqual(['new']);
      // No call of the fenced producer succeeds any more.
      expect(await older.begin()).toMatchObject({ kind: expect.stringMatching(/^(fenced|fatal)$/) });
    });

    it('a transactional producer refuses calls in the wrong order by a return value, and stays usable', async () => {
      const topic = await world.topic(1);
      const producer = await writer(fresh('tx'));
      expect(await producer.commit(1000)).toMatchObject({ event: { name: '_STATE' } });
      expect(await producer.begin()).toBeUndefined();
      expect(await producer.begin()).toMatchObject({ event: { name: '_STATE' } });
      await send(producer, topic, ['a']);
      expect(await producer.commit(STEP_MS)).toBeUndefined();
    });

    it('a transaction with a failed row cannot be committed, and the next one can after an abort', async () => {
      const topic = await world.topic(1);
      const producer = await writer(fresh('tx'));
      await producer.begin();
      const report = await producer.produce(
        batchOf([{ partition: 0, value: Buffer.alloc(2_000_000) }], 1 << 22),
        [topic],
      );
      expect(report.failed).toBe(1);
      const failure = await producer.commit(STEP_MS);
      if (failure !== undefined) expect(failure.kind).toBe('abort');
      if (failure !== undefined) expect(await producer.abort(STEP_MS)).toBeUndefined();
      await producer.begin();
      await send(producer, topic, ['after']);
      expect(await producer.commit(STEP_MS)).toBeUndefined();
      expect(await valuesOf(topic, 'committed', 1n)).toEqual(['after']);
    });

    it('a commit leaves the event loop free while it waits for the broker', async () => {
      const topic = await world.topic(1);
      const producer = await writer(fresh('tx'));
      const turnsOfRounds: number[] = [];
      let turns = 0;
      let watching = true;
      const watch = (): void => {
        turns++;
        if (watching) setImmediate(watch);
      };
      watch();
      for (let round = 0; round < 30; round++) {
        await producer.begin();
        await send(producer, topic, [String(round)]);
        const before = turns;
        expect(await producer.commit(STEP_MS)).toBeUndefined();
        turnsOfRounds.push(turns - before);
      }
      watching = false;
      // A commit that blocked this thread would return within a turn or two.
      expect(turnsOfRounds.sort((a, b) => a - b)[15]).toBeGreaterThan(5);
    });

    it('a transactional producer fails with `closed` after close', async () => {
      const producer = await writer(fresh('tx'));
      await producer.close();
      await expect(producer.begin()).rejects.toMatchObject({ code: 'closed' });
    });

    it('an admin client describes a topic by its partitions and configuration', async () => {
      const topic = await world.topic(1, { 'cleanup.policy': 'compact' });
      const admin = await world.admin();
      const found = await admin.describeTopic(topic);
      expect(found?.partitions).toBe(1);
      expect(found?.config?.get('cleanup.policy')).toBe('compact');
      expect(await admin.describeTopic(fresh('absent'))).toBeUndefined();
      expect(await admin.brokerCount()).toBe(1);
    });
  });
}
