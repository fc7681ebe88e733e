/** Reason of a topic that is not listed, over the broker's protocol: valid and hostile answers. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { CORRELATION } from '../../../../src/io/kafka/frame.ts';
import { decodeTopicError, encodeTopicMetadata } from '../../../../src/io/kafka/topic-refusal.ts';

const i16 = (value: number): Buffer => Buffer.from([(value >> 8) & 255, value & 255]);
const i32 = (value: number): Buffer => {
  const out = Buffer.alloc(4);
  out.writeInt32BE(value);
  return out;
};
const text = (value: string | null): Buffer =>
  value === null ? i16(-1) : Buffer.concat([i16(Buffer.byteLength(value)), Buffer.from(value)]);

function answer(error: number, brokers = ['kafka-1', 'kafka-2']): Buffer {
  return Buffer.concat([
    i32(CORRELATION),
    i32(0),
    i32(brokers.length),
    ...brokers.flatMap((host, i) => [i32(i), text(host), i32(9092), text(i === 0 ? null : 'rack')]),
    text('cluster'),
    i32(1),
    i32(1),
    i16(error),
    text('orders'),
    Buffer.from([0]),
    i32(0),
  ]);
}

it('a metadata request names one topic and forbids its creation', () => {
  const request = encodeTopicMetadata('me', 'orders');
  expect(request.readInt32BE(0)).toBe(request.length - 4);
  expect([...request.subarray(4, 8)]).toEqual([0, 3, 0, 4]);
  expect(request.subarray(-8, -1).toString()).toBe('\u0006orders');
  expect(request.at(-1)).toBe(0);
});

it.each([0, 3, 29])('a metadata answer gives the error code %i of its topic', (error) => {
  expect(decodeTopicError(answer(error))).toBe(error);
  expect(decodeTopicError(answer(error, []))).toBe(error);
});

it('a truncated or foreign metadata answer gives no error code', () => {
  const whole = answer(29);
  const codeAt = whole.indexOf(text('orders'));
  for (let bytes = 0; bytes < codeAt; bytes++)
    expect(decodeTopicError(whole.subarray(0, bytes)), `${bytes} bytes`).toBeUndefined();
  expect(decodeTopicError(Buffer.concat([i32(1), whole.subarray(4)]))).toBeUndefined();
});

it('any bytes give an error code or none', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      const found = decodeTopicError(Buffer.concat([i32(CORRELATION), bytes]));
      expect(found === undefined || Number.isInteger(found)).toBe(true);
    }),
  );
});
