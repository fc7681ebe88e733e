/** The publisher keeps the order of a key whatever rows fail, and says exactly which rows may be marked. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BatchProducer, DeliveryReport } from '../../src/io/broker/port.ts';
import { toRecord } from '../../src/outbox/relay/event.ts';
import { Publisher, wavesOf } from '../../src/outbox/relay/publish.ts';
import type { OutboxRow } from '../../src/outbox/relay/store.ts';

const uuid = (n: number): string => `00000000-0000-7000-8000-${n.toString(16).padStart(12, '0')}`;

function row(id: number, aggregate: number, payload = '{"a":1}'): OutboxRow {
  return {
    id: BigInt(id),
    aggregateId: uuid(aggregate),
    msgId: uuid(1_000_000 + id),
    eventType: 'order.created.v1',
    payload: new TextEncoder().encode(payload),
    createdAt: new Date(1_750_000_000_000),
  };
}

/** A broker that fails the sends for which `fails` says so and keeps the rest in the order they came. */
function producerWith(fails: (send: number) => boolean): {
  readonly producer: BatchProducer;
  readonly log: string[];
} {
  const log: string[] = [];
  let send = 0;
  const producer: BatchProducer = {
    produce: async (batch): Promise<DeliveryReport> => {
      const status = new Int32Array(batch.rowCount);
      for (let i = 0; i < batch.rowCount; i++) {
        const failed = fails(send++);
        status[i] = failed ? -192 : 0;
        if (!failed) log.push(JSON.parse(new TextDecoder().decode(batch.value(i) as Uint8Array)).msg_id);
      }
      const failed = status.filter((one) => one !== 0).length;
      return {
        delivered: batch.rowCount - failed,
        failed,
        status,
        offset: new BigInt64Array(batch.rowCount),
        events: [],
      };
    },
    queuedBytes: () => 0,
    flush: async () => {},
    close: async () => {},
  };
  return { producer, log };
}

describe('waves', () => {
  it('hold each key at most once, in id order, and lose no row', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 60 }), (keys) => {
        const rows = keys.map((key, i) => row(i, key));
        const waves = wavesOf(rows);
        for (const wave of waves) expect(new Set(wave.map((one) => one.aggregateId)).size).toBe(wave.length);
        for (const key of new Set(keys)) {
          const ids = waves
            .flat()
            .filter((one) => one.aggregateId === uuid(key))
            .map((one) => one.id);
          expect(ids).toEqual([...ids].sort((a, b) => Number(a - b)));
        }
        expect(waves.flat().length).toBe(rows.length);
      }),
    );
  });
});

describe('publisher', () => {
  it('keeps first occurrences of a key in id order over failing sends and repeated calls', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 3 }), { minLength: 1, maxLength: 30 }),
        fc.array(fc.boolean(), { maxLength: 40 }),
        fc.integer({ min: 1, max: 7 }),
        async (keys, failures, batchRows) => {
          const { producer, log } = producerWith((send) => failures[send] === true);
          const publisher = new Publisher(producer, RecordBatch.create(batchRows, 64 * 1024), 't', 'poll');
          let pending = keys.map((key, i) => row(i, key));
          const acked = new Set<bigint>();
          while (pending.length > 0) {
            const outcome = await publisher.publish(pending);
            for (const id of outcome.acked) {
              expect(acked.has(id)).toBe(false);
              acked.add(id);
            }
            pending = pending.filter((one) => !acked.has(one.id));
          }
          const firsts = [...new Set(log)];
          for (const key of new Set(keys)) {
            const wanted = keys
              .map((one, i) => ({ one, i }))
              .filter(({ one }) => one === key)
              .map(({ i }) => uuid(1_000_000 + i));
            expect(firsts.filter((msgId) => wanted.includes(msgId))).toEqual(wanted);
          }
        },
      ),
    );
  });

  it('names a row that fits into no batch, sends nothing of its key behind it, and goes on with the others', async () => {
    const { producer, log } = producerWith(() => false);
    const publisher = new Publisher(producer, RecordBatch.create(4, 2048), 't', 'poll');
    const outcome = await publisher.publish([row(1, 1, 'x'.repeat(4096)), row(2, 2), row(3, 1)]);
    expect(outcome.oversize.map(({ id }) => id)).toEqual([1n]);
    expect(outcome.acked).toEqual([2n]);
    expect(log).toEqual([uuid(1_000_002)]);
  });
});

describe('record of a row', () => {
  it('is keyed by the order, carries the payload untouched and CloudEvents as headers', () => {
    const record = toRecord(row(7, 3, '{"amount_cents": 5 }'), 'poll');
    const text = (bytes: Uint8Array | null | undefined): string =>
      new TextDecoder().decode(bytes ?? new Uint8Array());
    expect(text(record.key)).toBe(uuid(3));
    expect(text(record.value)).toBe(
      `{"msg_id":"${uuid(1_000_007)}","event_type":"order.created.v1","payload":{"amount_cents": 5 }}`,
    );
    expect(Object.fromEntries((record.headers ?? []).map(([name, value]) => [name, text(value)]))).toEqual({
      ce_specversion: '1.0',
      ce_id: uuid(1_000_007),
      ce_source: '/orders',
      ce_type: 'order.created.v1',
      ce_subject: uuid(3),
      ce_time: '2025-06-15T15:06:40.000Z',
      ce_partitionkey: uuid(3),
      ce_sequence: '7',
      'content-type': 'application/json',
      relay_mode: 'poll',
    });
  });
});
