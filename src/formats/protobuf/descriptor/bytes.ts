/** Wire format for descriptors: a writer, and a reader that checks every length. */
import { floatValue } from '../link/default.ts';

export class ProtoWriter {
  private buffer: Buffer = Buffer.allocUnsafe(64);
  private used = 0;

  private room(more: number): void {
    if (this.used + more <= this.buffer.length) return;
    const grown = Buffer.allocUnsafe(Math.max(this.buffer.length * 2, this.used + more));
    this.buffer.copy(grown, 0, 0, this.used);
    this.buffer = grown;
  }

  varint(value: bigint): this {
    this.room(10);
    let rest = BigInt.asUintN(64, value);
    while (rest > 127n) {
      this.buffer[this.used++] = Number(rest & 127n) | 128;
      rest >>= 7n;
    }
    this.buffer[this.used++] = Number(rest);
    return this;
  }

  /** Writes a number >= 0 that is an exact integer. */
  private size(value: number): this {
    this.room(10);
    let rest = value;
    while (rest > 127) {
      this.buffer[this.used++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.buffer[this.used++] = rest;
    return this;
  }

  tag(field: number, wire: number): this {
    return this.size(field * 8 + wire);
  }

  raw(bytes: Buffer): this {
    this.room(bytes.length);
    bytes.copy(this.buffer, this.used);
    this.used += bytes.length;
    return this;
  }

  /** Writes a field, or nothing for an undefined value. */
  integer(field: number, value: number | undefined): this {
    if (value === undefined) return this;
    this.tag(field, 0);
    return value < 0 ? this.varint(BigInt(value)) : this.size(value);
  }

  flag(field: number, value: boolean): this {
    return value ? this.integer(field, 1) : this;
  }

  bytes(field: number, value: Buffer | string | undefined): this {
    if (value === undefined) return this;
    const bytes = typeof value === 'string' ? Buffer.from(value) : value;
    return this.tag(field, 2).size(bytes.length).raw(bytes);
  }

  each(field: number, values: readonly (Buffer | string)[]): this {
    for (const value of values) this.bytes(field, value);
    return this;
  }

  finish(): Buffer {
    return this.buffer.subarray(0, this.used);
  }
}

/** One field in the bytes of a message. */
export interface WireField {
  readonly number: number;
  readonly wire: number;
  /** Varints and fixed numbers, unsigned. */
  readonly value: bigint;
  /** Content of wire type 2, and of a group between its tags. */
  readonly bytes: Buffer;
}

const NOTHING = Buffer.alloc(0);

/** Reads the fields of one message, undefined for invalid bytes. @param depth greatest nesting of
 *  groups */
export function readFields(bytes: Buffer, depth = 64): WireField[] | undefined {
  const reader = new Reader(bytes);
  const fields = reader.fields(depth, undefined);
  return fields !== undefined && reader.at === bytes.length ? fields : undefined;
}

/** Reads the varints of a packed field. */
export function readVarints(bytes: Buffer): bigint[] | undefined {
  const reader = new Reader(bytes);
  const values: bigint[] = [];
  while (reader.at < bytes.length) {
    const value = reader.varint();
    if (value === undefined) return undefined;
    values.push(value);
  }
  return values;
}

class Reader {
  at = 0;
  private readonly bytes: Buffer;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  varint(): bigint | undefined {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) return undefined;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    return undefined;
  }

  /** Reads fields. @param group number of the group whose end tag ends the list; undefined: up to
   *  the end of the bytes */
  fields(depth: number, group: number | undefined): WireField[] | undefined {
    if (depth < 0) return undefined;
    const fields: WireField[] = [];
    while (this.at < this.bytes.length) {
      const tag = this.varint();
      if (tag === undefined || tag >= 1n << 32n) return undefined;
      const number = Number(tag >> 3n);
      const wire = Number(tag & 7n);
      if (number === 0) return undefined;
      if (wire === 4) return number === group ? fields : undefined;
      const field = this.field(number, wire, depth);
      if (field === undefined) return undefined;
      fields.push(field);
    }
    return group === undefined ? fields : undefined;
  }

  private field(number: number, wire: number, depth: number): WireField | undefined {
    const { bytes } = this;
    if (wire === 0) {
      const value = this.varint();
      return value === undefined ? undefined : { number, wire, value, bytes: NOTHING };
    }
    if (wire === 1 || wire === 5) {
      const size = wire === 1 ? 8 : 4;
      if (this.at + size > bytes.length) return undefined;
      const value = wire === 1 ? bytes.readBigUInt64LE(this.at) : BigInt(bytes.readUInt32LE(this.at));
      this.at += size;
      return { number, wire, value, bytes: NOTHING };
    }
    const start = this.at;
    if (wire === 2) {
      const length = this.varint();
      if (length === undefined || length > BigInt(bytes.length - this.at)) return undefined;
      const from = this.at;
      this.at += Number(length);
      return { number, wire, value: 0n, bytes: bytes.subarray(from, this.at) };
    }
    if (wire !== 3 || this.fields(depth - 1, number) === undefined) return undefined;
    return { number, wire, value: 0n, bytes: withoutEndTag(bytes.subarray(start, this.at), number) };
  }
}

function withoutEndTag(bytes: Buffer, number: number): Buffer {
  const length = new ProtoWriter().tag(number, 4).finish().length;
  return bytes.subarray(0, bytes.length - length);
}

/** Bytes of a float or double. @returns undefined where the text is no value of the type */
export function floatBytes(text: string, type: 'float' | 'double'): Buffer | undefined {
  const value = floatValue(text);
  if (value === undefined) return undefined;
  const bytes = Buffer.alloc(type === 'float' ? 4 : 8);
  if (type === 'float') bytes.writeFloatLE(Math.fround(value));
  else bytes.writeDoubleLE(value);
  return bytes;
}
