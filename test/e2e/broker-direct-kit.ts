/** Kit of the tests that compare the direct client with librdkafka: random records, and a reader of
 *  whole topics. */
import fc from 'fast-check';
import { expect } from 'vitest';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import type { BrokerDriver, ConsumerOptions } from '../../src/io/kafka/port.ts';
import { allOf, type Row, readUntil } from '../contract/broker-world.ts';

export const CODECS = ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const;
export type Codec = (typeof CODECS)[number];
export const ISOLATIONS = ['committed', 'uncommitted'] as const;

/** Record that any client can write. */
export interface Written {
  readonly partition: number;
  readonly key: Uint8Array | null;
  readonly value: Uint8Array | null;
  readonly timestamp: bigint;
  readonly headers: ReadonlyArray<readonly [string, Uint8Array | null]>;
}

const bytes = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  // Compressible, and larger than a block of any codec.
  fc.integer({ min: 0, max: 200_000 }).map((size) => Buffer.alloc(size, 'abcdefgh')),
);

export const recordsIn = (partitions: number): fc.Arbitrary<Written[]> =>
  fc.array(
    fc.record({
      partition: fc.integer({ min: 0, max: partitions - 1 }),
      key: fc.option(fc.uint8Array({ maxLength: 40 }), { nil: null }),
      value: fc.option(bytes, { nil: null }),
      timestamp: fc.bigInt(1n, 1_700_000_000_000n),
      headers: fc.array(
        fc.tuple(
          fc.string({ minLength: 1, maxLength: 8 }).filter((name) => !name.includes('\0')),
          fc.option(fc.uint8Array({ maxLength: 20 }), { nil: null }),
        ),
        { maxLength: 3 },
      ),
    }),
    { minLength: 1, maxLength: 40 },
  );

/** Rows and arena bytes of batches to read into: a Kafka batch fits whole, with others, or not;
 *  every record fits. */
export const CAPACITIES = [
  [100, 1 << 22],
  [13, 1 << 22],
  [100, 300_000],
  [3, 260_000],
] as const;

/** Rows of every partition from the beginning to the end, in the order of their offsets. */
export async function readTopic(
  driver: BrokerDriver,
  {
    brokers,
    topic,
    partitions,
  }: { readonly brokers: string; readonly topic: string; readonly partitions: number },
  isolation: NonNullable<ConsumerOptions['isolation']>,
  [rows, arenaBytes]: readonly [number, number] = CAPACITIES[0],
): Promise<Row[][]> {
  const options = { brokers, clientId: 'equal', connectTimeoutMs: 60_000 };
  const consumer = await driver.consumer({ ...options, isolation, partitionEof: true });
  try {
    const places = allOf(topic, partitions);
    await consumer.assign(places);
    const marks = await Promise.all(places.map((at) => consumer.watermarkOffsets(at, 30_000)));
    const { rows: found, events } = await readUntil(
      consumer,
      ({ ends }) =>
        marks.every(({ high }, partition) =>
          ends.some((end) => end.partition === partition && end.offset >= high),
        ),
      { into: RecordBatch.create(rows, arenaBytes) },
    );
    expect(events).toEqual([]);
    return Array.from({ length: partitions }, (_, partition) =>
      found.filter((row) => row.partition === partition),
    );
  } finally {
    await consumer.close();
  }
}
