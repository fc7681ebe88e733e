/** The two forms that values of a message type have: the exact one of serde/datum.ts, and the plain objects of a
 *  producer's program, where a name stands for an enum's number and null for absent. */
import type { ProtoField } from '../tree.ts';

export interface ProtoForm {
  /** A zero means absent where the field cannot tell the two apart. */
  readonly hidesZeros: boolean;
  readonly isMessage: (value: unknown) => boolean;
  /** Undefined where the field is absent. */
  readonly fieldOf: (message: unknown, field: ProtoField) => unknown;
  /** How many fields a message says it has; undefined where it may have others than its type. */
  readonly countOf: (message: unknown) => number | undefined;
  /** Undefined where it is no map. */
  readonly entriesOf: (value: unknown) => Iterable<readonly [key: unknown, value: unknown]> | undefined;
  /** A map's key as a value of its scalar type; what does not fit stays as it is. */
  readonly keyOf: (type: string, key: unknown) => unknown;
  /** A number that stands for a value of a scalar type; what does not fit stays as it is. */
  readonly scalarOf: (type: string) => (value: unknown) => unknown;
  /** @param numbers by name */
  readonly enumOf: (numbers: ReadonlyMap<string, number>, value: unknown) => unknown;
}

const same = (value: unknown): unknown => value;

export const DATUM_FORM: ProtoForm = {
  hidesZeros: false,
  isMessage: (value) => value instanceof Map,
  fieldOf: (message, { number }) => (message as ReadonlyMap<number, unknown>).get(number),
  countOf: (message) => (message as ReadonlyMap<number, unknown>).size,
  entriesOf: (value) => {
    const isMap = Array.isArray(value) && value.every((entry) => Array.isArray(entry) && entry.length === 2);
    return isMap ? (value as Array<[unknown, unknown]>) : undefined;
  },
  keyOf: (_type, key) => key,
  scalarOf: () => same,
  enumOf: (_numbers, value) => value,
};

/** What every object has without being given it. */
const INHERITED = Object.prototype as unknown as Readonly<Record<string, unknown>>;
const isObject = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  !(value instanceof Map) &&
  !ArrayBuffer.isView(value);
const isWide = (type: string): boolean => type.endsWith('64');
const INTEGER_KEY = /^(0|-?[1-9][0-9]{0,19})$/;

/** @param key a key of an object, which is text */
function plainKey(type: string, key: unknown): unknown {
  if (type === 'string') return key;
  if (type === 'bool') return key === 'true' ? true : key === 'false' ? false : key;
  if (!INTEGER_KEY.test(key as string)) return key;
  return isWide(type) ? BigInt(key as string) : Number(key);
}

const wideOf = (value: unknown): unknown =>
  typeof value === 'number' && Number.isSafeInteger(value) ? BigInt(value) : value;

export const PLAIN_FORM: ProtoForm = {
  hidesZeros: true,
  isMessage: isObject,
  fieldOf: (message, { name }) => {
    const value = (message as Readonly<Record<string, unknown>>)[name];
    const isInherited = typeof value === 'function' && value === INHERITED[name];
    return value === null || isInherited ? undefined : value;
  },
  countOf: () => undefined,
  entriesOf: (value) => (isObject(value) ? Object.entries(value as object) : undefined),
  keyOf: plainKey,
  scalarOf: (type) => (isWide(type) ? wideOf : same),
  enumOf: (numbers, value) => (typeof value === 'string' ? (numbers.get(value) ?? value) : value),
};
