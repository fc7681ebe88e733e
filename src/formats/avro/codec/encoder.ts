/** Writes a datum, which determines every byte, as an Avro payload.
 *
 *  Nothing is rounded, chosen or filled in: a number that is no float does not fit a float, a
 *  union's branch is named, a record has every field. Arrays and maps are one block. Source: Apache
 *  Avro 1.12 specification, "Binary Encoding". */

import type { AvroBranchDatum, AvroDatum, AvroRecordDatum } from '../../datum.ts';
import { formatError } from '../../errors.ts';
import { type AvroNode, type AvroPrimitive, avroTypeName } from '../syntax/tree.ts';
import { AVRO_PAYLOAD_DEPTH_MAX } from './cursor.ts';
import { shownName } from './match.ts';

/** Greatest number of bytes of one payload. */
const PAYLOAD_BYTES_MAX = 64 << 20;

const LONG_LEAST = -(2n ** 63n);
const LONG_MOST = 2n ** 63n - 1n;
const HALF_PAIR = /\p{Surrogate}/u;

/** Encodes a datum. @throws value_refused for a datum that does not fit */
export function encodeAvro(node: AvroNode, datum: AvroDatum): Buffer {
  const into = new Bytes();
  write(into, node, datum, 0);
  return into.done();
}

class Bytes {
  private bytes = Buffer.allocUnsafe(256);
  private used = 0;

  /** Reserves `count` bytes and returns their start. */
  private room(count: number): number {
    const at = this.used;
    const used = at + count;
    if (used > PAYLOAD_BYTES_MAX)
      throw formatError('value_refused', `a payload has at most ${PAYLOAD_BYTES_MAX} bytes`);
    if (used > this.bytes.length) {
      const grown = Buffer.allocUnsafe(Math.max(used, this.bytes.length * 2));
      this.bytes.copy(grown, 0, 0, at);
      this.bytes = grown;
    }
    this.used = used;
    return at;
  }

  byte(value: number): void {
    const at = this.room(1);
    this.bytes[at] = value;
  }

  long(value: bigint): void {
    let rest = BigInt.asUintN(64, (value << 1n) ^ (value >> 63n));
    for (; rest >= 128n; rest >>= 7n) this.byte(Number(rest & 127n) | 128);
    this.byte(Number(rest));
  }

  float(value: number): void {
    const at = this.room(4);
    this.bytes.writeFloatLE(value, at);
  }

  double(value: number): void {
    const at = this.room(8);
    this.bytes.writeDoubleLE(value, at);
  }

  raw(value: Uint8Array): void {
    const at = this.room(value.length);
    this.bytes.set(value, at);
  }

  /** Writes bytes after their length. */
  blob(value: Uint8Array): void {
    this.long(BigInt(value.length));
    this.raw(value);
  }

  done(): Buffer {
    return Buffer.from(this.bytes.subarray(0, this.used));
  }
}

function refused(node: AvroNode, datum: unknown): Error {
  const what = typeof datum === 'object' ? (datum?.constructor?.name ?? 'null') : `${typeof datum}`;
  const shown = typeof datum === 'number' || typeof datum === 'bigint' ? ` ${datum}` : '';
  return formatError(
    'value_refused',
    `a datum does not fit its Avro type ${shownName(avroTypeName(node))}: ${what}${shown}`,
  );
}

function write(into: Bytes, node: AvroNode, datum: AvroDatum, depth: number): void {
  const hasParts = node.kind === 'record' || node.kind === 'array' || node.kind === 'map';
  if (hasParts && depth >= AVRO_PAYLOAD_DEPTH_MAX)
    throw formatError('value_refused', `a datum is nested deeper than ${AVRO_PAYLOAD_DEPTH_MAX} values`);
  switch (node.kind) {
    case 'primitive':
      if (!writePrimitive(into, node.type, datum)) throw refused(node, datum);
      return;
    case 'fixed':
      if (!(datum instanceof Uint8Array) || datum.length !== node.size) throw refused(node, datum);
      into.raw(datum);
      return;
    case 'enum': {
      const index = typeof datum === 'string' ? node.symbols.indexOf(datum) : -1;
      if (index < 0) throw refused(node, datum);
      into.long(BigInt(index));
      return;
    }
    case 'union': {
      if (!isPart(datum) || !('branch' in datum)) throw refused(node, datum);
      const branch = node.branches[datum.branch];
      if (branch === undefined) throw refused(node, datum);
      into.long(BigInt(datum.branch));
      // A union does not count as a nesting level; its value does.
      write(into, branch, datum.value, depth);
      return;
    }
    case 'array':
      if (!Array.isArray(datum)) throw refused(node, datum);
      if (datum.length > 0) {
        into.long(BigInt(datum.length));
        for (const item of datum as readonly AvroDatum[]) write(into, node.items, item, depth + 1);
      }
      into.byte(0);
      return;
    case 'map':
      if (!(datum instanceof Map)) throw refused(node, datum);
      if (datum.size > 0) {
        into.long(BigInt(datum.size));
        for (const [key, value] of datum as ReadonlyMap<unknown, AvroDatum>) {
          if (!writeText(into, key)) throw refused(node, datum);
          write(into, node.values, value, depth + 1);
        }
      }
      into.byte(0);
      return;
    case 'record': {
      if (!isPart(datum) || !('fields' in datum)) throw refused(node, datum);
      if (datum.fields.length !== node.fields.length) throw refused(node, datum);
      node.fields.forEach((field, index) => {
        write(into, field.type, datum.fields[index] as AvroDatum, depth + 1);
      });
      return;
    }
  }
}

function isPart(datum: AvroDatum): datum is AvroRecordDatum | AvroBranchDatum {
  return typeof datum === 'object' && datum !== null && ('fields' in datum || 'branch' in datum);
}

function writeText(into: Bytes, text: unknown): boolean {
  // A lone surrogate has no UTF-8 encoding.
  if (typeof text !== 'string' || HALF_PAIR.test(text)) return false;
  into.blob(Buffer.from(text, 'utf8'));
  return true;
}

/** Returns false, with nothing written, if the datum is not exactly a value of the type. */
function writePrimitive(into: Bytes, type: AvroPrimitive, datum: AvroDatum): boolean {
  switch (type) {
    case 'null':
      return datum === null;
    case 'boolean':
      if (typeof datum !== 'boolean') return false;
      into.byte(datum ? 1 : 0);
      return true;
    case 'int':
      if (typeof datum !== 'number' || datum !== (datum | 0)) return false;
      into.long(BigInt(datum));
      return true;
    case 'long':
      if (typeof datum !== 'bigint' || datum < LONG_LEAST || datum > LONG_MOST) return false;
      into.long(datum);
      return true;
    case 'float':
      if (typeof datum !== 'number' || !Object.is(Math.fround(datum), datum)) return false;
      into.float(datum);
      return true;
    case 'double':
      if (typeof datum !== 'number') return false;
      into.double(datum);
      return true;
    case 'bytes':
      if (!(datum instanceof Uint8Array)) return false;
      into.blob(datum);
      return true;
    case 'string':
      return writeText(into, datum);
  }
}
