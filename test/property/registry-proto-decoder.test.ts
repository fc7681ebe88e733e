/** Compares decoder and encoder over random schemas and values with the expected result of the
 *  value, and with protobufjs, which shares no code with them. */
import { describe, expect, it } from 'vitest';
import { protoDecoder } from '../../src/formats/protobuf/codec/decoder.ts';
import { encodeProto } from '../../src/formats/protobuf/codec/encoder.ts';
import { protoEncoder } from '../../src/formats/protobuf/codec/value-encoder.ts';
import type { ProtoField, ProtoMessage } from '../../src/formats/protobuf/tree.ts';
import { encodedBy } from './payloads-kit.ts';
import {
  messageOf,
  plainOf,
  randomDatum,
  randomOf,
  randomText,
  type SchemaOptions,
  SYNTAXES,
  type Syntax,
} from './registry-proto-decoder-kit.ts';
import { type Plain, plainFrom, typeOf } from './registry-proto-decoder-oracle.ts';

const SCHEMAS = 60;
const EVENTS = 4;

/** Runs a check for each random schema, and reports the schema of a failure. */
function forSchemas(
  syntax: Syntax,
  options: SchemaOptions,
  check: (text: string, seed: number) => void,
): void {
  for (let seed = 1; seed <= SCHEMAS; seed++) {
    const text = randomText(seed * 7919, syntax, options);
    try {
      check(text, seed);
    } catch (thrown) {
      throw new Error(`seed ${seed}: ${(thrown as Error).message}\n${text}`, { cause: thrown });
    }
  }
}

const decode = (message: ProtoMessage, bytes: Buffer): unknown =>
  protoDecoder(message)(bytes, 0, bytes.length);

describe.each(SYNTAXES)('%s', (syntax) => {
  it('every value is decoded unchanged, and both encoders write the same bytes', () => {
    forSchemas(syntax, { required: true }, (text, seed) => {
      const message = messageOf(text);
      const random = randomOf(seed);
      for (let i = 0; i < EVENTS; i++) {
        const datum = randomDatum(random, message);
        const bytes = encodeProto(message, datum);
        const plain = plainOf(message, datum);
        expect(decode(message, bytes)).toStrictEqual(plain);
        expect(decode(message, encodedBy(protoEncoder(message), plain))).toStrictEqual(plain);
      }
    });
  });

  it('protobufjs reads the written bytes as the same value and writes the same bytes', () => {
    forSchemas(syntax, { required: true }, (text, seed) => {
      const message = messageOf(text);
      const type = typeOf(text);
      const random = randomOf(seed + 1000);
      for (let i = 0; i < EVENTS; i++) {
        const bytes = encodeProto(message, randomDatum(random, message));
        const theirs = type.decode(bytes);
        const plain = plainFrom(message, theirs as unknown as Plain);
        expect(plain).toStrictEqual(decode(message, bytes));
        expect(decode(message, Buffer.from(type.encode(theirs).finish()))).toStrictEqual(plain);
      }
    });
  });

  it('protobufjs reads concatenated parts as the same value, with unknown fields between them', () => {
    forSchemas(syntax, {}, (text, seed) => {
      const message = messageOf(text);
      const type = typeOf(text);
      const random = randomOf(seed + 2000);
      for (let i = 0; i < EVENTS; i++) {
        const parts = Array.from({ length: 3 }, () => encodeProto(message, randomDatum(random, message)));
        const bytes = Buffer.concat(parts.flatMap((part) => [part, noise(random, message)]));
        expect(plainFrom(message, type.decode(bytes) as unknown as Plain)).toStrictEqual(
          decode(message, bytes),
        );
      }
    });
  });

  it('packed runs are read where single values are written, and the reverse', () => {
    forSchemas(syntax, {}, (text, seed) => {
      const message = messageOf(text);
      const turned = messageOf(randomText(seed * 7919, syntax, { turnPacking: true }));
      const datum = randomDatum(randomOf(seed + 3000), message);
      expect(decode(turned, encodeProto(message, datum))).toStrictEqual(plainOf(message, datum));
    });
  });
});

/** An unknown field, or a known number with a wire type that the field does not have. */
function noise(random: (below: number) => number, message: ProtoMessage): Buffer {
  const VALUES = ['8101', '0102030405060708', '03ffffff', '', '', '01020304'];
  const known = message.fields[random(message.fields.length)] as ProtoField;
  const isOwn = random(2) === 0;
  const number = isOwn ? known.number : 450;
  const takes = isOwn ? wiresOf(known) : [];
  const wires = [0, 1, 2, 3, 5].filter((wire) => !takes.includes(wire));
  const wire = wires[random(wires.length)] as number;
  const inside = '0a0378787813080514';
  const body = wire === 3 ? `${inside}${tagHex(number, 4)}` : (VALUES[wire] as string);
  return Buffer.from(`${tagHex(number, wire)}${body}`, 'hex');
}

function wiresOf(field: ProtoField): readonly number[] {
  if (field.mapKey !== undefined) return [2];
  if (field.message !== undefined) return [field.delimited ? 3 : 2];
  if (field.type === 'string' || field.type === 'bytes') return [2];
  const own = /fixed64|double/.test(field.type) ? 1 : /fixed32|float/.test(field.type) ? 5 : 0;
  return field.repeated ? [own, 2] : [own];
}

function tagHex(number: number, wire: number): string {
  const bytes: number[] = [];
  let rest = number * 8 + wire;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 128);
  return Buffer.from([...bytes, rest]).toString('hex');
}
