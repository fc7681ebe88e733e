/** The direct client before brokers that change, damage and lose what it reads. */
import { afterEach, describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { BrokerSource } from '../../src/engine/source/events.ts';
import { directDriver } from '../../src/io/kafka/direct/driver.ts';
import type { BatchConsumer, BrokerEvent, ConsumerOptions } from '../../src/io/kafka/port.ts';
import { realClock, until } from '../wait.ts';
import { startAuthenticatingBroker } from './authenticating-broker.ts';
import { type Answer, type Asked, type Brokers, batchAt, startBrokers, TOPIC } from './leading-broker.ts';

const open: Array<{ close(): Promise<unknown> }> = [];
afterEach(async () => {
  for (const one of open.splice(0).reverse()) await one.close();
});

const NOTHING: Answer = {};

async function start(
  count: number,
  answer: (asked: Asked | undefined, fetches: number, broker: number) => Answer | undefined,
): Promise<Brokers> {
  const brokers = await startBrokers(count, answer);
  open.push(brokers);
  return brokers;
}

async function reader(brokers: string, options: Partial<ConsumerOptions> = {}): Promise<BatchConsumer> {
  const { properties, ...more } = options;
  const consumer = await directDriver.consumer({
    ...{ brokers, clientId: 'faults', connectTimeoutMs: 60_000, ...more },
    properties: { 'reconnect.backoff.ms': 10, 'fetch.wait.max.ms': 5, ...properties },
  });
  open.push(consumer);
  return consumer;
}

/** Values read from offset 0 on, and the events on the way, until `enough`. */
async function read(
  consumer: BatchConsumer,
  enough: (values: readonly string[], events: readonly BrokerEvent[]) => boolean,
): Promise<{ readonly values: string[]; readonly events: BrokerEvent[] }> {
  const values: string[] = [];
  const events: BrokerEvent[] = [];
  const into = RecordBatch.create(100, 1 << 16);
  await until('a reading that is enough', async () => {
    const result = await consumer.consume(into, 50);
    for (let row = 0; row < result.rowCount; row++)
      values.push(Buffer.from(into.value(row) as Uint8Array).toString());
    events.push(...result.events);
    return enough(values, events);
  });
  return { values, events };
}

const assign = (consumer: BatchConsumer, offset = 0n): Promise<void> =>
  consumer.assign([{ topic: TOPIC, partition: 0, offset }]);
const has =
  (count: number) =>
  (values: readonly string[]): boolean =>
    values.length >= count;
const named =
  (name: string) =>
  (_: readonly string[], events: readonly BrokerEvent[]): boolean =>
    events.some((event) => event.name === name);

describe('faults of brokers', () => {
  it('the direct client follows a partition to its new leader, and names the new epoch and the epoch it read', async () => {
    const brokers = await start(2, (asked, _, broker) => {
      if (asked === undefined) return NOTHING;
      if (asked.offset === 0 && broker === 1) return { records: batchAt(0, 1, ['a', 'b']) };
      if (broker === 1) {
        brokers.lead(2, 4);
        return { error: 6 };
      }
      return asked.offset === 2 ? { records: batchAt(2, 4, ['c']) } : NOTHING;
    });
    const consumer = await reader(brokers.address);
    await assign(consumer);
    expect(await read(consumer, has(3))).toEqual({ values: ['a', 'b', 'c'], events: [] });
    expect(brokers.asked.find(({ broker }) => broker === 2)).toMatchObject({
      ...{ leaderEpoch: 4, offset: 2, fetchedEpoch: 1, sessionId: 0, sessionEpoch: 0 },
    });
  });

  it('the direct client asks a session only for what changed, and begins another when the broker has lost it', async () => {
    const brokers = await start(1, (asked, fetches) => {
      if (fetches === 3) return { topError: 70 };
      if (asked?.offset === 0) return { records: batchAt(0, 1, ['a']) };
      return fetches > 4 && asked?.offset === 1 ? { records: batchAt(1, 1, ['b']) } : NOTHING;
    });
    const consumer = await reader(brokers.address);
    await assign(consumer);
    await read(consumer, has(1));
    // The second session begins again with the partition.
    await until('a second session', async () => {
      await consumer.consume(RecordBatch.create(1, 1024), 5);
      return brokers.asked.length >= 3;
    });
    const sessions = brokers.asked.map(({ sessionId, sessionEpoch, offset }) => [
      sessionId,
      sessionEpoch,
      offset,
    ]);
    expect(sessions.slice(0, 3)).toEqual([
      [0, 0, 0],
      [7, 1, 1],
      [0, 0, 1],
    ]);
  });

  it('the direct client fetches a damaged batch again, and reports one that stays damaged without passing it', async () => {
    let sound = false;
    let damaged = 0;
    const brokers = await start(1, (asked) => {
      if (asked?.offset !== 0) return NOTHING;
      const records = batchAt(0, 1, ['a']);
      if (sound || damaged++ === 1) return { records };
      records[records.length - 2] = (records.at(-2) as number) ^ 1;
      return { records };
    });
    const consumer = await reader(brokers.address);
    await assign(consumer);
    expect(await read(consumer, has(1))).toEqual({ values: ['a'], events: [] });
    damaged = 2;
    await consumer.seek({ topic: TOPIC, partition: 0, offset: 0n });
    const { values, events } = await read(consumer, named('_BAD_MSG'));
    expect(values).toEqual([]);
    expect(events[0]).toMatchObject({ topic: TOPIC, partition: 0, fatal: false });
    expect(events[0]?.message).toContain('the record batch at offset 0 has a wrong CRC-32C');
    sound = true;
    expect((await read(consumer, has(1))).values).toEqual(['a']);
  });

  it('the direct client passes two responses that are cut, and reports the third as damage', async () => {
    let cut = 2;
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['a']), isCut: cut-- > 0 } : NOTHING,
    );
    const consumer = await reader(brokers.address);
    await assign(consumer);
    const { values, events } = await read(consumer, has(1));
    expect(values).toEqual(['a']);
    expect(new Set(events.map(({ name }) => name))).toEqual(new Set(['_TRANSPORT']));
    expect(events[0]?.message).toContain('the broker sent a response that is not one');
    cut = Number.POSITIVE_INFINITY;
    await consumer.seek({ topic: TOPIC, partition: 0, offset: 0n });
    expect((await read(consumer, named('_BAD_MSG'))).values).toEqual([]);
  });

  it('the direct client frees the place of its session at the broker when it begins another', async () => {
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['a']) } : NOTHING,
    );
    const consumer = await reader(brokers.address);
    await assign(consumer);
    await read(consumer, has(1));
    const place = [{ topic: TOPIC, partition: 0 }];
    await consumer.pause(place);
    await consumer.resume(place);
    await until('a fetch after the pause', async () => {
      await consumer.consume(RecordBatch.create(1, 1024), 5);
      return brokers.asked.filter(({ sessionEpoch }) => sessionEpoch === 0).length > 1;
    });
    const begun = brokers.asked.filter(({ sessionEpoch }) => sessionEpoch === 0);
    expect(begun.map(({ sessionId }) => sessionId).slice(0, 2)).toEqual([0, 7]);
  });

  it('the direct client waits for a fetch as long as the broker may wait, and for the timeout of a request', async () => {
    const brokers = await start(1, (asked, fetches) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['a']) } : { delayMs: fetches < 4 ? 200 : 0 },
    );
    const consumer = await reader(brokers.address, {
      // The timeout of acknowledgements is a property of producers.
      properties: { 'socket.timeout.ms': 50, 'request.timeout.ms': 10, 'fetch.wait.max.ms': 60_000 },
    });
    await assign(consumer);
    const { events } = await read(consumer, has(1));
    await until('a fetch after those that wait', async () => {
      events.push(...(await consumer.consume(RecordBatch.create(1, 1024), 5)).events);
      return brokers.counts.fetches > 4;
    });
    expect(events).toEqual([]);
  });

  it('the direct client reads no metadata again where the refresh is switched off', async () => {
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['a']) } : NOTHING,
    );
    const consumer = await reader(brokers.address, {
      properties: { 'topic.metadata.refresh.interval.ms': -1 },
    });
    await assign(consumer);
    await read(consumer, has(1));
    /** Lets the client run for several times the least pause between two requests, 50 ms. */
    const run = async (): Promise<number> => {
      const startedMs = realClock.monotonicMs();
      await until('the end of the pause', async () => {
        await consumer.consume(RecordBatch.create(1, 1024), 5);
        return realClock.monotonicMs() - startedMs > 300;
      });
      return brokers.counts.metadata;
    };
    const before = await run();
    expect(await run()).toBe(before);
  });

  it('the direct client has room for the response to a fetch that the user allows', async () => {
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['x'.repeat(3000)]) } : NOTHING,
    );
    const properties = { 'fetch.max.bytes': 200_000_000, 'message.max.bytes': 150_000_000 };
    const consumer = await reader(brokers.address, { properties });
    await assign(consumer);
    expect((await read(consumer, has(1))).events).toEqual([]);
  });

  it('the direct client reports a log that was truncated below what it read', async () => {
    const brokers = await start(1, (asked) => {
      if (asked === undefined) return NOTHING;
      if (asked.offset === 0) return { records: batchAt(0, 1, ['a', 'b', 'c']) };
      return asked.fetchedEpoch === 1 && asked.offset === 3
        ? { diverging: { epoch: 0, offset: 2 } }
        : NOTHING;
    });
    const strict = await reader(brokers.address, { autoOffsetReset: 'error' });
    await assign(strict);
    const { values, events } = await read(strict, named('_AUTO_OFFSET_RESET'));
    expect(values).toEqual(['a', 'b', 'c']);
    expect(events[0]?.message).toContain('the log was truncated to offset 2');
    const other = await reader(brokers.address, { autoOffsetReset: 'earliest' });
    await assign(other);
    expect((await read(other, named('_LOG_TRUNCATION'))).values).toEqual(['a', 'b', 'c']);
    await until('a fetch from the offset of the truncation', async () => {
      await other.consume(RecordBatch.create(1, 1024), 5);
      return brokers.asked.at(-1)?.offset === 2;
    });
  });

  it('the direct client delivers records that arrived before a truncation was reported', async () => {
    const brokers = await start(1, (asked) => {
      if (asked === undefined) return NOTHING;
      if (asked.offset === 0) return { records: batchAt(0, 1, ['a', 'b', 'c']) };
      return asked.fetchedEpoch === 1 && asked.offset === 3
        ? { diverging: { epoch: 0, offset: 2 } }
        : NOTHING;
    });
    const consumer = await reader(brokers.address, { autoOffsetReset: 'earliest' });
    await assign(consumer);
    const one = RecordBatch.create(1, 1024);
    await until('the first record', async () => (await consumer.consume(one, 50)).rowCount === 1);
    await until(
      'two answers with the truncation',
      () => brokers.asked.filter(({ offset }) => offset === 3)[1],
    );
    expect((await read(consumer, named('_LOG_TRUNCATION'))).values).toEqual(['b', 'c']);
  });

  it('the direct client handles an offset that the broker does not have by auto.offset.reset', async () => {
    const brokers = await start(1, (asked) => {
      if (asked === undefined) return NOTHING;
      return asked.offset === 0 ? { records: batchAt(0, 1, ['a']) } : { error: asked.offset > 1 ? 1 : 0 };
    });
    const strict = await reader(brokers.address, { autoOffsetReset: 'error' });
    await assign(strict, 50n);
    const { events } = await read(strict, named('_AUTO_OFFSET_RESET'));
    expect(events[0]?.message).toContain('offset 50 is outside of the partition');
    const other = await reader(brokers.address, { autoOffsetReset: 'earliest' });
    await assign(other, 50n);
    expect((await read(other, has(1))).values).toEqual(['a']);
  });

  it('the direct client connects again after a broken connection, and loses and repeats no record', async () => {
    const brokers = await start(1, (asked, fetches) => {
      if (fetches % 3 === 1) return undefined;
      return asked === undefined || asked.offset >= 5
        ? NOTHING
        : { records: batchAt(asked.offset, 1, [`${asked.offset}`]) };
    });
    const consumer = await reader(brokers.address);
    await assign(consumer);
    const { values, events } = await read(consumer, has(5));
    expect(values).toEqual(['0', '1', '2', '3', '4']);
    expect(events.some(({ name }) => name === '_TRANSPORT')).toBe(true);
  });

  it('the direct client leaves a broker alone for as long as the broker asks for', async () => {
    const times: number[] = [];
    let pausedFrom = Number.POSITIVE_INFINITY;
    const brokers = await start(1, (asked) => {
      if (asked?.offset === 0) {
        pausedFrom = Math.min(pausedFrom, realClock.monotonicMs());
        return { records: batchAt(0, 1, ['a']), throttleMs: 400 };
      }
      times.push(realClock.monotonicMs());
      return NOTHING;
    });
    const consumer = await reader(brokers.address);
    await assign(consumer);
    await read(consumer, has(1));
    await until('a request after the pause', async () => {
      await consumer.consume(RecordBatch.create(1, 1024), 5);
      return times.length > 0;
    });
    // The client counts whole milliseconds.
    expect((times[0] as number) - pausedFrom).toBeGreaterThanOrEqual(399);
  });

  it('the direct client refuses a response above receive.message.max.bytes', async () => {
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['x'.repeat(3000)]) } : NOTHING,
    );
    const properties = { 'receive.message.max.bytes': 2048, 'fetch.max.bytes': 1024 };
    const consumer = await reader(brokers.address, {
      properties: { ...properties, 'message.max.bytes': 1000 },
    });
    await assign(consumer);
    const { values, events } = await read(consumer, named('_BAD_MSG'));
    expect(values).toEqual([]);
    expect(events.some(({ message }) => message.includes('receive.message.max.bytes is 2048'))).toBe(true);
  });

  it('the direct client reports a response above the limit although others arrive between', async () => {
    const brokers = await start(1, (asked) => {
      if (asked === undefined) return { records: batchAt(1, 1, ['x'.repeat(3000)]) };
      return asked.sessionEpoch === 0 ? NOTHING : { records: batchAt(asked.offset, 1, ['x'.repeat(3000)]) };
    });
    const properties = { 'receive.message.max.bytes': 2048, 'fetch.max.bytes': 1024 };
    const consumer = await reader(brokers.address, {
      properties: { ...properties, 'message.max.bytes': 1000 },
    });
    await assign(consumer);
    const { values, events } = await read(consumer, named('_BAD_MSG'));
    expect(values).toEqual([]);
    const damage = events.find(({ name }) => name === '_BAD_MSG');
    expect(damage?.message).toContain('receive.message.max.bytes is 2048');
  });

  it.each<readonly [string, string, (records: Buffer) => Answer]>([
    [
      'a batch with a wrong checksum',
      'has a wrong CRC-32C',
      (records) => {
        records[records.length - 2] = (records.at(-2) as number) ^ 1;
        return { records };
      },
    ],
    ['an offset that the broker no longer has', 'offset 2 is outside of the partition', () => ({ error: 1 })],
    [
      'a log that was truncated below what was read',
      'the log was truncated to offset 1',
      () => ({ diverging: { epoch: 0, offset: 1 } }),
    ],
  ])('a run of the engine ends at %s, and has read only the records before it', async (_what, why, lose) => {
    const brokers = await start(1, (asked) => {
      if (asked?.offset === 0) return { records: batchAt(0, 1, ['a', 'b']) };
      return asked?.offset === 2 ? lose(batchAt(2, 1, ['c', 'd'])) : NOTHING;
    });
    const consumer = await reader(brokers.address, { autoOffsetReset: 'error' });
    const source = new BrokerSource({
      ...{
        consumer,
        clock: realClock,
        topic: TOPIC,
        partitionCount: 1,
        rowCapacity: 100,
        arenaBytes: 1 << 16,
      },
      ...{ input: { isReady: true, decode: () => undefined }, onEvent: () => {} },
      findTopic: async () => ({ partitions: 1, id: undefined }),
      stages: { recordsReady: () => {}, enter: () => {} },
    });
    open.push({ close: () => source.stop() });
    await source.start([0]);
    const values: string[] = [];
    const ended = await until('the end of the run', async () => {
      try {
        const rows = await source.next(50);
        for (let row = 0; row < (rows?.records.rowCount ?? 0); row++)
          values.push(Buffer.from(rows?.records.value(row) as Uint8Array).toString());
        return undefined;
      } catch (thrown) {
        return thrown as Error;
      }
    });
    expect(ended).toMatchObject({ code: 'source_failed', message: expect.stringContaining(why) });
    expect(values).toEqual(['a', 'b']);
  });

  it('the direct client authenticates with PLAIN', async () => {
    const brokers = await start(1, (asked) =>
      asked?.offset === 0 ? { records: batchAt(0, 1, ['a']) } : NOTHING,
    );
    const sasl = {
      ...{ 'security.protocol': 'sasl_plaintext', 'sasl.mechanisms': 'PLAIN' },
      ...{ 'sasl.username': 'client', 'sasl.password': 'right' },
    };
    const consumer = await reader(brokers.address, { properties: sasl });
    await assign(consumer);
    expect(await read(consumer, has(1))).toEqual({ values: ['a'], events: [] });
    expect(new Set(brokers.passwords)).toEqual(new Set(['right']));
  });

  it('the direct client is replaced by librdkafka, with an event, before a broker without the requests', async () => {
    const broker = await startAuthenticatingBroker(() => 'accept');
    open.push(broker);
    const consumer = await reader(broker.address);
    const { events } = await consumer.consume(RecordBatch.create(1, 1024), 0);
    expect(events).toMatchObject([{ name: '_UNSUPPORTED_FEATURE' }]);
    expect(events[0]?.message).toContain('the broker has no version 12 of the request Fetch');
    const other = await reader(broker.address, { properties: { 'client.rack': 'a' } });
    const [event] = (await other.consume(RecordBatch.create(1, 1024), 0)).events;
    expect(event?.message).toContain(
      'librdkafka reads instead of the direct client: it does not know client.rack',
    );
  });
});
