/** Fills a topic with order events in the relay's format, without a relay. */
import { createHash } from 'node:crypto';
import { invariant } from '../../src/core/errors.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { librdkafkaDriver } from '../../src/io/kafka/librdkafka.ts';
import { ORDER_CREATED, orderCreatedPayload } from '../../src/outbox/orders/event.ts';
import { EVENT_SOURCE, EventEncoder } from '../../src/outbox/relay/pipeline/event.ts';
import type { BrokerAt } from './arrivals.ts';

const BATCH_ROWS = 5000;
const ROW_BYTES_MAX = 1500;

/** UUIDv7 number `n` of `count` ids spread evenly between two times; `uuidV7Sql` computes the same
 *  in SQL. */
export function uuidV7At(n: number, count: number, fromMs: number, toMs: number): string {
  const ms = Math.floor(fromMs + ((toMs - fromMs) * n) / count);
  const hash = createHash('md5').update(String(n)).digest('hex');
  const hex = `${ms.toString(16).padStart(12, '0')}7${hash.slice(0, 3)}8${hash.slice(3, 18)}`;
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/** The same id in SQL, for a bigint column `n`. */
export const uuidV7Sql = (count: number, fromMs: number, toMs: number): string =>
  `(lpad(to_hex(floor(${fromMs} + (${toMs - fromMs}::float8 * n) / ${count})::bigint), 12, '0') || '7' ||
    substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid`;

const orderId = (n: number): string => {
  const hash = createHash('md5').update(`order ${n}`).digest('hex');
  return hash.replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-4$3-8$4-$5');
};

/** Publishes events of `count` distinct orders. */
export async function publishBacklog(
  { brokers, properties }: BrokerAt,
  topic: string,
  count: number,
): Promise<void> {
  const producer = await librdkafkaDriver.producer({
    brokers,
    properties,
    clientId: 'bench',
    acks: -1,
    idempotence: true,
  });
  const batches = [0, 1].map(() => RecordBatch.create(BATCH_ROWS, BATCH_ROWS * ROW_BYTES_MAX));
  const sent: Promise<unknown>[] = [];
  const encoder = new EventEncoder('poll', EVENT_SOURCE);
  const toMs = Date.now();
  for (let at = 0, turn = 0; at < count; turn++) {
    await sent[turn - 2];
    const batch = batches[turn % 2] as RecordBatch;
    batch.clear();
    const size = Math.min(BATCH_ROWS, count - at);
    for (let i = 0; i < size; i++) {
      const n = at + i;
      const id = orderId(n);
      const createdAt = new Date(toMs);
      const row = {
        id: BigInt(n + 1),
        aggregateId: id,
        msgId: uuidV7At(n, count, toMs - 3_600_000, toMs),
        eventType: ORDER_CREATED,
        payload: orderCreatedPayload(id, { accountId: 1n, amountCents: BigInt(1 + (n % 1000)) }, createdAt),
        createdAt,
      };
      invariant(encoder.append(batch, row, 0n), 'an event fits');
    }
    sent.push(
      producer
        .produce(batch, [topic])
        .then(({ failed }) => invariant(failed === 0, `${failed} events failed`)),
    );
    at += size;
  }
  await Promise.all(sent);
  await producer.close();
}
