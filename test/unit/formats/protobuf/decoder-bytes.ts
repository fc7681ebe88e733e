/** Payloads in hexadecimal, and their decoded values. */
import { expect, it } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import { protoDecoder } from '../../../../src/formats/protobuf/codec/decoder.ts';
import { parseSchema } from '../../../../src/formats/schema.ts';

const HEAD = { 2: 'syntax = "proto2";', 3: 'syntax = "proto3";', e: 'edition = "2023";' } as const;

export function read(syntax: keyof typeof HEAD, text: string, hex: string, name = 'M'): unknown {
  const schema = parseSchema('PROTOBUF', `${HEAD[syntax]} ${text}`);
  const message = schema.format === 'PROTOBUF' ? schema.tree.byName.get(name) : undefined;
  if (message === undefined) throw new Error(`the schema has no message ${name}`);
  // Other bytes around the payload must not matter.
  const payload = Buffer.from(hex.replaceAll(' ', ''), 'hex');
  const around = Buffer.concat([Buffer.alloc(5, 0x0a), payload, Buffer.alloc(20, 0x01)]);
  return protoDecoder(message)(around, 5, 5 + payload.length);
}

interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly at: unknown;
  readonly path: unknown;
}

export function refusal(...given: Parameters<typeof read>): Refusal {
  try {
    throw new Error(`the payload was read as ${String(read(...given))}`);
  } catch (thrown) {
    if (!(thrown instanceof MillraceError)) throw thrown;
    const { code, message, details } = thrown;
    return { code, message, at: details['at'], path: details['path'] };
  }
}

type Case = readonly [what: string, syntax: keyof typeof HEAD, text: string, hex: string, value: unknown];
export const all = (cases: readonly Case[]): void => {
  it.each(cases)('a hand-written payload is decoded: %s', (_what, syntax, text, hex, value) => {
    expect(read(syntax, text, hex)).toStrictEqual(value);
  });
};

/** Nine continuation bytes of a varint. */
export const LONGEST = 'ffffffffffffffffff';
