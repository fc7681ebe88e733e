/** Short notations for schemas and events, and a function that decodes the events of one schema
 *  with another. */
import { expect } from 'vitest';
import { findMillraceError, type MillraceError } from '../../../../src/core/errors.ts';
import { avroDecoder } from '../../../../src/formats/avro/codec/decoder.ts';
import { encodeAvro } from '../../../../src/formats/avro/codec/encoder.ts';
import type { AvroNode } from '../../../../src/formats/avro/syntax/tree.ts';
import type { AvroDatum } from '../../../../src/formats/datum.ts';
import type { AvroSchema } from '../../../../src/formats/schema.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';

export const tree = (schema: unknown, lenient = false): AvroNode =>
  (
    parseSchema(
      'AVRO',
      typeof schema === 'string' && /^[[{"]/.test(schema) ? schema : JSON.stringify(schema),
      {
        lenient,
      },
    ) as AvroSchema
  ).tree;
export type Field = readonly [name: string, type: unknown, more?: Readonly<Record<string, unknown>>];
export const record = (name: string, ...fields: readonly Field[]): object => ({
  type: 'record',
  name,
  fields: fields.map(([field, type, more]) => ({ name: field, type, ...more })),
});
export const enumOf = (name: string, symbols: readonly string[], more = {}): object => ({
  type: 'enum',
  name,
  symbols,
  ...more,
});
export const fixed = (name: string, size: number, more = {}): object => ({
  type: 'fixed',
  name,
  size,
  ...more,
});
export const fields = (...list: readonly AvroDatum[]): AvroDatum => ({ fields: list });
export const branch = (index: number, value: AvroDatum): AvroDatum => ({ branch: index, value });

/** Surrounds the payload with other bytes, which must not matter. */
export function decodeBytes(reader: AvroNode, writer: AvroNode, payload: Uint8Array): unknown {
  const around = Buffer.concat([Buffer.alloc(3, 0x7f), payload, Buffer.alloc(20, 0x01)]);
  return avroDecoder(reader, writer)(around, 3, 3 + payload.length);
}
export function read(writer: unknown, reader: unknown, datum: AvroDatum): unknown {
  const from = tree(writer);
  return decodeBytes(tree(reader), from, encodeAvro(from, datum));
}
export function errorOf(run: () => unknown): MillraceError {
  try {
    run();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    if (error !== undefined) return error;
    throw thrown;
  }
  throw new Error('the call did not fail');
}
export const refusal = (writer: unknown, reader: unknown, datum: AvroDatum): MillraceError => {
  const error = errorOf(() => read(writer, reader, datum));
  expect(error.code).toBe('incompatible_schema');
  return error;
};
export const malformation = (schema: unknown, bytes: readonly number[] | Buffer): MillraceError => {
  const node = tree(schema);
  const error = errorOf(() => decodeBytes(node, node, Buffer.from(bytes)));
  expect(error.code).toBe('malformed_payload');
  return error;
};
export const zigzag = (value: bigint): number[] => {
  const out: number[] = [];
  let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
  for (; rest >= 128n; rest >>= 7n) out.push(Number(rest & 127n) | 128);
  return [...out, Number(rest)];
};
