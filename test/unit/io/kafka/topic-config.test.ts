/** Topic configuration over the broker's protocol: valid and hostile answers. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { CORRELATION } from '../../../../src/io/kafka/frame.ts';
import { decodeDescribeTopic, encodeDescribeTopic } from '../../../../src/io/kafka/topic-config.ts';

const text = (value: string | null): Buffer => {
  const length = Buffer.alloc(2);
  length.writeInt16BE(value === null ? -1 : Buffer.byteLength(value));
  return Buffer.concat([length, Buffer.from(value ?? '')]);
};
const i32 = (value: number): Buffer => {
  const out = Buffer.alloc(4);
  out.writeInt32BE(value);
  return out;
};

function answer(configs: ReadonlyArray<readonly [string, string | null]>, error = 0): Buffer {
  return Buffer.concat([
    i32(CORRELATION),
    i32(0),
    i32(1),
    Buffer.from([0, error]),
    text(null),
    Buffer.from([2]),
    text('topic'),
    i32(configs.length),
    ...configs.flatMap(([name, value]) => [
      text(name),
      text(value),
      Buffer.from([0, 1, 0]),
      i32(1),
      text(name),
      text('default'),
      Buffer.from([5]),
    ]),
  ]);
}

it('a describe request names one topic and requires all its settings', () => {
  const request = encodeDescribeTopic('me', 'orders');
  expect(request.readInt32BE(0)).toBe(request.length - 4);
  expect([...request.subarray(4, 8)]).toEqual([0, 32, 0, 1]);
  expect(request.includes('orders')).toBe(true);
});

it('a describe answer gives the settings that have a value, without synonyms', () => {
  const found = decodeDescribeTopic(
    answer([
      ['cleanup.policy', 'compact'],
      ['secret', null],
      ['max.message.bytes', '42'],
    ]),
  );
  expect([...(found ?? [])]).toEqual([
    ['cleanup.policy', 'compact'],
    ['max.message.bytes', '42'],
  ]);
});

it('a refused, truncated or foreign describe answer gives no settings', () => {
  expect(decodeDescribeTopic(answer([['a', 'b']], 29))).toBeUndefined();
  const whole = answer([['cleanup.policy', 'compact']]);
  for (let length = 0; length < whole.length; length++)
    expect(decodeDescribeTopic(whole.subarray(0, length))).toBeUndefined();
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
      const body = Buffer.concat([i32(CORRELATION), i32(0), Buffer.from(noise)]);
      const found = decodeDescribeTopic(body);
      return found === undefined || found.size <= noise.length;
    }),
  );
});
