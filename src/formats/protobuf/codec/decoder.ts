/** Decodes payloads into plain objects, by the reader's message type. Field names are those of the
 *  schema and 64-bit integers are bigint. Enums are names, or numbers without a name. Absent is
 *  null where presence is tracked, and the default elsewhere; keys of maps are text. Source:
 *  protobuf.dev, "Encoding", "Field Presence", "Enum Behavior".
 *
 *  Invariants: (1) a field is identified by its tag, so another wire type is an unknown field; (2)
 *  unknown fields, and unknown numbers of a closed enum, are dropped; (3) required fields are
 *  checked when the whole payload was read, because a message may arrive in parts. */

import type { Decode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import { FIELD_NUMBER_MAX } from '../syntax/ast.ts';
import type { ProtoEnum, ProtoField, ProtoMessage } from '../tree.ts';
import { generatedReader, UNUSUAL } from './generated.ts';
import { ProtoInput, SET_ITEM, WIRE, WireFault } from './input.ts';
import { enumNames, scalarOf, zeroName } from './scalar.ts';

type Plain = Record<string, unknown>;

/** Reader of a value that is not a message. */
interface Simple {
  readonly wire: number;
  readonly zero: unknown;
  /** Reads a value; undefined: a number that its closed enum lacks. */
  readonly read: (input: ProtoInput) => unknown;
}

interface FieldReader {
  /** Reads one occurrence into the message. */
  readonly read: (input: ProtoInput, into: Plain) => void;
  /** Path of the current occurrence inside the message. */
  readonly place: (into: Plain) => string;
}

/** Number of payloads after which a decoder has code of its own: making it takes about as long as
 *  so many reads, and most types that are compared read only a few payloads. */
const GENERATED_AFTER_READS = 200;

/** Makes the decoder of one message type; it is reusable. */
export function protoDecoder(message: ProtoMessage): Decode {
  const reader = readerOf(message);
  const input = new ProtoInput();
  let generated: ((input: ProtoInput) => unknown) | undefined;
  let reads = 0;
  return (bytes, start, end) => {
    if (generated === undefined) {
      if (++reads === GENERATED_AFTER_READS) generated = generatedReader(message);
    } else {
      try {
        input.open(bytes, start, end);
        return generated(input);
      } catch (thrown) {
        if (thrown !== UNUSUAL && !(thrown instanceof WireFault)) throw thrown;
      }
    }
    input.open(bytes, start, end);
    try {
      const value = reader.absent(input);
      reader.readLength(input, value);
      reader.demandRequired(input, value);
      return value;
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      const path = `${message.name}${error.path}`;
      throw formatError('malformed_payload', `${error.message}, at byte ${error.at}, in ${path}`, {
        details: { at: error.at, path },
      });
    }
  };
}

const readers = new WeakMap<ProtoMessage, MessageReader>();

function readerOf(message: ProtoMessage): MessageReader {
  const held = readers.get(message) ?? new MessageReader(message);
  readers.set(message, held);
  return held;
}

/** Field readers of one message type. Those of nested types are made when the first such message
 *  occurs: a chain of types may be longer than the stack is deep. */
class MessageReader {
  private readonly fields = new Map<number, FieldReader>();
  /** Extensions of a message set, by number. */
  private readonly items = new Map<number, FieldReader>();
  /** Template of an empty message, without its lists and maps. */
  private readonly empty: Plain = {};
  private readonly lists: string[] = [];
  private readonly maps: string[] = [];
  private readonly required: string[] = [];
  private readonly holders: ProtoField[] = [];
  private readonly size: number;

  constructor(message: ProtoMessage) {
    this.size = message.fields.length;
    const oneofs = new Map<string, string[]>();
    for (const { name, oneof } of message.fields) {
      if (oneof === undefined) continue;
      const members = oneofs.get(oneof);
      if (members === undefined) oneofs.set(oneof, [name]);
      else members.push(name);
    }
    for (const field of message.fields) {
      this.empty[field.name] = null;
      if (field.mapKey !== undefined) this.maps.push(field.name);
      else if (field.repeated) this.lists.push(field.name);
      else if (!field.presence && !field.required) this.empty[field.name] = simpleOf(field).zero;
      // Nothing of an unknown type can be read, so nothing can be missing.
      if (field.message?.unknown === true) continue;
      if (field.required) this.required.push(field.name);
      if (field.message !== undefined) this.holders.push(field);
      const members = field.oneof === undefined ? undefined : oneofs.get(field.oneof);
      for (const [wire, reader] of fieldReaders(field, members)) {
        if (field.number <= FIELD_NUMBER_MAX) this.fields.set(((field.number << 3) | wire) >>> 0, reader);
        if (message.messageSet === true && wire === WIRE.LENGTH) this.items.set(field.number, reader);
      }
    }
    if (message.messageSet === true)
      this.fields.set(SET_ITEM.BEGIN, { read: (input, into) => this.readItem(input, into), place: () => '' });
  }

  /** Makes a message without any field that was read. */
  absent(input: ProtoInput): Plain {
    input.spend(this.size);
    const value = { ...this.empty };
    for (const name of this.lists) value[name] = [];
    for (const name of this.maps) value[name] = Object.create(null) as Plain;
    return value;
  }

  /** Reads up to the input's limit. */
  readLength(input: ProtoInput, into: Plain): void {
    while (input.at < input.limit) this.readField(input, into, input.at, input.tag());
    this.recordIncomplete(input, into);
  }

  /** Reads up to the tag that ends the group. */
  readGroup(input: ProtoInput, into: Plain, number: number): void {
    for (;;) {
      const from = input.at;
      const tag = input.tag();
      if ((tag & 7) !== WIRE.END) this.readField(input, into, from, tag);
      else if (tag >>> 3 === number) break;
      else input.fault(`group ${tag >>> 3} ends, and group ${number} is open`, from);
    }
    this.recordIncomplete(input, into);
  }

  /** Reads a message behind its length. */
  readNested(input: ProtoInput, into: Plain): void {
    input.descend();
    const outer = input.enter();
    this.readLength(input, into);
    input.leave(outer);
    input.ascend();
  }

  private readField(input: ProtoInput, into: Plain, from: number, tag: number): void {
    const field = this.fields.get(tag);
    if (field === undefined) {
      input.skip(tag, from);
      return;
    }
    readAt(field, input, into);
  }

  /** Reads an item of a message set: a group with the extension's number and its message, in any
   *  order. */
  private readItem(input: ProtoInput, into: Plain): void {
    input.descend();
    let number = 0;
    let from = input.at;
    let to = from;
    for (;;) {
      const start = input.at;
      const tag = input.tag();
      if (tag === SET_ITEM.END) break;
      if (tag === SET_ITEM.NUMBER) number = input.uint32();
      else {
        const body = input.at;
        input.skip(tag, start);
        if (tag !== SET_ITEM.MESSAGE) continue;
        from = body;
        to = input.at;
      }
    }
    const field = this.items.get(number);
    if (field !== undefined && to > from) input.reread(from, to, () => readAt(field, input, into));
    input.ascend();
  }

  /** Records a message that lacks a required field at its end; a later part may contain the field.
   */
  recordIncomplete(input: ProtoInput, value: Plain): void {
    if (this.required.some((name) => value[name] === null)) input.incomplete.set(value, input.offset);
  }

  /** Checks the required fields. @param value the message of the whole payload */
  demandRequired(input: ProtoInput, value: Plain): void {
    if (input.incomplete.size > 0) this.findMissing(input, value, '');
  }

  private findMissing(input: ProtoInput, value: Plain, path: string): void {
    const missing = this.required.find((name) => value[name] === null);
    if (missing !== undefined) {
      const at = input.incomplete.get(value) ?? input.offset;
      const fault = new WireFault(`the required field ${missing} is missing`, at);
      fault.path = path;
      throw fault;
    }
    for (const { name, message, mapKey, repeated } of this.holders) {
      const held = value[name] as Plain | null;
      if (held === null) continue;
      const inner = readerOf(message as ProtoMessage);
      const at = `${path}.${name}`;
      if (!repeated && mapKey === undefined) inner.findMissing(input, held, at);
      else for (const key of Object.keys(held)) inner.findMissing(input, held[key] as Plain, `${at}[${key}]`);
    }
  }
}

/** Reads one occurrence; adds its path to an error. */
function readAt(field: FieldReader, input: ProtoInput, into: Plain): void {
  try {
    field.read(input, into);
  } catch (error) {
    if (error instanceof WireFault) error.path = field.place(into) + error.path;
    throw error;
  }
}

const single = (name: string, read: FieldReader['read']): FieldReader => ({ read, place: () => `.${name}` });
const item = (name: string, read: FieldReader['read']): FieldReader => ({
  read,
  place: (into) => `.${name}[${(into[name] as unknown[]).length}]`,
});

/** Readers of a field, by wire type. @param members of its oneof */
function fieldReaders(
  field: ProtoField,
  members: readonly string[] | undefined,
): ReadonlyArray<readonly [number, FieldReader]> {
  const { name, message } = field;
  if (field.mapKey !== undefined) return [[WIRE.LENGTH, single(name, entryReader(field, field.mapKey))]];
  if (message !== undefined) {
    const read = messageReader(field, message);
    if (field.repeated) {
      const append: FieldReader['read'] = (input, into) => {
        const value = readerOf(message).absent(input);
        read(input, value);
        (into[name] as unknown[]).push(value);
      };
      return [[field.delimited ? WIRE.GROUP : WIRE.LENGTH, item(name, append)]];
    }
    const merge: FieldReader['read'] = (input, into) => {
      let value = into[name] as Plain | null;
      if (value === null) {
        value = readerOf(message).absent(input);
        put(input, into, name, value, members);
      }
      read(input, value);
    };
    return [[field.delimited ? WIRE.GROUP : WIRE.LENGTH, single(name, merge)]];
  }
  const simple = simpleOf(field);
  if (!field.repeated) {
    const replace: FieldReader['read'] = (input, into) => {
      const value = simple.read(input);
      if (value !== undefined) put(input, into, name, value, members);
    };
    return [[simple.wire, single(name, replace)]];
  }
  const append: FieldReader['read'] = (input, into) => {
    const value = simple.read(input);
    if (value !== undefined) (into[name] as unknown[]).push(value);
  };
  if (simple.wire === WIRE.LENGTH) return [[WIRE.LENGTH, item(name, append)]];
  const appendRun: FieldReader['read'] = (input, into) => {
    const outer = input.enter();
    while (input.at < input.limit) append(input, into);
    input.leave(outer);
  };
  return [
    [simple.wire, item(name, append)],
    [WIRE.LENGTH, item(name, appendRun)],
  ];
}

/** Sets a field, and clears the other members of its oneof. */
function put(
  input: ProtoInput,
  into: Plain,
  name: string,
  value: unknown,
  members: readonly string[] | undefined,
): void {
  if (members !== undefined && into[name] === null) {
    input.spend(members.length);
    for (const member of members) into[member] = null;
  }
  into[name] = value;
}

/** Reads into a message that may hold an earlier part. */
function messageReader(field: ProtoField, message: ProtoMessage): FieldReader['read'] {
  if (!field.delimited) return (input, into) => readerOf(message).readNested(input, into);
  return (input, into) => {
    input.descend();
    readerOf(message).readGroup(input, into, field.number);
    input.ascend();
  };
}

/** Reads a map entry: a message of a key = 1 and a value = 2. Either may be absent, and the last
 *  entry of a key wins. */
function entryReader(field: ProtoField, mapKey: string): FieldReader['read'] {
  const { name, message } = field;
  const key = scalarOf(mapKey);
  const keyTag = (1 << 3) | key.wire;
  const simple = message === undefined ? simpleOf(field) : undefined;
  const valueTag = (2 << 3) | (simple?.wire ?? WIRE.LENGTH);
  return (input, into) => {
    input.descend();
    const outer = input.enter();
    let keyRead = key.zero;
    // Undefined for a number that a closed enum lacks: then the entry is dropped as unknown.
    let value = simple?.zero;
    const inner = message === undefined ? undefined : readerOf(message);
    if (inner !== undefined) value = inner.absent(input);
    while (input.at < input.limit) {
      const from = input.at;
      const tag = input.tag();
      if (tag === keyTag) keyRead = key.read(input);
      else if (tag !== valueTag) input.skip(tag, from);
      else if (simple !== undefined) value = simple.read(input);
      else inner?.readNested(input, value as Plain);
    }
    if (inner !== undefined) inner.recordIncomplete(input, value as Plain);
    input.leave(outer);
    input.ascend();
    if (value !== undefined) (into[name] as Plain)[String(keyRead)] = value;
  };
}

function simpleOf({ type, enumeration }: ProtoField): Simple {
  return enumeration === undefined ? scalarOf(type) : enumOf(enumeration);
}

function enumOf(enumeration: ProtoEnum): Simple {
  const nameOf = enumNames(enumeration);
  return { wire: WIRE.VARINT, zero: zeroName(enumeration), read: (input) => nameOf(input.int32()) };
}
