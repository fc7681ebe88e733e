/** Encoder of columns as Protobuf payloads; the addon's implementation is
 *  native/kernel/encode/protobuf.cc. Words: PROTO_PUT in docs/reference/layouts.md. */
import type { ColumnEncoder, EncodeProgram } from '../../../core/columns/kernel.ts';
import { PROTO_FLAG, PROTO_KIND } from '../../../core/layout/layouts.gen.ts';
import { broken, refused } from './payload-sink.ts';
import { has, type PutField, readPutProgram, wireOf } from './proto-fields.ts';
import { RowEncoder } from './row-encoder.ts';

const WIRE_LENGTH = 2;
const WIRE_GROUP = 3;
const WIRE_END = 4;

/** Opens a program. @throws out_of_range for words that are no program */
export const openProtobufEncoder = (program: EncodeProgram): ColumnEncoder =>
  new ProtoEncoder(program, readPutProgram(program));

class ProtoEncoder extends RowEncoder {
  private readonly fields: readonly PutField[];

  constructor(program: EncodeProgram, fields: readonly PutField[]) {
    super(program);
    this.fields = fields;
  }

  protected putRow(row: number): void {
    this.putMessage(this.fields, row);
  }

  private putMessage(fields: readonly PutField[], at: number): void {
    const chosen = new Set<number>();
    for (const field of fields) {
      if (has(field, PROTO_FLAG.REPEATED)) this.putList(field, at);
      else if (has(field, PROTO_FLAG.MAP)) this.putMap(field, at);
      else this.putSingle(field, chosen, at);
    }
  }

  private putSingle(field: PutField, chosen: Set<number>, at: number): void {
    if (this.from.isNull(field.column, at)) {
      if (has(field, PROTO_FLAG.REQUIRED)) throw refused(field.column);
      return;
    }
    if (field.oneof >= 0) {
      if (chosen.has(field.oneof)) throw refused(field.column);
      chosen.add(field.oneof);
    }
    if (has(field, PROTO_FLAG.HIDES_ZERO) && this.isZero(field, at)) return;
    this.putTagged(field, at);
  }

  private isZero({ column, numbers }: PutField, at: number): boolean {
    const { from } = this;
    switch (from.kinds[column]) {
      case 'bool':
        return !from.bool(column, at);
      case 'utf8':
      case 'binary': {
        const found = from.elements(column, at, Number.POSITIVE_INFINITY);
        return found !== undefined && found.start === found.end;
      }
      case 'dictionary':
        return numbers?.[from.view.getUint32(from.cell(column, at), true)] === 0;
      case 'struct':
        return false;
      default: {
        const cell = from.cell(column, at);
        return from.bytes.subarray(cell, cell + from.schema.sizeOf(column)).every((byte) => byte === 0);
      }
    }
  }

  private tag(number: number, wire: number): void {
    this.into.varint(BigInt(((number << 3) | wire) >>> 0));
  }

  /** Writes one value behind its tag. */
  private putTagged(field: PutField, at: number): void {
    this.tag(field.number, has(field, PROTO_FLAG.GROUP) ? WIRE_GROUP : wireOf(field.kind));
    this.putValue(field, at);
  }

  private putList(field: PutField, at: number): void {
    const { from, into } = this;
    const found = from.elements(field.column, at, from.lengthOf(field.value));
    if (found === undefined) throw broken(field.column);
    if (found.start === found.end) return;
    if (has(field, PROTO_FLAG.PACKED)) {
      this.tag(field.number, WIRE_LENGTH);
      this.putRun(field, found.start, found.end);
      return;
    }
    for (let i = found.start; i < found.end; i++) {
      into.reserve(0);
      this.putTagged(field, i);
    }
  }

  private putRun(field: PutField, start: number, end: number): void {
    const { from, into } = this;
    if (field.kind === PROTO_KIND.FIXED32 || field.kind === PROTO_KIND.FIXED64) {
      const run = from.bytes.subarray(from.cell(field.value, start), from.cell(field.value, end));
      into.reserve(run.length);
      into.varint(BigInt(run.length));
      into.raw(run);
      return;
    }
    const begun = into.begin();
    for (let i = start; i < end; i++) {
      into.reserve(0);
      this.putValue(field, i);
    }
    into.finish(begun);
  }

  private putMap(field: PutField, at: number): void {
    const { from, into } = this;
    const found = from.elements(field.column, at, from.lengthOf(field.column + 1));
    if (found === undefined) throw broken(field.column);
    for (let i = found.start; i < found.end; i++) {
      into.reserve(0);
      this.tag(field.number, WIRE_LENGTH);
      const begun = into.begin();
      this.tag(1, wireOf(field.key));
      this.putScalar(field.key, field.column + 2, i);
      this.tag(2, wireOf(field.kind));
      this.putValue(field, i);
      into.finish(begun);
    }
  }

  /** Writes a value without its tag; a message behind its length, or as the content of a group. */
  private putValue(field: PutField, at: number): void {
    const { from, into } = this;
    if (field.kind === PROTO_KIND.MESSAGE) this.putNested(field, at);
    else if (field.numbers === undefined) this.putScalar(field.kind, field.value, at);
    else {
      const number = field.numbers[from.view.getUint32(from.cell(field.value, at), true)];
      if (number === undefined) throw refused(field.value);
      into.varint(BigInt(number));
    }
  }

  private putNested(field: PutField, at: number): void {
    const { from, into } = this;
    const isGroup = has(field, PROTO_FLAG.GROUP);
    if (field.message !== undefined) {
      const begun = isGroup ? -1 : into.begin();
      this.putMessage(field.message, at);
      if (!isGroup) into.finish(begun);
    } else {
      const value = from.text(field.value, at);
      if (value === undefined) throw broken(field.value);
      into.reserve(value.length);
      if (!isGroup) into.varint(BigInt(value.length));
      if (field.check?.isValue(value) !== true) throw refused(field.value);
      into.raw(value);
    }
    if (isGroup) this.tag(field.number, WIRE_END);
  }

  private putScalar(kind: number, column: number, at: number): void {
    const { from, into } = this;
    switch (kind) {
      case PROTO_KIND.UINT32:
        into.varint(BigInt(from.view.getUint32(from.cell(column, at), true)));
        return;
      case PROTO_KIND.SINT32: {
        const value = from.view.getInt32(from.cell(column, at), true);
        into.varint(BigInt(((value << 1) ^ (value >> 31)) >>> 0));
        return;
      }
      case PROTO_KIND.BOOL:
        into.byte(from.bool(column, at) ? 1 : 0);
        return;
      case PROTO_KIND.INT64:
        into.varint(from.view.getBigInt64(from.cell(column, at), true));
        return;
      case PROTO_KIND.SINT64:
        into.zigzag(from.view.getBigInt64(from.cell(column, at), true));
        return;
      case PROTO_KIND.FIXED32:
      case PROTO_KIND.FIXED64: {
        const cell = from.cell(column, at);
        into.raw(from.bytes.subarray(cell, cell + from.schema.sizeOf(column)));
        return;
      }
      case PROTO_KIND.STRING:
      case PROTO_KIND.BYTES:
        into.text(from.text(column, at), column, 0n, kind === PROTO_KIND.STRING);
        return;
      default:
        into.varint(BigInt(from.view.getInt32(from.cell(column, at), true)));
    }
  }
}
