import { describe, expect, test } from 'vitest';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { DEFAULT_ORDERS, OrderGenerator } from '../../../src/gen/order.ts';
import { OrderSource, orderLine } from '../../../src/gen/order-source.ts';
import { type BatchSink, type BatchSource, type PumpOptions, pump } from '../../../src/gen/pump.ts';
import { BatchTopicSink } from '../../../src/gen/sinks.ts';
import type { BatchProducer, DeliveryReport } from '../../../src/io/kafka/port.ts';
import { turn } from '../../wait.ts';

/** Source whose rows are their numbers as text. */
function numbers(count: number): BatchSource {
  let next = 0;
  return {
    fill: (into, most) => {
      into.clear();
      while (next < count && into.rowCount < most && into.append({ value: Buffer.from(`${next} `) })) next++;
      return into.rowCount;
    },
  };
}

/** Virtual time that advances only while the pump sleeps or a sink spends time. */
function world(over: Partial<PumpOptions> & { readonly source: BatchSource; readonly sink: BatchSink }) {
  let nowMs = 0;
  const lags: number[] = [];
  let written = 0;
  const options: PumpOptions = {
    batches: [0, 1, 2].map(() => RecordBatch.create(10, 1000)),
    rate: 0,
    clock: { monotonicMs: () => nowMs, wallNowMs: () => nowMs },
    sleep: (ms) => {
      nowMs += ms;
      return Promise.resolve();
    },
    signal: new AbortController().signal,
    onWritten: (rows) => {
      written += rows;
    },
    onLag: (ms) => lags.push(ms),
    ...over,
  };
  return { options, lags, pass: (ms: number) => (nowMs += ms), now: () => nowMs, written: () => written };
}

const textOf = (batch: RecordBatch): string =>
  Buffer.from(batch.columns.arena.subarray(0, batch.arenaUsed)).toString();
const upTo = (count: number): string => Array.from({ length: count }, (_, i) => `${i} `).join('');

describe('generator pump', () => {
  test('the pump moves every row once, starts writes in order, and fills no batch that is being written', async () => {
    let out = '';
    const busy = new Set<RecordBatch>();
    const sink: BatchSink = {
      write: async (batch) => {
        expect(busy.has(batch)).toBe(false);
        busy.add(batch);
        const before = textOf(batch);
        out += before;
        for (let i = out.length % 3; i >= 0; i--) await turn();
        expect(textOf(batch)).toBe(before);
        busy.delete(batch);
      },
    };
    const { options, written } = world({ source: numbers(95), sink });
    expect(await pump(options)).toBe(95);
    expect(out).toBe(upTo(95));
    expect(written()).toBe(95);
  });

  test('the pump takes the time that its rate requires', async () => {
    const { options, now } = world({
      source: numbers(201),
      sink: { write: () => Promise.resolve() },
      rate: 1000,
    });
    expect(await pump(options)).toBe(201);
    expect(now()).toBeGreaterThanOrEqual(200);
    expect(now()).toBeLessThan(203);
  });

  test('the pump catches up after a sink that stalled, and reports its lag', async () => {
    let writes = 0;
    const w = world({
      source: numbers(400),
      sink: {
        write: () => {
          if (++writes === 5) w.pass(150);
          return Promise.resolve();
        },
      },
      rate: 1000,
    });
    expect(await pump(w.options)).toBe(400);
    expect(Math.max(...w.lags)).toBeGreaterThan(140);
    expect(w.now()).toBeLessThan(403);
  });

  test('a drained pump fills no further batch and waits for the writes in flight', async () => {
    const stop = new AbortController();
    let finished = 0;
    const sink: BatchSink = {
      write: async () => {
        stop.abort();
        await turn();
        finished++;
      },
    };
    const { options, written } = world({ source: numbers(1e6), sink, signal: stop.signal });
    expect(await pump(options)).toBe(10);
    expect([finished, written()]).toEqual([1, 10]);
  });

  test('the pump throws the error of a write after the other writes have ended', async () => {
    let writes = 0;
    let ended = 0;
    const sink: BatchSink = {
      write: async () => {
        const mine = ++writes;
        for (let i = mine === 1 ? 1 : 10; i > 0; i--) await turn();
        ended++;
        if (mine === 1) throw new Error('the disk is full');
      },
    };
    const { options } = world({ source: numbers(1e6), sink });
    await expect(pump(options)).rejects.toThrow('the disk is full');
    expect(ended).toBe(writes);
    expect(writes).toBeLessThanOrEqual(4);
  });
});

describe('order source', () => {
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 1n });
  const linesAt = (rows: number, bytes: number): string => {
    const source = new OrderSource(generator, [1, 2], orderLine, 50);
    const batch = RecordBatch.create(rows, bytes);
    let out = '';
    while (source.fill(batch, Number.POSITIVE_INFINITY) > 0) out += textOf(batch);
    return out;
  };

  test('the order source is the same at any batch size, by rows and by bytes', () => {
    expect(linesAt(7, 1 << 20)).toBe(linesAt(50, 1 << 20));
    expect(linesAt(50, 3000)).toBe(linesAt(50, 1 << 20));
  });

  test('an order that fits no batch is reported by its number', () => {
    expect(() => linesAt(5, 100)).toThrow('order 0 does not fit');
  });
});

describe('topic sink', () => {
  const producerOf = (report: Partial<DeliveryReport>): BatchProducer => ({
    produce: () =>
      Promise.resolve({
        delivered: 0,
        failed: 0,
        status: new Int32Array(1),
        offset: new BigInt64Array(1),
        events: [],
        ...report,
      }),
    queuedBytes: () => 0,
    flush: () => Promise.resolve(),
    close: () => Promise.resolve(),
  });
  const batch = RecordBatch.create(2, 10);
  batch.rowCount = 2;

  test('the topic sink requires an acknowledgement of every row', async () => {
    await expect(new BatchTopicSink(producerOf({ delivered: 2 }), 't').write(batch)).resolves.toBeUndefined();
    const event = {
      code: -192,
      name: '_MSG_TIMED_OUT',
      message: 'timed out',
      retriable: false,
      fatal: false,
    };
    await expect(
      new BatchTopicSink(producerOf({ delivered: 1, failed: 1, events: [event] }), 't').write(batch),
    ).rejects.toThrow('1 of 2 records were not acknowledged by topic t: _MSG_TIMED_OUT: timed out');
  });
});
