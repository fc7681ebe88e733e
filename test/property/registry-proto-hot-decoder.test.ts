/** A Protobuf decoder that has read many payloads reads with generated code. It must give the
 *  values and the errors of a new decoder. */
import { expect, it } from 'vitest';
import { protoDecoder } from '../../src/formats/protobuf/codec/decoder.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import { demandSame, hotDecoder, MUTANTS, outcome } from './hot-decoder-kit.ts';
import { messageOf, randomDatum, randomOf, randomText, SYNTAXES } from './registry-proto-decoder-kit.ts';

const SCHEMAS = 70;
const EVENTS = 3;

it.each(SYNTAXES)(
  '%s: a decoder gives the same values and errors after many payloads as before',
  (syntax) => {
    const seen = { values: 0, errors: 0 };
    for (let seed = 1; seed <= SCHEMAS; seed++) {
      const random = randomOf(seed);
      // The reader lacks some fields of the writer, and has others with another type.
      const writer = messageOf(randomText(seed * 7919, syntax, { required: seed % 2 === 0 }));
      const reader = seed % 3 === 0 ? messageOf(randomText(seed * 7919 + 1, syntax, {})) : writer;
      const payloads = Array.from({ length: EVENTS }, () => encodeProto(writer, randomDatum(random, writer)));
      payloads.push(Buffer.concat(payloads));
      const { values, errors } = demandSame(() => protoDecoder(reader), payloads, random);
      seen.values += values;
      seen.errors += errors;
    }
    expect(seen.values).toBeGreaterThan(MUTANTS * 50);
    expect(seen.errors).toBeGreaterThan(MUTANTS * 50);
  },
);

const DEEP = messageOf(`syntax = "proto3";
package p;
message M0 {
  string name = 1;
  M0 inner = 2;
  repeated M0 list = 3;
  map<string, M0> by_name = 4;
  oneof choice { M0 one = 5; int64 two = 6; }
}`);

it('nesting, parts of messages and members of oneofs are read by generated code as by shared code', () => {
  const nested = (depth: number): Buffer => {
    let body = Buffer.from('0a0161', 'hex');
    for (let i = 0; i < depth; i++) body = Buffer.concat([Buffer.of(0x12), lengthOf(body.length), body]);
    return body;
  };
  const payloads = [
    nested(0),
    nested(99),
    nested(100),
    nested(101),
    // A message and a map value in two parts, and a member of the oneof after the other.
    bytesOf('12030a0161 12030a0162'),
    bytesOf('2a030a0161 3007 2a030a0162 3008 2a00'),
    bytesOf('2a030a0161 3007'),
    bytesOf('220c 0a0161 12030a0161 12020a00'),
    bytesOf('2200 2203 0a0161'),
  ];
  const make = (): ReturnType<typeof protoDecoder> => protoDecoder(DEEP);
  const hot = hotDecoder(make, payloads);
  for (const payload of payloads) expect(outcome(hot, payload)).toBe(outcome(make(), payload));
  expect(outcome(hot, nested(101))).toContain('nested deeper');
});

const bytesOf = (hex: string): Buffer => Buffer.from(hex.replaceAll(' ', ''), 'hex');
const lengthOf = (length: number): Buffer =>
  length < 128 ? Buffer.of(length) : Buffer.of((length & 127) | 128, length >> 7);
