/** Conversion of values to and from PostgreSQL's text format: parameters, COPY cells and result
 *  columns.
 *
 *  Text is exact for every type used here; no value passes through a rounded number or the
 *  process's time zone.
 */
import type { SqlValue } from './port.ts';

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

function hexOf(bytes: Uint8Array): string {
  let text = '\\x';
  for (const byte of bytes) text += HEX[byte];
  return text;
}

/** Text format of one value; null stays null. */
function toText(value: SqlValue): string | null {
  if (value === null) return null;
  if (typeof value === 'string') return value;
  if (typeof value === 'bigint' || typeof value === 'number') return String(value);
  if (typeof value === 'boolean') return value ? 't' : 'f';
  if (value instanceof Uint8Array) return hexOf(value);
  if (value instanceof Date) return value.toISOString();
  return arrayText(value);
}

function arrayText(values: readonly SqlValue[]): string {
  const parts = values.map((value) => {
    if (Array.isArray(value)) return arrayText(value as readonly SqlValue[]);
    const text = toText(value);
    return text === null ? 'NULL' : `"${text.replace(/["\\]/g, '\\$&')}"`;
  });
  return `{${parts.join(',')}}`;
}

/** Parameter for pg: text, or bytes in binary. */
export function toParameter(value: SqlValue): string | Buffer | null {
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  return toText(value);
}

/** Cell of COPY's text format. */
export function toCopyCell(value: SqlValue): string {
  const text = toText(value);
  if (text === null) return '\\N';
  return /[\\\t\n\r]/.test(text)
    ? text.replace(/[\\\t\n\r]/g, (c) =>
        c === '\\' ? '\\\\' : c === '\t' ? '\\t' : c === '\n' ? '\\n' : '\\r',
      )
    : text;
}

type Parser = (text: string) => unknown;

function bytesOf(text: string): Uint8Array {
  // bytea_output=hex, the server's default since 9.0.
  return new Uint8Array(Buffer.from(text.slice(2), 'hex'));
}

/** Elements of a one-dimensional array literal; a quoted NULL is a text. */
function arrayElements(literal: string): Array<string | null> {
  const out: Array<string | null> = [];
  let at = 1;
  while (at < literal.length - 1) {
    let text = '';
    let quoted = false;
    if (literal[at] === '"') {
      quoted = true;
      at++;
      while (literal[at] !== '"') {
        if (literal[at] === '\\') at++;
        text += literal[at++];
      }
      at++;
    } else {
      while (at < literal.length - 1 && literal[at] !== ',') text += literal[at++];
    }
    out.push(!quoted && text === 'NULL' ? null : text);
    at++;
  }
  return out;
}

const SCALARS: Readonly<Record<number, Parser>> = {
  16: (text) => text === 't',
  17: bytesOf,
  20: BigInt,
  21: Number,
  23: Number,
  26: Number,
  700: Number,
  701: Number,
  1184: (text) => new Date(text.replace(' ', 'T').replace(/([+-]\d\d)$/, '$1:00')),
};

/** Element types by their array types, as OIDs. */
const ARRAYS: Readonly<Record<number, number>> = {
  1000: 16,
  1001: 17,
  1005: 21,
  1007: 23,
  1016: 20,
  1022: 701,
  1009: 25,
  1015: 1043,
  2951: 2950,
  199: 114,
  1185: 1184,
};

const asText: Parser = (text) => text;

/** Parser of result columns of this type. Types without a parser, json included, stay text. */
export function parserOf(oid: number): Parser {
  const element = ARRAYS[oid];
  if (element !== undefined) {
    const parse = SCALARS[element] ?? asText;
    return (literal) => arrayElements(literal).map((text) => (text === null ? null : parse(text)));
  }
  return SCALARS[oid] ?? asText;
}
