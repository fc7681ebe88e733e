/** Large writes of the Kafka sink beside the event loop. */
import { expect, it } from 'vitest';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { KafkaSink } from '../../../../src/engine/output/sink/kafka.ts';
import type { BatchProducer, BrokerDriver } from '../../../../src/io/kafka/port.ts';
import { turns } from '../../../wait.ts';

const ROW_CELLS = 8;
const ROWS = 30_000;

function pageOf(rowCount: number): Uint8Array {
  const cells = new BigInt64Array(rowCount * ROW_CELLS);
  for (let row = 0; row < rowCount; row++) cells.set([BigInt(row), 1n], row * ROW_CELLS);
  return new Uint8Array(cells.buffer);
}

it('the Kafka sink encodes a large write in many turns of the event loop, and sends each row once', async () => {
  const accounts: bigint[] = [];
  const turnsAtSend: number[] = [];
  let seen = 0;
  const producer: Pick<BatchProducer, 'produce' | 'close'> = {
    produce: async (batch: RecordBatch) => {
      turnsAtSend.push(seen);
      for (let row = 0; row < batch.rowCount; row++)
        accounts.push(Buffer.from(batch.key(row) ?? []).readBigUInt64BE());
      return { failed: 0, events: [] } as unknown as Awaited<ReturnType<BatchProducer['produce']>>;
    },
    close: async () => {},
  };
  const sink = new KafkaSink({
    driver: { producer: async () => producer } as unknown as BrokerDriver,
    brokers: 'none',
    topic: 'results',
    partitions: 1,
    replicationFactor: 1,
    scratch: () => Promise.reject(new Error('this test reads nothing')),
  });
  let isWritten = false;
  const counting = (async () => {
    for (; !isWritten; seen++) await turns(1);
  })();
  await sink.write([{ bounds: { kind: 'window', start: 0, end: 10 }, rows: pageOf(ROWS), rowCount: ROWS }]);
  isWritten = true;
  await counting;
  expect(accounts).toEqual(Array.from({ length: ROWS }, (_, row) => BigInt(row)));
  expect(turnsAtSend).toHaveLength(1);
  expect(turnsAtSend[0]).toBeGreaterThan(10);
});
