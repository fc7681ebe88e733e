/** The two forms of values of a message type: the exact form of src/formats/datum.ts, and a
 *  producer's plain objects, where a name means an enum's number and null means absent. */
import type { ProtoField } from '../tree.ts';

export interface ProtoForm {
  /** True when a zero means absent in a field that cannot distinguish the two. */
  readonly hidesZeros: boolean;
  readonly isMessage: (value: unknown) => boolean;
  /** Value of a field; undefined where it is absent. */
  readonly fieldOf: (message: unknown, field: ProtoField) => unknown;
  /** Number of fields in a message; undefined where it may have fields that its type lacks. */
  readonly countOf: (message: unknown) => number | undefined;
  /** Entries of a map; undefined for another value. */
  readonly entriesOf: (value: unknown) => Iterable<readonly [key: unknown, value: unknown]> | undefined;
  /** Converts a map's key to a value of its scalar type; a key that does not fit stays unchanged.
   */
  readonly keyOf: (type: string, key: unknown) => unknown;
  /** Converts a number to a value of a scalar type; a value that does not fit stays unchanged. */
  readonly scalarOf: (type: string) => (value: unknown) => unknown;
  /** Converts the name of an enum value to its number. @param numbers by name */
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

/** Properties that every object inherits. */
const INHERITED = Object.prototype as unknown as Readonly<Record<string, unknown>>;
const isObject = (value: unknown): boolean =>
  typeof value === 'object' &&
  value !== null &&
  !Array.isArray(value) &&
  !(value instanceof Map) &&
  !ArrayBuffer.isView(value);
const isWide = (type: string): boolean => type.endsWith('64');
const INTEGER_KEY = /^(0|-?[1-9][0-9]{0,19})$/;

/** Converts a key. @param key of an object, therefore text */
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
