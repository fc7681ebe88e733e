/** Input of the contestants: framed records of one shape and format with the values they hold, and
 *  the check that a contestant reads and writes exactly those. */
import { isDeepStrictEqual } from 'node:util';
import { coreError } from '../../src/core/errors.ts';
import type { SchemaPair, SerdeFormat, SerdeOrder, Shape } from './shapes.ts';
import type { Pass } from './timing.ts';

/** Schema that a reader wants: the writer's, or a newer one. */
export type Wanted = 'writer' | 'reader';

export interface SerdeCase {
  /** `Avro, S`. */
  readonly title: string;
  readonly shape: Shape;
  readonly format: SerdeFormat;
  readonly texts: SchemaPair;
  /** Id of the writer schema, and the prefix of every record. */
  readonly id: number;
  readonly prefix: Buffer;
  readonly orders: readonly SerdeOrder[];
  /** The same values with numbers for 64-bit integers. */
  readonly numbers: readonly SerdeOrder[];
  readonly frames: readonly Buffer[];
  /** Values of Millrace's exact decoder in comparable form. */
  readonly expected: Readonly<Record<Wanted, readonly unknown[]>>;
  /** Topic whose subject has the writer schema only, and one whose latest schema is the
   *  reader's. */
  readonly topics: Readonly<Record<Wanted, string>>;
}

type Answer<T> = T | Promise<T>;

/** Way to read a framed record. */
export interface Reading {
  readonly kind: 'read';
  readonly wanted: Wanted;
  /** False: the answers are promises. */
  readonly isSync: boolean;
  read(frame: Buffer, index: number): Answer<unknown>;
  /** Turns a value into plain data for the check; default: the value itself. */
  plain?(value: unknown): unknown;
  /** Fields of a partial read; default: all. */
  readonly fields?: readonly string[];
}

/** Way to write a value as a framed record. */
export interface Writing {
  readonly kind: 'write';
  readonly isSync: boolean;
  write(index: number): Answer<Uint8Array>;
}

/** Way to read all records of a case in one call. */
export interface Batching {
  readonly kind: 'batch';
  readonly wanted: Wanted;
  readAll(): unknown;
  /** Values of the records, for the check. */
  values(): readonly unknown[];
  /** Fields of a partial read; default: all. */
  readonly fields?: readonly string[];
}

export type Contestant = Reading | Writing | Batching;
export type Contestants = Readonly<Record<string, Contestant>>;

/** The value in comparable form: plain objects, integers as decimal text, without the fields whose
 *  names begin with $. */
export function comparable(value: unknown): unknown {
  if (typeof value === 'bigint' || typeof value === 'number') return value.toString();
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).filter(([name]) => !name.startsWith('$'));
  return Object.fromEntries(entries.map(([name, inner]) => [name, comparable(inner)]));
}

function refused(name: string, one: SerdeCase, index: number): never {
  throw coreError('bad_value', `${name} gives another result for record ${index} of ${one.title}`, {
    next: 'its times are not comparable: check its options in bench/serde',
  });
}

function only(fields: readonly string[] | undefined, value: unknown): unknown {
  if (fields === undefined) return value;
  const whole = value as Readonly<Record<string, unknown>>;
  return Object.fromEntries(fields.map((name) => [name, whole[name]]));
}

/** Compares a list of values with the exact decoder's. @throws bad_value */
export function checkValues(
  name: string,
  one: SerdeCase,
  wanted: Wanted,
  values: readonly unknown[],
  fields?: readonly string[],
): void {
  const expected = one.expected[wanted];
  for (const [index, whole] of expected.entries())
    if (!isDeepStrictEqual(comparable(values[index]), only(fields, whole))) refused(name, one, index);
  if (values.length !== expected.length) refused(name, one, expected.length);
}

/** @throws bad_value if a value differs from the exact decoder's */
export async function checkReading(name: string, one: SerdeCase, by: Reading): Promise<void> {
  const values: unknown[] = [];
  for (const [index, frame] of one.frames.entries()) {
    const value = await by.read(frame, index);
    values.push(by.plain === undefined ? value : by.plain(value));
  }
  checkValues(name, one, by.wanted, values, by.fields);
}

/** @param read exact decoder of a framed record
 *  @throws bad_value if a record holds another value than was to be written */
export async function checkWriting(
  name: string,
  one: SerdeCase,
  by: Writing,
  read: (frame: Buffer) => unknown,
): Promise<void> {
  for (const index of one.frames.keys()) {
    const bytes = await by.write(index);
    const frame = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (!frame.subarray(0, one.prefix.length).equals(one.prefix)) refused(name, one, index);
    if (!isDeepStrictEqual(comparable(read(frame)), one.expected.writer[index])) refused(name, one, index);
  }
}

/** Keeps the last result, so that no result is dead code. */
const kept: { last?: unknown } = {};

/** Pass over all records of a case. */
export function passOf(one: SerdeCase, by: Contestant): Pass {
  const { frames } = one;
  if (by.kind === 'batch')
    return () => {
      kept.last = by.readAll();
    };
  const call =
    by.kind === 'read'
      ? (index: number) => by.read(frames[index] as Buffer, index)
      : (index: number) => by.write(index);
  if (by.isSync)
    return () => {
      for (let index = 0; index < frames.length; index++) kept.last = call(index);
    };
  return async () => {
    for (let index = 0; index < frames.length; index++) kept.last = await call(index);
  };
}
