/** Producer: every row gets its offset or an error code, and no call blocks forever. */
import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';
import type { ConsumerOptions } from '../../src/io/kafka/port.ts';
import {
  allOf,
  type BrokerSubject,
  batchOf,
  fresh,
  readUntil,
  rowCount,
  utf8,
  World,
} from './broker-world.ts';

export function producerContract(subject: BrokerSubject): void {
  describe(`${subject.driver.name}: producer`, () => {
    const world = new World(subject);

    it('an oversized row fails with a status, and the other rows of its call are delivered', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer();
      const rows = [utf8.encode('a'), Buffer.alloc(2_000_000), utf8.encode('b')].map((value) => ({
        partition: 0,
        value,
      }));
      const report = await producer.produce(batchOf(rows, 1 << 22), [topic]);
      expect([...report.status]).toEqual([0, 10, 0]);
      expect(report).toMatchObject({ delivered: 2, failed: 1 });
      expect([...report.offset]).toEqual([0n, -1001n, 1n]);
      expect(report.events.map((event) => event.name)).toEqual(['MSG_SIZE_TOO_LARGE']);
    });

    it('rows of a partition that does not exist fail, and their producer can still flush and close', async () => {
      const topic = await world.topic(2);
      const producer = await world.producer();
      const rows = [0, 7, 1, 9].map((partition) => ({ partition, value: utf8.encode('v') }));
      expect((await producer.produce(batchOf([{ partition: 0 }]), [topic])).failed).toBe(0);
      const report = await producer.produce(batchOf(rows), [topic]);
      expect([...report.status]).toEqual([0, -190, 0, -190]);
      expect(report.events.map((event) => event.name)).toEqual(['_UNKNOWN_PARTITION']);
      await producer.flush(5000);
    });

    it('the reason for which the broker refused a row contains nothing of the row', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer({ properties: { 'message.max.bytes': 8_000_000 } });
      const value = utf8.encode(randomBytes(2_000_000).toString('base64'));
      // Rows with an explicit timestamp take another path in the client.
      for (const timestamp of [0n, 1_700_000_000_000n]) {
        const rows = [{ partition: 0, timestamp, value }];
        const { status, events } = await producer.produce(batchOf(rows, 1 << 22), [topic]);
        expect([...status]).toEqual([10]);
        expect(events.map(({ message }) => message)).toEqual(['Broker: Message size too large']);
      }
    });

    it('a producer waits while the queue of the client is full, and loses nothing', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer({ properties: { 'queue.buffering.max.messages': 100 } });
      const rows = Array.from({ length: 3000 }, (_, i) => ({ partition: 0, value: utf8.encode(String(i)) }));
      const report = await producer.produce(batchOf(rows), [topic]);
      expect(report).toMatchObject({ delivered: 3000, failed: 0 });
      expect([...report.offset]).toEqual(rows.map((_, i) => BigInt(i)));
    });

    it('concurrent calls of a producer keep their order, and their queued bytes are bounded', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer({ queueBytesMax: 10_000 });
      const calls = Array.from({ length: 40 }, (_, call) => {
        const rows = Array.from({ length: 50 }, (_, i) => ({
          partition: 0,
          value: Buffer.from(`${call * 50 + i}`.padStart(100)),
        }));
        return producer.produce(batchOf(rows), [topic]);
      });
      let most = 0;
      let sending = true;
      const watch = (): void => {
        most = Math.max(most, producer.queuedBytes());
        if (sending) setImmediate(watch);
      };
      watch();
      const reports = await Promise.all(calls).finally(() => {
        sending = false;
      });
      expect(reports.map((report) => report.failed)).toEqual(calls.map(() => 0));
      expect(most).toBeLessThan(10_000 + 5000);
      expect(producer.queuedBytes()).toBe(0);
      const consumer = await world.consumer();
      await consumer.assign(allOf(topic, 1));
      const { rows } = await readUntil(consumer, rowCount(2000));
      expect(rows.map((row) => Number(row.value))).toEqual(Array.from({ length: 2000 }, (_, i) => i));
    });

    it('a call that waits for room fails when its producer closes', async () => {
      const producer = await world.producer({
        queueBytesMax: 1,
        properties: { 'topic.metadata.propagation.max.ms': 3_600_000, 'message.timeout.ms': 0 },
      });
      const absent = fresh('absent');
      const calls = [1, 2, 3].map((n) =>
        producer.produce(batchOf([{ partition: 0, value: utf8.encode(`row ${n}`) }]), [absent]).then(
          ({ delivered }) => delivered,
          (thrown: { code?: string }) => thrown.code,
        ),
      );
      await producer.close(300);
      for (const outcome of await Promise.all(calls)) expect([0, 'closed']).toContain(outcome);
    });

    it('a producer sends an empty batch, and refuses a topic index that has no name', async () => {
      const producer = await world.producer();
      expect(await producer.produce(batchOf([]), [])).toMatchObject({ delivered: 0, failed: 0, events: [] });
      await expect(producer.produce(batchOf([{ topicIndex: 3 }]), ['a'])).rejects.toMatchObject({
        code: 'out_of_range',
      });
    });

    it('a flush sends lingering rows, and every call after close fails with `closed`', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer({ properties: { 'linger.ms': 60_000 } });
      const pending = producer.produce(batchOf([{ partition: 0, value: utf8.encode('x') }]), [topic]);
      await producer.flush(10_000);
      expect((await pending).delivered).toBe(1);
      const last = producer.produce(batchOf([{ partition: 0, value: utf8.encode('y') }]), [topic]);
      await Promise.all([producer.close(), producer.close()]);
      expect((await last).delivered).toBe(1);
      await expect(producer.produce(batchOf([]), [])).rejects.toMatchObject({ code: 'closed' });
      await expect(producer.flush(1)).rejects.toMatchObject({ code: 'closed' });
    });

    it('a producer, consumer or admin client for an address without a broker is refused as unreachable', async () => {
      const nowhere = { brokers: '127.0.0.1:9', clientId: 'contract', connectTimeoutMs: 1000 };
      const { driver } = subject;
      const openings = [driver.producer, driver.consumer, driver.admin].map(
        (open): Promise<unknown> => open({ ...nowhere, group: 'g' } as ConsumerOptions),
      );
      for (const { reason: thrown } of (await Promise.allSettled(openings)) as PromiseRejectedResult[]) {
        expect(thrown).toBeInstanceOf(MillraceError);
        expect(thrown).toMatchObject({ code: 'unreachable', row: { exit: 3 } });
        expect((thrown as MillraceError).message).toContain('127.0.0.1:9');
      }
    });

    it('an error about a property that librdkafka does not know names the property', async () => {
      const properties = { 'no.such.property': 1 };
      for (const opening of [world.producer({ properties }), world.consumer({ properties })]) {
        await expect(opening).rejects.toMatchObject({
          code: 'bad_broker_property',
          message: expect.stringContaining('no.such.property'),
        });
      }
    });
  });
}
