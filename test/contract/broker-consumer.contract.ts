/** Consumer of explicit partitions: positions, seeks, and its replies while it waits. */
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { NO_OFFSET, OFFSET_BEGINNING, OFFSET_END } from '../../src/io/kafka/port.ts';
import { allOf, type BrokerSubject, fresh, readUntil, rowCount, World } from './broker-world.ts';

const numbers = (rows: ReadonlyArray<{ readonly value: string | null }>): number[] =>
  rows.map((row) => Number(row.value));
const range = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, i) => from + i);

export function consumerContract(subject: BrokerSubject): void {
  describe(`${subject.driver.name}: consumer`, () => {
    const world = new World(subject);

    it('a consumer starts at an offset, the beginning or the end, and reports where the log begins and ends', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 100);
      const consumer = await world.consumer();
      const at = { topic, partition: 0 };
      await consumer.assign([{ ...at, offset: 40n }]);
      expect(consumer.assignment()).toEqual([at]);
      expect(numbers((await readUntil(consumer, rowCount(60))).rows)).toEqual(range(40, 100));
      await consumer.assign([{ ...at, offset: OFFSET_BEGINNING }]);
      expect(numbers((await readUntil(consumer, rowCount(100))).rows)).toEqual(range(0, 100));
      // Consumer that reports the end of the partition, before the offset of the next row.
      const tail = await world.consumer({ partitionEof: true });
      await tail.assign([{ ...at, offset: OFFSET_END }]);
      expect((await readUntil(tail, ({ ends }) => ends.length > 0)).rows).toEqual([]);
      await world.numbered(topic, 1);
      expect((await readUntil(tail, rowCount(1))).rows[0]?.offset).toBe(100n);
      expect(await tail.watermarkOffsets(at, 30_000)).toEqual({ low: 0n, high: 101n });
      expect(await tail.lag(30_000)).toEqual([{ ...at, low: 0n, high: 101n, position: 101n }]);
      await tail.reach(30_000);
      await tail.assign([]);
      expect(tail.assignment()).toEqual([]);
    });

    it('rows of a paused partition are withheld, and delivered after resume without loss', async () => {
      const topic = await world.topic(2);
      await world.numbered(topic, 300, 0);
      await world.numbered(topic, 300, 1);
      const consumer = await world.consumer({ partitionEof: true });
      await consumer.assign(allOf(topic, 2));
      const into = RecordBatch.create(20, 4096);
      const first = await readUntil(consumer, rowCount(40), { into });
      await consumer.pause([{ topic, partition: 0 }]);
      const other = await readUntil(consumer, (so) => so.ends.some((end) => end.partition === 1), { into });
      expect(other.rows.filter((row) => row.partition === 0)).toEqual([]);
      expect((await consumer.consume(into, 200)).rowCount).toBe(0);
      await consumer.resume([{ topic, partition: 0 }]);
      const rest = await readUntil(consumer, (so) => so.ends.some((end) => end.partition === 0), { into });
      const all = [...first.rows, ...other.rows, ...rest.rows];
      for (const partition of [0, 1]) {
        expect(numbers(all.filter((row) => row.partition === partition))).toEqual(range(0, 300));
      }
    });

    it.each(['assigned', 'subscribed'] as const)(
      'a consumer whose partitions are paused and resumed continues at its position, with rows delivered before or none (%s)',
      async (how) => {
        const topic = await world.topic(3);
        await world.numbered(topic, 100, 0);
        const consumer = await world.consumer({ group: fresh('pause') });
        if (how === 'assigned') await consumer.assign(allOf(topic, 3));
        else await consumer.subscribe([topic]);
        const into = RecordBatch.create(50, 1 << 16);
        const before = await readUntil(consumer, rowCount(100), { into });
        const all = allOf(topic, 3).map(({ partition }) => ({ topic, partition }));
        await consumer.pause(all);
        for (const partition of [0, 1, 2]) await world.numbered(topic, 100, partition);
        const during = await consumer.consume(into, 300);
        expect(during.rowCount).toBe(0);
        await consumer.resume(all);
        const after = await readUntil(consumer, rowCount(300), { into });
        expect((await consumer.consume(into, 500)).rowCount).toBe(0);
        const rows = [...before.rows, ...after.rows];
        for (const partition of [0, 1, 2]) {
          const offsets = rows.filter((row) => row.partition === partition).map((row) => Number(row.offset));
          expect({ partition, offsets }).toEqual({
            partition,
            offsets: range(0, partition === 0 ? 200 : 100),
          });
        }
      },
    );

    it('a new member loses nothing when all its partitions are paused before the first row and resumed', async () => {
      const topic = await world.topic(8);
      const consumer = await world.consumer({ group: fresh('pause') });
      await consumer.subscribe([topic]);
      const into = RecordBatch.create(50, 1 << 16);
      while (consumer.assignment().length < 8) await consumer.consume(into, 50);
      const all = consumer.assignment();
      await consumer.pause(all);
      for (let partition = 0; partition < 8; partition++) await world.numbered(topic, 30, partition);
      for (let i = 0; i < 5; i++) expect((await consumer.consume(into, 200)).rowCount).toBe(0);
      await consumer.resume(all);
      const { rows } = await readUntil(consumer, rowCount(240), { into });
      for (let partition = 0; partition < 8; partition++) {
        expect(numbers(rows.filter((row) => row.partition === partition))).toEqual(range(0, 30));
      }
    });

    it('a consumer seeks back and forth, and after a seek delivers no row that it read before the seek', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 500);
      const consumer = await world.consumer();
      await consumer.assign(allOf(topic, 1));
      const into = RecordBatch.create(7, 1024);
      await readUntil(consumer, rowCount(21), { into });
      for (const [to, want] of [
        [400n, 400],
        [3n, 3],
        [OFFSET_BEGINNING, 0],
      ] as const) {
        await consumer.seek({ topic, partition: 0, offset: to });
        const { rows } = await readUntil(consumer, rowCount(14), { into });
        expect(numbers(rows)).toEqual(range(want, want + rows.length));
      }
      await expect(consumer.seek({ topic, partition: 5, offset: 0n })).rejects.toMatchObject({
        code: expect.any(String),
      });
    });

    it('the end of a partition is reported after its last row, and again when it is reached again', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 50);
      const consumer = await world.consumer({ partitionEof: true });
      await consumer.assign(allOf(topic, 1));
      const into = RecordBatch.create(8, 64);
      const { rows, ends } = await readUntil(consumer, (so) => so.ends.length > 0, { into });
      expect(rows.length).toBe(50);
      expect(ends).toEqual([{ topic, partition: 0, offset: 50n }]);
      await world.numbered(topic, 5);
      // Rows of one produce call may reach the log in two batches, with a reported end between
      // them.
      const again = await readUntil(consumer, (so) => so.ends.at(-1)?.offset === 55n, { into });
      expect(again.rows.length).toBe(5);
      expect(again.ends.at(-1)).toEqual({ topic, partition: 0, offset: 55n });
    });

    it('a partition that is paused at its end and resumed loses no later row, read or not', async () => {
      const topic = await world.topic(2);
      const both = allOf(topic, 2);
      await world.numbered(topic, 40);
      const consumer = await world.consumer({ partitionEof: true });
      await consumer.assign(both);
      const into = RecordBatch.create(64, 4096);
      const seen = new Map<number, bigint[]>([
        [0, []],
        [1, []],
      ]);
      const take = (so: { readonly rows: readonly { partition: number; offset: bigint }[] }): void => {
        for (const { partition, offset } of so.rows) seen.get(partition)?.push(offset);
      };
      take(
        await readUntil(consumer, (so) => new Set(so.ends.map((end) => end.partition)).size === 2, { into }),
      );
      // At the second pause the client may know the positions better.
      for (let total = 40; total < 80; total += 20) {
        await consumer.pause(both);
        await consumer.resume(both);
        await world.numbered(topic, 20);
        take(await readUntil(consumer, rowCount(20), { into }));
      }
      for (const offsets of seen.values()) expect(offsets).toEqual(offsets.map((_, i) => BigInt(i)));
      expect([...seen.values()].flat()).toHaveLength(80);
    });

    it('rows that were fetched and not delivered survive a pause of their partition', async () => {
      const topic = await world.topic(1);
      await world.numbered(topic, 300);
      const consumer = await world.consumer({ partitionEof: true });
      await consumer.assign(allOf(topic, 1));
      // The batch has room for few rows, so records, and perhaps the end, are fetched ahead.
      const into = RecordBatch.create(7, 64);
      const first = await readUntil(consumer, rowCount(7), { into });
      await consumer.pause(allOf(topic, 1));
      await consumer.resume(allOf(topic, 1));
      const rest = await readUntil(consumer, (so) => so.ends.length > 0, { into });
      await world.numbered(topic, 5);
      const last = await readUntil(consumer, rowCount(5), { into });
      const offsets = [first, rest, last].flatMap(({ rows }) => rows.map(({ offset }) => offset));
      expect(offsets).toEqual(offsets.map((_, i) => BigInt(i)));
      expect(offsets).toHaveLength(305);
    });

    it('a commit is answered by the broker while a consume waits, and its offsets can be read back', async () => {
      const topic = await world.topic(2);
      const group = fresh('group');
      const consumer = await world.consumer({ group });
      await consumer.assign(allOf(topic, 2));
      const into = RecordBatch.create(8, 64);
      let hasEnded = false;
      const waiting = consumer.consume(into, 3_600_000).finally(() => {
        hasEnded = true;
      });
      await consumer.commit([{ topic, partition: 1, offset: 17n }]);
      await consumer.commit([]);
      expect(
        await consumer.committed([
          { topic, partition: 0 },
          { topic, partition: 1 },
        ]),
      ).toEqual([
        { topic, partition: 0, offset: NO_OFFSET },
        { topic, partition: 1, offset: 17n },
      ]);
      expect(hasEnded).toBe(false);
      await world.numbered(topic, 1);
      expect((await waiting).rowCount).toBe(1);
      const lone = await world.consumer();
      await expect(lone.commit([{ topic, partition: 0, offset: 1n }])).rejects.toMatchObject({
        code: 'bad_broker_property',
      });
      await expect(lone.subscribe([topic])).rejects.toMatchObject({ code: 'bad_broker_property' });
    });

    it('a consume ends at its timeout or at close, and every call after close fails with `closed`', async () => {
      const topic = await world.topic(1);
      const consumer = await world.consumer();
      await consumer.assign(allOf(topic, 1));
      const into = RecordBatch.create(8, 64);
      expect((await consumer.consume(into, 0)).rowCount).toBe(0);
      expect((await consumer.consume(into, 400)).rowCount).toBe(0);
      const pending = consumer.consume(into, 3_600_000);
      await Promise.all([consumer.close(), consumer.close()]);
      expect((await pending).rowCount).toBe(0);
      for (const call of [
        consumer.consume(into, 0),
        consumer.assign([]),
        consumer.commit([]),
        consumer.lag(1000),
        consumer.reach(1000),
        consumer.pause([]),
      ]) {
        await expect(call).rejects.toMatchObject({ code: 'closed' });
      }
    });

    it('an admin client names the id of a topic, and a recreated topic of the same name has another id', async () => {
      const admin = await world.admin();
      const [topic, other] = [fresh('id'), fresh('id-other')];
      expect(await admin.topicId(topic)).toBeUndefined();
      await admin.createTopics([
        { topic, partitions: 1 },
        { topic: other, partitions: 1 },
      ]);
      const first = await admin.topicId(topic);
      expect(first).toMatch(/^[\w-]{4,64}$/);
      expect(await admin.topicId(topic)).toBe(first);
      const otherAdmin = await world.admin();
      expect(await otherAdmin.topicId(topic)).toBe(first);
      expect(await admin.topicId(other)).not.toBe(first);
      await admin.deleteTopics([topic]);
      await expect
        .poll(async () => (await admin.listTopics()).some((one) => one.topic === topic))
        .toBe(false);
      await admin.createTopics([{ topic, partitions: 1 }]);
      // A client with the old id gets the new id with the next metadata answer that has it.
      await expect.poll(() => admin.topicId(topic)).not.toBe(first);
      const second = await (await world.admin()).topicId(topic);
      expect(second).not.toBe(first);
      expect(await admin.topicId(topic)).toBe(second);
    });

    it('an admin client creates topics once, lists and deletes them, and names the cluster', async () => {
      const admin = await world.admin();
      const topic = fresh('admin');
      const spec = { topic, partitions: 3, config: { 'retention.ms': '86400000' } };
      expect(await admin.createTopics([spec])).toEqual([true]);
      expect(await admin.createTopics([spec, { topic: `${topic}-2`, partitions: 1 }])).toEqual([false, true]);
      expect((await admin.listTopics()).find((one) => one.topic === topic)?.partitions).toEqual([0, 1, 2]);
      await admin.deleteTopics([topic, fresh('never')]);
      // The broker acknowledges the deletion before every broker has removed the topic from its
      // metadata.
      await expect
        .poll(async () => (await admin.listTopics()).some((one) => one.topic === topic))
        .toBe(false);
      expect(await admin.clusterId()).toMatch(/^[\w-]{10,}$/);
      await expect(admin.createTopics([{ topic: 'no spaces please', partitions: 1 }])).rejects.toMatchObject({
        code: 'broker_refused',
      });
      await admin.close();
      await expect(admin.listTopics()).rejects.toMatchObject({ code: 'closed' });
    });
  });
}
