/** Interpreter of programs for Protobuf payloads; the addon's implementation is
 *  native/kernel/codec/protobuf.cc, with a faster reader for payloads in the usual order.
 *
 *  A message is complete only at its end, because its fields arrive in any order and a later value
 *  replaces or extends an earlier one. So the values of a message are held in a frame, and appended
 *  to the columns in the order of the fields when the message around them ends. Elements of lists
 *  and maps are never changed later: they are appended when they are read. */
import type { ColumnDecoder, ColumnProgram } from '../../../core/columns/kernel.ts';
import { PROTO_FLAG, PROTO_KIND } from '../../../core/layout/layouts.gen.ts';
import { ProtoPayload, WIRE } from './proto-payload.ts';
import { type ProtoFieldCode, type ProtoNodeCode, readProtoProgram, valueColumn } from './proto-program.ts';
import { RowDecoder } from './row-decoder.ts';

/** Opens a program. @throws out_of_range for code that is no program */
export function openProtobuf(program: ColumnProgram): ColumnDecoder {
  return new ProtoColumns(program, readProtoProgram(program));
}

/** Value of a scalar: two words of a number, or start and end of a text. */
interface Scalar {
  readonly low: number;
  readonly high: number;
}

/** A message that may still get further parts. */
class Frame {
  readonly node: ProtoNodeCode;
  /** Scalars and messages by field; a hole is absent. */
  readonly scalars: Array<Scalar | undefined> = [];
  readonly messages: Array<Frame | undefined> = [];
  /** Parts of a message as bytes: start and end, by field. */
  readonly raws: Array<number[] | undefined> = [];
  /** End of the last part that lacked a required field. */
  incompleteAt = -1;
  /** Where the first element of a list lacked a required field, by field. */
  readonly lacking: number[] = [];
  /** Where the entries of a map lack a required field, by field and key. */
  readonly lackingEntries: Array<Map<string, number> | undefined> = [];

  constructor(node: ProtoNodeCode) {
    this.node = node;
  }

  has(field: number): boolean {
    return this.scalars[field] !== undefined || this.messages[field] !== undefined;
  }

  clear(field: number): void {
    this.scalars[field] = undefined;
    this.messages[field] = undefined;
    this.raws[field] = undefined;
  }

  /** Records that a part ends without a required field. */
  endPart(at: number): void {
    if (this.node.required.some((field) => !this.has(field))) this.incompleteAt = at;
  }
}

const VARINT_KINDS: readonly number[] = [
  PROTO_KIND.INT32,
  PROTO_KIND.UINT32,
  PROTO_KIND.SINT32,
  PROTO_KIND.BOOL,
  PROTO_KIND.INT64,
  PROTO_KIND.SINT64,
  PROTO_KIND.ENUM,
  PROTO_KIND.CLOSED_ENUM,
];

function wireOf(kind: number): number {
  if (VARINT_KINDS.includes(kind)) return WIRE.VARINT;
  if (kind === PROTO_KIND.FIXED32) return WIRE.FIXED32;
  return kind === PROTO_KIND.FIXED64 ? WIRE.FIXED64 : WIRE.LENGTH;
}

const ZERO: Scalar = { low: 0, high: 0 };

class ProtoColumns extends RowDecoder {
  private readonly nodes: readonly ProtoNodeCode[];
  private readonly from = new ProtoPayload();

  constructor(program: ColumnProgram, nodes: readonly ProtoNodeCode[]) {
    super(program);
    this.nodes = nodes;
  }

  protected readRow(bytes: Uint8Array, start: number, end: number): void {
    this.from.open(bytes, start, end);
    const root = this.frame(this.nodes[0] as ProtoNodeCode);
    this.readLength(root);
    const lackingAt = this.flush(root);
    if (lackingAt >= 0) throw this.from.malformed(lackingAt);
  }

  private frame(node: ProtoNodeCode): Frame {
    this.from.spend(node.spend);
    return new Frame(node);
  }

  /** Reads a part of a message up to the input's limit. */
  private readLength(into: Frame): void {
    const { from } = this;
    while (from.at < from.limit) {
      const start = from.at;
      this.readField(into, from.tag(), start);
    }
    into.endPart(from.at);
  }

  /** Reads a part up to the tag that ends the group. @returns the start of that tag */
  private readGroup(into: Frame, number: number): number {
    const { from } = this;
    for (;;) {
      const start = from.at;
      const tag = from.tag();
      if ((tag & 7) === WIRE.END) {
        if (tag >>> 3 !== number) throw from.malformed(start);
        into.endPart(from.at);
        return start;
      }
      this.readField(into, tag, start);
    }
  }

  /** Reads a message behind its length, or a group. @returns start and end of its bytes */
  private readMessage(into: Frame, tag: number): readonly [start: number, end: number] {
    const { from } = this;
    from.descend();
    let start = from.at;
    let end: number;
    if ((tag & 7) === WIRE.GROUP) end = this.readGroup(into, tag >>> 3);
    else {
      const outer = from.enter();
      start = from.at;
      this.readLength(into);
      end = from.at;
      from.leave(outer);
    }
    from.ascend();
    return [start, end];
  }

  private readField(into: Frame, tag: number, start: number): void {
    const { from } = this;
    const found = into.node.tags.get(tag);
    if (found === undefined) {
      from.skip(tag, start);
      return;
    }
    const field = into.node.fields[found.field] as ProtoFieldCode;
    if (found.isRun) {
      const outer = from.enter();
      while (from.at < from.limit) this.appendItem(field);
      from.leave(outer);
    } else if ((field.flags & PROTO_FLAG.MAP) !== 0) this.readEntry(into, found.field, field);
    else if (field.kind === PROTO_KIND.MESSAGE) {
      if ((field.flags & PROTO_FLAG.REPEATED) === 0) this.readSingle(into, found.field, field, tag);
      else this.readElement(into, found.field, field, tag);
    } else if ((field.flags & PROTO_FLAG.REPEATED) !== 0) this.appendItem(field);
    else {
      const value = this.scalar(field);
      if (value === undefined) return;
      this.select(into, found.field, field);
      into.scalars[found.field] = value;
    }
  }

  /** Clears the other members of the oneof of a field that is absent so far. */
  private select(into: Frame, index: number, { members }: ProtoFieldCode): void {
    if (members === undefined || into.has(index)) return;
    this.from.spend(members.length);
    for (const member of members) {
      const field = into.node.fields[member] as ProtoFieldCode;
      const isStruct = field.kind === PROTO_KIND.MESSAGE && (field.flags & PROTO_FLAG.RAW) === 0;
      if (isStruct && field.column >= 0 && into.messages[member] !== undefined)
        this.into.truncateOpen(field.column);
      into.clear(member);
    }
  }

  /** Reads a part of a message that is no element. */
  private readSingle(into: Frame, index: number, field: ProtoFieldCode, tag: number): void {
    let message = into.messages[index];
    if (message === undefined) {
      message = this.frame(this.nodes[field.child] as ProtoNodeCode);
      this.select(into, index, field);
      into.messages[index] = message;
    }
    const part = this.readMessage(message, tag);
    if ((field.flags & PROTO_FLAG.RAW) === 0) return;
    into.raws[index] = [...(into.raws[index] ?? []), ...part];
  }

  /** Reads a message of a list and appends it. */
  private readElement(into: Frame, index: number, field: ProtoFieldCode, tag: number): void {
    const element = this.frame(this.nodes[field.child] as ProtoNodeCode);
    const part = this.readMessage(element, tag);
    const lackingAt = this.flush(element);
    if (lackingAt >= 0) into.lacking[index] ??= lackingAt;
    if ((field.flags & PROTO_FLAG.RAW) !== 0 && field.column >= 0) this.appendRaw(valueColumn(field), part);
  }

  /** Reads a map entry, a message of a key = 1 and a value = 2, and appends it. An entry whose last
   *  value is a number that a closed enum lacks is dropped. */
  private readEntry(into: Frame, index: number, field: ProtoFieldCode): void {
    const { from } = this;
    const isMessage = field.kind === PROTO_KIND.MESSAGE;
    const keyTag = (1 << 3) | wireOf(field.key);
    const valueTag = (2 << 3) | (isMessage ? WIRE.LENGTH : wireOf(field.kind));
    from.descend();
    const outer = from.enter();
    let key = ZERO;
    let value: Scalar | undefined = this.zero(field);
    const message = isMessage ? this.frame(this.nodes[field.child] as ProtoNodeCode) : undefined;
    const parts: number[] = [];
    while (from.at < from.limit) {
      const start = from.at;
      const tag = from.tag();
      if (tag === keyTag) key = this.number(field.key);
      else if (tag !== valueTag) from.skip(tag, start);
      else if (message === undefined) value = this.scalar(field);
      else parts.push(...this.readMessage(message, tag));
    }
    message?.endPart(from.at);
    from.leave(outer);
    from.ascend();
    if (value === undefined) return;
    if (field.column >= 0) this.append(field.key, field.column + 2, key);
    if (message !== undefined)
      this.recordEntry(into, index, this.keyText(field.key, key), this.flush(message));
    if (field.column < 0) return;
    if (!isMessage) this.append(field.kind, valueColumn(field), value);
    else if ((field.flags & PROTO_FLAG.RAW) !== 0) this.appendRaw(valueColumn(field), parts);
    this.into.close(field.column + 1);
  }

  /** The last entry of a key decides whether the entry lacks a required field. */
  private recordEntry(into: Frame, index: number, key: string, lackingAt: number): void {
    const entries = into.lackingEntries[index];
    if (lackingAt < 0) {
      entries?.delete(key);
      return;
    }
    const made = entries ?? new Map<string, number>();
    made.set(key, lackingAt);
    into.lackingEntries[index] = made;
  }

  private keyText(kind: number, { low, high }: Scalar): string {
    if (kind !== PROTO_KIND.STRING) return `${low} ${high}`;
    return Buffer.from(this.from.bytes.subarray(low, high)).toString('latin1');
  }

  private appendItem(field: ProtoFieldCode): void {
    const value = this.scalar(field);
    if (value !== undefined && field.column >= 0) this.append(field.kind, valueColumn(field), value);
  }

  /** Reads a value; undefined for a number that its closed enum lacks. */
  private scalar({ kind, symbols }: ProtoFieldCode): Scalar | undefined {
    const value = this.number(kind);
    if (symbols === undefined) return value;
    const index = symbols.get(value.low);
    return index === undefined ? undefined : { low: index, high: 0 };
  }

  private number(kind: number): Scalar {
    const { from } = this;
    switch (kind) {
      case PROTO_KIND.STRING:
      case PROTO_KIND.BYTES: {
        const low = kind === PROTO_KIND.STRING ? from.text() : from.blob();
        return { low, high: from.at };
      }
      case PROTO_KIND.SINT32:
        from.sint32();
        return { low: from.low, high: 0 };
      case PROTO_KIND.SINT64:
        from.sint64();
        break;
      case PROTO_KIND.FIXED32:
        from.fixed32();
        return { low: from.low, high: 0 };
      case PROTO_KIND.FIXED64:
        from.fixed64();
        break;
      case PROTO_KIND.INT64:
        from.varint();
        break;
      case PROTO_KIND.BOOL:
        from.varint();
        return { low: (from.low | from.high) === 0 ? 0 : 1, high: 0 };
      default:
        from.varint();
        return { low: from.low, high: 0 };
    }
    return { low: from.low, high: from.high };
  }

  private zero({ kind, zero }: ProtoFieldCode): Scalar {
    return kind === PROTO_KIND.ENUM ? { low: zero, high: 0 } : ZERO;
  }

  private append(kind: number, column: number, { low, high }: Scalar): void {
    const { into } = this;
    switch (kind) {
      case PROTO_KIND.STRING:
      case PROTO_KIND.BYTES:
        into.text(column, this.from.bytes, low, high - low);
        return;
      case PROTO_KIND.BOOL:
        into.bool(column, low === 1);
        return;
      case PROTO_KIND.INT64:
      case PROTO_KIND.SINT64:
      case PROTO_KIND.FIXED64:
        into.words(column, low, high);
        return;
      default:
        into.int32(column, low);
    }
  }

  /** Appends the parts of a message, each given by its start and its end. */
  private appendRaw(column: number, parts: readonly number[]): void {
    const { bytes } = this.from;
    if (parts.length === 2) {
      const [start, end] = parts as [number, number];
      this.into.text(column, bytes, start, end - start);
      return;
    }
    const joined: Uint8Array[] = [];
    for (let i = 0; i < parts.length; i += 2) joined.push(bytes.subarray(parts[i], parts[i + 1]));
    const all = Buffer.concat(joined);
    this.into.text(column, all, 0, all.length);
  }

  /** Appends the values of a complete message. Returns where it, or a message in it, lacked a
   *  required field; -1 for nowhere. */
  private flush(frame: Frame): number {
    const { node } = frame;
    let lackingAt = node.required.some((field) => !frame.has(field)) ? frame.incompleteAt : -1;
    for (let i = 0; i < node.fields.length; i++) {
      const found = this.flushField(frame, i, node.fields[i] as ProtoFieldCode);
      if (lackingAt < 0) lackingAt = found;
    }
    if (node.column >= 0) this.into.close(node.column);
    return lackingAt;
  }

  private flushField(frame: Frame, index: number, field: ProtoFieldCode): number {
    const { kind, flags, column } = field;
    if ((flags & (PROTO_FLAG.REPEATED | PROTO_FLAG.MAP)) !== 0) {
      if (column >= 0) this.into.close(column);
      const [entry] = frame.lackingEntries[index]?.values() ?? [];
      return frame.lacking[index] ?? entry ?? -1;
    }
    if (kind === PROTO_KIND.MESSAGE) {
      const message = frame.messages[index];
      if (message === undefined) {
        if (column >= 0) this.into.empty(column);
        return -1;
      }
      const lackingAt = this.flush(message);
      if (column >= 0 && (flags & PROTO_FLAG.RAW) !== 0) this.appendRaw(column, frame.raws[index] ?? []);
      return lackingAt;
    }
    if (column < 0) return -1;
    const value = frame.scalars[index];
    if (value !== undefined) this.append(kind, column, value);
    else if ((flags & PROTO_FLAG.PRESENCE) !== 0 || kind !== PROTO_KIND.ENUM) this.into.empty(column);
    else this.append(kind, column, this.zero(field));
    return -1;
  }
}
