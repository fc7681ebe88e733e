/** Records in slabs: their bytes stay, however many follow. */
import { expect, it } from 'vitest';
import { RecordSlab } from '../../../../src/formats/binary/record-slab.ts';

const PREFIX = Buffer.of(0, 0, 0, 0, 7);

function write(slab: RecordSlab, length: number, fill: number): Buffer {
  slab.begin(PREFIX);
  const { sink } = slab;
  sink.open();
  sink.raw(Buffer.alloc(length, fill));
  sink.close();
  return slab.end();
}

const expected = (length: number, fill: number): Buffer =>
  Buffer.concat([PREFIX, Buffer.alloc(length, fill)]);

it('records of any length keep their bytes, and each begins with the prefix', () => {
  const slab = new RecordSlab();
  const lengths = Array.from(
    { length: 400 },
    (_, i) => [0, 1, 500, 2043, 4091, 4092, 9000, 40_000, 3][i % 9] as number,
  );
  const records = lengths.map((length, i) => write(slab, length, i & 255));
  records.forEach((record, i) => {
    expect(record.equals(expected(lengths[i] as number, i & 255)), `record ${i}`).toBe(true);
  });
});

it('short records share memory, and a long one has memory of its own', () => {
  const slab = new RecordSlab();
  const [first, second, long] = [write(slab, 100, 1), write(slab, 100, 2), write(slab, 10_000, 3)];
  expect(second.buffer).toBe(first.buffer);
  expect(long.buffer).not.toBe(first.buffer);
  expect(write(slab, 100, 4).buffer).toBe(first.buffer);
});

it('a slab that grew for a huge record is not kept for short ones', () => {
  const slab = new RecordSlab();
  write(slab, 1 << 20, 1);
  write(slab, 10, 2);
  expect(write(slab, 10, 3).buffer.byteLength).toBeLessThan(1 << 16);
});

it('a refused record leaves nothing, and the next one is complete', () => {
  const slab = new RecordSlab();
  const before = write(slab, 10, 1);
  slab.begin(PREFIX);
  slab.sink.open();
  slab.sink.raw(Buffer.alloc(50, 9));
  slab.sink.abandon();
  slab.abandon();
  const after = write(slab, 20, 2);
  expect(before).toEqual(expected(10, 1));
  expect(after).toEqual(expected(20, 2));
  expect(after.byteOffset).toBe(before.byteOffset + before.length);
});

it('a record that is begun inside another is refused, and the outer one stays complete', () => {
  const slab = new RecordSlab();
  slab.begin(PREFIX);
  slab.sink.open();
  slab.sink.raw(Buffer.alloc(10, 1));
  expect(() => slab.begin(PREFIX)).toThrow('writes another value with this serializer');
  slab.sink.close();
  expect(slab.end()).toEqual(expected(10, 1));
});
