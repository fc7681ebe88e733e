/** Type of a variable-length key, and the canonical bytes of its values.
 *
 *  A key of one part is the bytes of the part: a string as UTF-8, a uuid as 16 bytes. A key of
 *  several parts is their concatenation: integers as 8 bytes, big-endian, with the sign bit of i64
 *  flipped; uuids as 16 bytes; strings and bytes after their length, u16 big-endian.
 *  Invariant: two keys of a type are equal exactly when their canonical bytes are equal. */

export const KEY_KINDS = ['i64', 'u64', 'string', 'bytes', 'uuid'] as const;
export type KeyKind = (typeof KEY_KINDS)[number];

export interface KeyPart {
  /** Path of the field, or `key` for the record's key. */
  readonly name: string;
  readonly kind: KeyKind;
}

export type KeyType = readonly KeyPart[];

/** Greatest number of canonical bytes of a key. */
export const KEY_BYTES_MAX = 1024;
/** Greatest number of fields of a key. */
export const KEY_PARTS_MAX = 16;

export type KeyValue = bigint | string | Uint8Array;

export const UUID_BYTES = 16;
const INTEGER_BYTES = 8;
const LENGTH_BYTES = 2;
const SIGN = 1n << 63n;

export const isInteger = (kind: KeyKind): boolean => kind === 'i64' || kind === 'u64';

/** True if a key of these parts needs canonical bytes: a single integer is its own id. */
export const isVariable = (parts: ReadonlyArray<Pick<KeyPart, 'kind'>>): boolean =>
  parts.length > 1 || parts.some(({ kind }) => !isInteger(kind));

/** True for a valid form of a type that was read from a file. */
export const isKeyType = (read: unknown): read is KeyType =>
  Array.isArray(read) &&
  read.length >= 1 &&
  read.length <= KEY_PARTS_MAX &&
  read.every(
    (part: unknown) =>
      typeof (part as Partial<KeyPart> | null)?.name === 'string' &&
      KEY_KINDS.some((kind) => kind === (part as KeyPart).kind),
  );

export const isSameType = (a: KeyType, b: KeyType): boolean =>
  a.length === b.length && a.every(({ name, kind }, at) => name === b[at]?.name && kind === b[at].kind);

export const typeText = (type: KeyType): string => type.map(({ name, kind }) => `${name}:${kind}`).join();

/** Values of the parts. @throws RangeError if the bytes are no key of the type */
export function keyValues(type: KeyType, bytes: Uint8Array): KeyValue[] {
  if (type.length === 1) return [partValue((type[0] as KeyPart).kind, bytes)];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const values = type.map(({ kind }) => {
    const isSpan = kind === 'string' || kind === 'bytes';
    const from = isSpan ? at + LENGTH_BYTES : at;
    const length = isSpan ? view.getUint16(at) : kind === 'uuid' ? UUID_BYTES : INTEGER_BYTES;
    at = from + length;
    if (at > bytes.length) throw new RangeError('the key is cut short');
    return partValue(kind, bytes.subarray(from, at));
  });
  if (at !== bytes.length) throw new RangeError(`the key has ${bytes.length - at} bytes too many`);
  return values;
}

function partValue(kind: KeyKind, bytes: Uint8Array): KeyValue {
  switch (kind) {
    case 'i64':
      return wordOf(bytes) - SIGN;
    case 'u64':
      return wordOf(bytes);
    case 'string':
      return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8');
    case 'bytes':
      return bytes;
    case 'uuid':
      return uuidText(bytes);
  }
}

const wordOf = (bytes: Uint8Array): bigint =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getBigUint64(0);

function uuidText(bytes: Uint8Array): string {
  if (bytes.length !== UUID_BYTES) throw new RangeError(`a uuid of ${bytes.length} bytes`);
  const hex = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('hex');
  return [[0, 8], [8, 12], [12, 16], [16, 20], [20]].map(([from, to]) => hex.slice(from, to)).join('-');
}

/** Canonical bytes of the values of the parts, which are as `keyValues` returns them.
 *  @throws RangeError for values that are no key of the type */
export function keyOfValues(type: KeyType, values: readonly KeyValue[]): Uint8Array {
  const text = values.map((value) => {
    const part = valueText(value);
    return type.length === 1 ? part : part.replaceAll('%', '%25').replaceAll(',', '%2C');
  });
  const key = keyOfText(type, text.join());
  if (key === undefined) throw new RangeError(`(${text.join()}) is no key of type ${typeText(type)}`);
  return key;
}

/** Text of a part: decimal digits, the string itself, hexadecimal digits, or a uuid. */
export const valueText = (value: KeyValue): string =>
  typeof value === 'object'
    ? Buffer.from(value.buffer, value.byteOffset, value.length).toString('hex')
    : String(value);

/** Name of each part for people: the last names of paths where they differ, else the paths. */
export function partNames(type: KeyType): readonly string[] {
  const last = type.map(({ name }) => name.slice(name.lastIndexOf('.') + 1));
  return new Set(last).size === last.length ? last : type.map(({ name }) => name);
}

/** Reads a key as the engine shows it: the text of its part, or the texts of its parts with commas
 *  between them, where `%2C` and `%25` stand for a comma and a percent sign of a part.
 *  Undefined: the text is no key of the type. */
export function keyOfText(type: KeyType, text: string): Uint8Array | undefined {
  if (type.length === 1) return bounded(partBytes((type[0] as KeyPart).kind, text));
  const texts = text.split(',');
  if (texts.length !== type.length) return undefined;
  const parts: Uint8Array[] = [];
  for (const [at, { kind }] of type.entries()) {
    const part = partBytes(kind, (texts[at] as string).replace(/%2C/gi, ',').replaceAll('%25', '%'));
    if (part === undefined || part.length > KEY_BYTES_MAX) return undefined;
    if (kind === 'string' || kind === 'bytes') parts.push(Uint8Array.of(part.length >> 8, part.length & 255));
    parts.push(part);
  }
  return bounded(new Uint8Array(Buffer.concat(parts)));
}

const bounded = (bytes: Uint8Array | undefined): Uint8Array | undefined =>
  bytes !== undefined && bytes.length <= KEY_BYTES_MAX ? bytes : undefined;

function partBytes(kind: KeyKind, text: string): Uint8Array | undefined {
  switch (kind) {
    case 'i64':
    case 'u64': {
      if (!/^-?\d{1,20}$/.test(text)) return undefined;
      const value = BigInt(text);
      const isInRange = value === (kind === 'i64' ? BigInt.asIntN(64, value) : BigInt.asUintN(64, value));
      return isInRange ? wordBytes(kind === 'i64' ? value + SIGN : value) : undefined;
    }
    case 'string':
      return text.includes('\0') ? undefined : new Uint8Array(Buffer.from(text, 'utf8'));
    case 'bytes':
      return /^([0-9a-f]{2})*$/i.test(text) ? new Uint8Array(Buffer.from(text, 'hex')) : undefined;
    case 'uuid':
      return UUID_TEXT.test(text) ? new Uint8Array(Buffer.from(text.replaceAll('-', ''), 'hex')) : undefined;
  }
}

const UUID_TEXT = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

function wordBytes(value: bigint): Uint8Array {
  const bytes = new Uint8Array(INTEGER_BYTES);
  new DataView(bytes.buffer).setBigUint64(0, value);
  return bytes;
}
