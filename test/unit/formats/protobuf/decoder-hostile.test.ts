/** Hostile bytes: the result is a value or malformed_payload, in steps and memory that grow
 *  linearly with the payload. */
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import { protoDecoder } from '../../../../src/formats/protobuf/codec/decoder.ts';
import { encodeProto } from '../../../../src/formats/protobuf/codec/encoder.ts';
import { PROTO_NESTING_MAX } from '../../../../src/formats/protobuf/codec/input.ts';
import {
  messageOf,
  type Random,
  randomDatum,
  randomOf,
  randomText,
  SYNTAXES,
} from '../../../property/registry-proto-decoder-kit.ts';
import { stepsOf } from '../../../steps.ts';

/** Six times the steps of the longest of these payloads, far below the steps of a quadratic
 *  walk. */
const STEPS_MAX = 20_000_000;

/** Returns the value, or the message of a malformed_payload error. Any other error fails the
 *  test. */
function outcome(text: string, bytes: Buffer): unknown {
  const decode = protoDecoder(messageOf(text, 'M'));
  let decoded: unknown;
  const steps = stepsOf(() => {
    decoded = attempt(decode, bytes);
  });
  expect(steps).toBeLessThan(STEPS_MAX);
  return decoded;
}

function attempt(decode: ReturnType<typeof protoDecoder>, bytes: Buffer): unknown {
  try {
    return decode(bytes, 0, bytes.length);
  } catch (thrown) {
    if (!(thrown instanceof MillraceError)) throw thrown;
    expect(thrown.code).toBe('malformed_payload');
    expect(thrown.message.length).toBeLessThan(2_000);
    const at = thrown.details['at'] as number;
    expect(at >= 0 && at <= bytes.length).toBe(true);
    expect(thrown.details['path']).toMatch(/^M/);
    return thrown.message;
  }
}

const hex = (text: string): Buffer => Buffer.from(text.replaceAll(' ', ''), 'hex');

/** Nests messages, one inside the other. */
function nested(levels: number, wrap: (inner: Buffer) => Buffer): Buffer {
  let bytes: Buffer = Buffer.alloc(0);
  for (let i = 0; i < levels; i++) bytes = wrap(bytes);
  return bytes;
}

function lengthBytes(length: number): Buffer {
  const bytes: number[] = [];
  let rest = length;
  for (; rest > 127; rest >>>= 7) bytes.push((rest & 127) | 128);
  return Buffer.from([...bytes, rest]);
}
const withLength = (tag: number, inner: Buffer): Buffer =>
  Buffer.concat([Buffer.from([tag]), lengthBytes(inner.length), inner]);

describe('nesting', () => {
  const text =
    'syntax = "proto2"; message M { optional M m = 1; optional group G = 2 { optional M m = 1; } map<string, M> e = 3; }';
  const TOO_DEEP = /nested deeper than 100 levels/;
  const between = (number: number, inner: Buffer): Buffer =>
    Buffer.concat([Buffer.from([number * 8 + 3]), inner, Buffer.from([number * 8 + 4])]);

  it.each<readonly [string, number, (inner: Buffer) => Buffer]>([
    ['messages', 1, (inner) => withLength(0x0a, inner)],
    ['groups', 2, (inner) => between(2, withLength(0x0a, inner))],
    ['entries of maps', 2, (inner) => withLength(0x1a, withLength(0x12, inner))],
    ['unknown groups', 1, (inner) => between(5, inner)],
  ])('the nesting of %s ends at the limit', (_what, levels, wrap) => {
    const most = PROTO_NESTING_MAX / levels;
    expect(outcome(text, nested(most, wrap))).toBeTypeOf('object');
    expect(outcome(text, nested(most + 1, wrap))).toMatch(TOO_DEEP);
    expect(outcome(text, nested(3_000, wrap))).toMatch(TOO_DEEP);
  });

  it('unknown groups count toward the nesting of their place', () => {
    const deep = (messages: number, groups: number): unknown =>
      outcome(
        text,
        Array.from({ length: messages }).reduce<Buffer>(
          (inner) => withLength(0x0a, inner),
          nested(groups, (inner) => between(5, inner)),
        ),
      );
    expect(deep(60, 40)).toBeTypeOf('object');
    expect(deep(60, 41)).toMatch(TOO_DEEP);
  });

  it('hundreds of thousands of unclosed groups are refused at the nesting limit', () => {
    expect(outcome(text, Buffer.alloc(300_000, 5 * 8 + 3))).toMatch(TOO_DEEP);
    expect(outcome(text, Buffer.alloc(300_000, 2 * 8 + 3))).toMatch(TOO_DEEP);
  });
});

describe('small payloads with large values', () => {
  const wideText = `syntax = "proto3"; message M { repeated W w = 1; W one = 2; } message W { ${Array.from({ length: 1_000 }, (_, i) => `int32 f${i} = ${i + 1};`).join(' ')} }`;

  it('empty messages of a thousand fields are bounded together', () => {
    const many = (count: number): Buffer => Buffer.alloc(count * 2, hex('0a00'));
    expect(outcome(wideText, many(100))).toMatchObject({ w: { length: 100 } });
    expect(outcome(wideText, many(2_000))).toMatch(/more fields together/);
  });

  it('alternating members of a oneof of thousands are decoded in bounded time', () => {
    const members = Array.from({ length: 5_000 }, (_, i) => `int32 f${i} = ${i + 1};`).join(' ');
    const text = `syntax = "proto3"; message M { oneof o { ${members} } }`;
    expect(outcome(text, Buffer.alloc(100_000, hex('08011001')))).toMatch(/more fields together/);
    expect(outcome(text, Buffer.alloc(400, hex('08011001')))).toMatchObject({ f0: null, f1: 1 });
  });

  it('lengths beyond the payload are refused', () => {
    const text =
      'syntax = "proto3"; message M { string s = 1; bytes b = 2; repeated fixed64 f = 3; map<string, string> m = 4; M i = 5; }';
    for (const tag of ['0a', '12', '1a', '22', '2a', '32'])
      for (const length of ['ffffffff07', 'ffffffff0f', 'ffffffff7f', '80808008'])
        expect(outcome(text, hex(`${tag} ${length} 00`))).toMatch(/a length of \d+ bytes, where 1 are left/);
  });

  it('a quarter of a megabyte of each wire type is decoded in bounded time', () => {
    const text =
      'syntax = "proto3"; message M { repeated int32 a = 1; repeated string s = 2; map<int64, M> m = 3; repeated uint64 u = 4 [packed = false]; }';
    for (const part of [
      '0801',
      '1200',
      '1a00',
      '20ffffffffffffffffff01',
      '2801',
      '3500000000',
      '3a00',
      '0a0101',
    ])
      expect(outcome(text, Buffer.alloc(1 << 18, hex(part)))).toBeDefined();
    expect(outcome(text, withLength(0x0a, Buffer.alloc(1 << 18, 1)))).toMatchObject({
      a: { length: 1 << 18 },
    });
  });

  it('a message in many parts is decoded in bounded time, also where each part lacks a field', () => {
    const text =
      'syntax = "proto2"; message M { optional N n = 1; repeated N r = 2; } message N { required int32 x = 1; optional int32 y = 2; }';
    expect(outcome(text, Buffer.alloc(1 << 18, hex('0a021001')))).toMatch(/required field x is missing/);
    expect(
      outcome(text, Buffer.concat([Buffer.alloc(1 << 18, hex('0a021001')), hex('0a020801')])),
    ).toMatchObject({
      n: { x: 1, y: 1 },
    });
    expect(outcome(text, Buffer.alloc(1 << 18, hex('1200')))).toMatch(
      /required field x is missing, at byte 2, in M.r\[0\]/,
    );
  });
});

/** Damages the bytes in one of several ways. */
function damaged(random: Random, bytes: Buffer): Buffer {
  const at = random(bytes.length);
  const [head, tail] = [bytes.subarray(0, at), bytes.subarray(at)];
  switch (random(6)) {
    case 0:
      return Buffer.from(head);
    case 1:
      return Buffer.concat([head, Buffer.from([random(256)]), tail.subarray(1)]);
    case 2:
      return Buffer.concat([head, Buffer.from([(tail[0] ?? 0) ^ (1 << random(8))]), tail.subarray(1)]);
    case 3:
      return Buffer.concat([head, Buffer.alloc(1 + random(4), 0xff), tail]);
    case 4:
      return Buffer.concat([head, tail.subarray(1 + random(4))]);
    default:
      return Buffer.concat([head, bytes.subarray(random(bytes.length)), tail]);
  }
}

describe.each(SYNTAXES)('damaged payloads, %s', (syntax) => {
  const SCHEMAS = 40;

  it('every truncated or damaged payload decodes to a value or is malformed', () => {
    for (let seed = 1; seed <= SCHEMAS; seed++) {
      const text = randomText(seed * 104_729, syntax, { required: seed % 2 === 0 });
      const message = messageOf(text);
      const random = randomOf(seed);
      const whole = encodeProto(message, randomDatum(random, message)).subarray(0, 300);
      const decode = protoDecoder(message);
      const check = (bytes: Buffer): void => {
        try {
          decode(bytes, 0, bytes.length);
        } catch (thrown) {
          if (thrown instanceof MillraceError && thrown.code === 'malformed_payload') return;
          throw new Error(`seed ${seed}, ${bytes.toString('hex')}: ${(thrown as Error).message}`, {
            cause: thrown,
          });
        }
      };
      for (let length = 0; length < whole.length; length++) check(whole.subarray(0, length));
      for (let i = 0; whole.length > 0 && i < 60; i++) check(damaged(random, whole));
      for (let i = 0; i < 40; i++) check(Buffer.from(Array.from({ length: random(60) }, () => random(256))));
    }
  });
});
