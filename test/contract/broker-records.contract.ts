/** Records: all of them arrive once, in order, byte for byte, in the partition of their key. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecordBatch, type RecordInput } from '../../src/core/layout/record-batch.ts';
import { realClock } from '../wait.ts';
import {
  allOf,
  type BrokerSubject,
  batchOf,
  readUntil,
  rowCount,
  text,
  utf8,
  World,
} from './broker-world.ts';

const MANY = 200_000;
const PARTITIONS = 8;

/** Hash that the Java client partitions keys by, written from its published definition. */
function murmur2(bytes: Uint8Array): number {
  const m = 0x5bd1e995;
  let h = 0x9747b28c ^ bytes.length;
  const words = bytes.length >> 2;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  for (let i = 0; i < words; i++) {
    let k = Math.imul(view.getInt32(i * 4, true), m);
    k = Math.imul(k ^ (k >>> 24), m);
    h = Math.imul(h, m) ^ k;
  }
  const rest = bytes.length & 3;
  const at = words * 4;
  if (rest === 3) h ^= (bytes[at + 2] as number) << 16;
  if (rest >= 2) h ^= (bytes[at + 1] as number) << 8;
  if (rest >= 1) h = Math.imul(h ^ (bytes[at] as number), m);
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}

/** Test vectors of the Java client. */
const JAVA_VECTORS: ReadonlyArray<readonly [string, number]> = [
  ['21', -973932308],
  ['foobar', -790332482],
  ['a-little-bit-long-string', -985981536],
  ['a-little-bit-longer-string', -1486304829],
  ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
  ['abc', 479470107],
];

export function recordContract(subject: BrokerSubject): void {
  describe(`${subject.driver.name}: records`, () => {
    const world = new World(subject);

    it(`${MANY} messages are delivered exactly once, in order per partition`, async () => {
      const topic = await world.topic(PARTITIONS);
      const producer = await world.producer({ compression: 'lz4' });
      const perBatch = 10_000;
      const value = Buffer.alloc(16);
      const batch = RecordBatch.create(perBatch, perBatch * 24);
      for (let start = 0; start < MANY; start += perBatch) {
        batch.clear();
        for (let i = start; i < start + perBatch; i++) {
          value.writeDoubleLE(i, 0);
          value.writeUInt32LE(i % 997, 8);
          batch.append({ key: value.subarray(8, 12), value });
        }
        const report = await producer.produce(batch, [topic]);
        expect(report.failed).toBe(0);
      }
      const consumer = await world.consumer({ partitionEof: true });
      await consumer.assign(allOf(topic, PARTITIONS));
      const into = RecordBatch.create(4096, 1 << 17);
      const seen = new Uint8Array(MANY);
      const nextOffset = new Array<bigint>(PARTITIONS).fill(0n);
      const lastNumber = new Array<number>(PARTITIONS).fill(-1);
      const ended = new Set<number>();
      const view = new DataView(into.buffer as ArrayBuffer, into.columns.arena.byteOffset);
      while (ended.size < PARTITIONS) {
        const { rowCount: rows, ends, events } = await consumer.consume(into, 500);
        expect(events).toEqual([]);
        for (let row = 0; row < rows; row++) {
          const partition = into.columns.partition[row] as number;
          const number = view.getFloat64(into.columns.valueStart[row] as number, true);
          if (
            into.columns.offset[row] !== nextOffset[partition] ||
            seen[number] !== 0 ||
            number <= (lastNumber[partition] as number)
          ) {
            expect.fail(
              `row ${number} at ${partition}/${into.columns.offset[row]}, expected offset ${nextOffset[partition]}`,
            );
          }
          seen[number] = 1;
          nextOffset[partition] = (nextOffset[partition] as bigint) + 1n;
          lastNumber[partition] = number;
        }
        for (const end of ends) {
          expect(end.offset).toBe(nextOffset[end.partition]);
          ended.add(end.partition);
        }
      }
      expect(seen.reduce((sum, one) => sum + one, 0)).toBe(MANY);
    });

    it('keys, values, headers and timestamps are read as they were written', async () => {
      // The retention keeps records with old timestamps.
      const topic = await world.topic(1, { 'retention.ms': '-1' });
      const producer = await world.producer({ compression: 'zstd' });
      const consumer = await world.consumer();
      const bytes = fc.uint8Array({ maxLength: 40 });
      const headerValue = subject.anyHeaders
        ? fc.option(bytes, { nil: null })
        : fc
            .string({ unit: 'grapheme', maxLength: 12 })
            .filter((one) => !one.includes('\0'))
            .map((one) => utf8.encode(one));
      const name = fc
        .string({ unit: 'grapheme', minLength: 1, maxLength: 8 })
        .filter((one) => !one.includes('\0'));
      const record = fc.record({
        key: fc.option(bytes, { nil: null }),
        value: fc.option(bytes, { nil: null }),
        timestamp: fc.oneof(fc.constant(0n), fc.bigInt(1n, 1_700_000_000_000n)),
        headers: fc.array(fc.tuple(fc.oneof(name, fc.constant('__proto__'), fc.constant('7')), headerValue), {
          maxLength: 3,
        }),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(record, { minLength: 1, maxLength: 30 }), async (records) => {
          const before = realClock.wallNowMs();
          const report = await producer.produce(batchOf(records.map((one) => ({ ...one, partition: 0 }))), [
            topic,
          ]);
          const after = realClock.wallNowMs();
          expect(report.events).toEqual([]);
          const first = report.offset[0] as bigint;
          expect([...report.offset]).toEqual(records.map((_, i) => first + BigInt(i)));
          await consumer.assign([{ topic, partition: 0, offset: first }]);
          const { rows } = await readUntil(consumer, rowCount(records.length));
          expect(rows.map(({ key, value, headers }) => ({ key, value, headers }))).toEqual(
            records.map((one) => ({
              key: text(one.key),
              value: text(one.value),
              headers: one.headers.map(([header, content]) => [header, text(content)]),
            })),
          );
          rows.forEach((row, i) => {
            const sent = (records[i] as { timestamp: bigint }).timestamp;
            if (sent !== 0n) expect(row.timestamp).toBe(sent);
            else {
              expect(Number(row.timestamp)).toBeGreaterThanOrEqual(before);
              expect(Number(row.timestamp)).toBeLessThanOrEqual(after);
            }
            expect(row.timestampType).toBe(subject.timestampTypes ? 1 : 0);
          });
        }),
        { numRuns: 40 },
      );
    });

    it('a record goes to the partition that the Java client picks, or to the requested one', async () => {
      const partitions = 7;
      const topic = await world.topic(partitions);
      for (const [key, hash] of JAVA_VECTORS) expect(murmur2(utf8.encode(key))).toBe(hash);
      const keys = [
        ...JAVA_VECTORS.map(([key]) => key),
        ...Array.from({ length: 200 }, (_, i) => `key ${i * 7919}`),
        '',
      ];
      const records: RecordInput[] = keys.map((key) => ({ key: utf8.encode(key), value: utf8.encode(key) }));
      const asked = Array.from({ length: 21 }, (_, i) => ({
        partition: i % partitions,
        key: utf8.encode('x'),
        value: utf8.encode(`=${i % partitions}`),
      }));
      const producer = await world.producer();
      expect((await producer.produce(batchOf([...records, ...asked]), [topic])).failed).toBe(0);
      const consumer = await world.consumer();
      await consumer.assign(allOf(topic, partitions));
      const { rows } = await readUntil(consumer, rowCount(keys.length + asked.length));
      for (const { key, value, partition } of rows) {
        const wanted = value?.startsWith('=')
          ? Number(value.slice(1))
          : (murmur2(utf8.encode(key as string)) & 0x7fffffff) % partitions;
        expect(partition, `key ${key}`).toBe(wanted);
      }
    });

    it('a record that is larger than the arena is reported, and read with a larger batch', async () => {
      const topic = await world.topic(1);
      const producer = await world.producer();
      const large = Buffer.alloc(5000, 7);
      const sent = batchOf(
        [{ value: utf8.encode('before') }, { value: large }, { value: utf8.encode('after') }].map((one) => ({
          ...one,
          partition: 0,
        })),
      );
      expect((await producer.produce(sent, [topic])).failed).toBe(0);
      const consumer = await world.consumer();
      await consumer.assign(allOf(topic, 1));
      const small = RecordBatch.create(10, 1024);
      const { rows, events } = await readUntil(consumer, (so) => so.events.length > 0, { into: small });
      expect(rows.map((row) => row.value)).toEqual(['before']);
      expect(events[0]).toMatchObject({ name: 'MILLRACE_OVERSIZE', code: -10_000, topic, partition: 0 });
      const rest = await readUntil(consumer, rowCount(2), { into: RecordBatch.create(10, 8192) });
      expect(rest.rows.map((row) => row.offset)).toEqual([1n, 2n]);
      expect(rest.rows[0]?.value).toBe(large.toString('latin1'));
    });
  });
}
