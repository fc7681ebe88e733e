/** Validates JSON text in UTF-8 without building its values. The relay checks every row that it
 *  publishes. JSON.parse costs as much for an ordinary row and leaves garbage, but it blocks the
 *  event loop for 80 to 160 ms on 900,000 bytes of nested brackets, where this check needs 15 ms.
 *  Source: RFC 8259. */
import { isUtf8 } from 'node:buffer';

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const ZERO = 0x30;
const OPEN = { array: 0x5b, object: 0x7b } as const;
const CLOSE = { array: 0x5d, object: 0x7d } as const;
/** Scanner result: the text is not JSON. */
const BAD = -1;

const asciiOf = (text: string): readonly number[] => [...text].map((char) => char.charCodeAt(0));
const LITERALS = new Map(['true', 'false', 'null'].map((text) => [text.charCodeAt(0), asciiOf(text)]));
const ESCAPED = new Set(asciiOf('"\\/bfnrt'));

export function isJsonText(bytes: Uint8Array): boolean {
  if (!isUtf8(bytes)) return false;
  /** Stack of the closing brackets of the open arrays and objects. */
  let closers = new Uint8Array(64);
  let depth = 0;
  for (let at = skipBlanks(bytes, 0); at !== BAD; ) {
    const open = bytes[at];
    if (open === OPEN.array || open === OPEN.object) {
      if (depth === closers.length) closers = grown(closers);
      closers[depth++] = open === OPEN.array ? CLOSE.array : CLOSE.object;
      at = skipBlanks(bytes, at + 1);
      if (bytes[at] !== closers[depth - 1]) {
        at = open === OPEN.object ? nameEnd(bytes, at) : at;
        continue;
      }
    } else at = scalarEnd(bytes, at);
    if (at === BAD) return false;
    at = skipBlanks(bytes, at);
    while (depth > 0 && bytes[at] === closers[depth - 1]) {
      depth--;
      at = skipBlanks(bytes, at + 1);
    }
    if (depth === 0) return at === bytes.length;
    if (bytes[at] !== COMMA) return false;
    at = skipBlanks(bytes, at + 1);
    if (closers[depth - 1] === CLOSE.object) at = nameEnd(bytes, at);
  }
  return false;
}

function grown(cells: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const larger = new Uint8Array(cells.length * 2);
  larger.set(cells);
  return larger;
}

function skipBlanks(bytes: Uint8Array, from: number): number {
  let at = from;
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at++;
  return at;
}

/** Position of the value behind a member's name. */
function nameEnd(bytes: Uint8Array, from: number): number {
  if (bytes[from] !== QUOTE) return BAD;
  const end = stringEnd(bytes, from + 1);
  if (end === BAD) return BAD;
  const colon = skipBlanks(bytes, end);
  return bytes[colon] === COLON ? skipBlanks(bytes, colon + 1) : BAD;
}

/** Position behind the closing quote. */
function stringEnd(bytes: Uint8Array, from: number): number {
  for (let at = from; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte === QUOTE) return at + 1;
    if (byte < 0x20) return BAD;
    if (byte !== BACKSLASH) continue;
    const escaped = bytes[++at] as number;
    if (escaped === 0x75) {
      for (let digit = 0; digit < 4; digit++) if (!isHex(bytes[++at])) return BAD;
    } else if (!ESCAPED.has(escaped)) return BAD;
  }
  return BAD;
}

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= 0x39;

function isHex(byte: number | undefined): boolean {
  const lower = (byte ?? 0) | 0x20;
  return isDigit(byte) || (lower >= 0x61 && lower <= 0x66);
}

function scalarEnd(bytes: Uint8Array, from: number): number {
  const byte = bytes[from];
  if (byte === undefined) return BAD;
  if (byte === QUOTE) return stringEnd(bytes, from + 1);
  const literal = LITERALS.get(byte);
  if (literal === undefined) return numberEnd(bytes, from);
  return literal.every((char, i) => bytes[from + i] === char) ? from + literal.length : BAD;
}

function numberEnd(bytes: Uint8Array, from: number): number {
  let at = bytes[from] === 0x2d ? from + 1 : from;
  at = bytes[at] === ZERO ? at + 1 : digitsEnd(bytes, at);
  if (at !== BAD && bytes[at] === 0x2e) at = digitsEnd(bytes, at + 1);
  if (at === BAD || ((bytes[at] ?? 0) | 0x20) !== 0x65) return at;
  at++;
  return digitsEnd(bytes, bytes[at] === 0x2b || bytes[at] === 0x2d ? at + 1 : at);
}

/** Position behind one or more digits. */
function digitsEnd(bytes: Uint8Array, from: number): number {
  let at = from;
  while (isDigit(bytes[at])) at++;
  return at === from ? BAD : at;
}
