/** Writes a datum, which determines every byte, as a Protobuf payload. Fields are written in the
 *  order of their numbers, repeated fields packed where the schema says so. Source: protobuf.dev,
 *  "Encoding".
 *
 *  A datum that does not fit is refused: a number out of range, a lone surrogate, a missing
 *  required field, two members of one oneof, a number that a closed enum lacks, a field that the
 *  type lacks. */

import type { ProtoDatum } from '../../datum.ts';
import { formatError } from '../../errors.ts';
import { Payloads } from '../../payloads.ts';
import { shownOf } from '../../shown.ts';
import type { Sink } from '../../sink.ts';
import { ValueRefusal } from '../../value-refusal.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import { PROTO_NESTING_MAX, SET_ITEM, WIRE } from './input.ts';
import { ENUM_NUMBER, scalarOf } from './scalar.ts';
import { enumPut, scalarPut } from './scalar-put.ts';

/** Writes one value, without its tag. */
type Put = (output: Sink, given: unknown, depth: number) => void;

interface FieldWriter {
  readonly field: ProtoField;
  readonly where: string;
  readonly oneof: number;
  /** Writes the whole field, with its tags. */
  readonly write: Put;
}

function refuse(where: string, value: unknown, type: string): never {
  throw formatError('value_refused', `${where} cannot hold ${shownOf(value)}: it is ${type}`, {
    details: { path: where },
  });
}

function demandDepth(name: string, depth: number): void {
  if (depth > PROTO_NESTING_MAX)
    throw formatError('value_refused', `${name} is nested deeper than ${PROTO_NESTING_MAX} levels`);
}

/** Initial bytes of the buffer for one datum. */
const BUFFER_BYTES = 1024;

/** Encodes a datum. @throws value_refused */
export function encodeProto(message: ProtoMessage, datum: ProtoDatum): Buffer {
  const payloads = new Payloads(1, BUFFER_BYTES);
  const { sink } = payloads;
  sink.open();
  try {
    writerOf(message).write(sink, datum, 0);
  } catch (thrown) {
    throw thrown instanceof ValueRefusal ? ValueRefusal.toError(message.name, thrown) : thrown;
  }
  sink.close();
  return Buffer.from(payloads.bytes.subarray(0, payloads.used));
}

const writers = new WeakMap<ProtoMessage, MessageWriter>();

function writerOf(message: ProtoMessage): MessageWriter {
  const held = writers.get(message) ?? new MessageWriter(message);
  writers.set(message, held);
  return held;
}

class MessageWriter {
  private readonly message: ProtoMessage;
  private readonly fields: readonly FieldWriter[];

  constructor(message: ProtoMessage) {
    this.message = message;
    const names = new Set(message.fields.map(({ oneof }) => oneof));
    const oneofs = new Map([...names].map((name, index) => [name, index]));
    this.fields = message.fields.map((field) => {
      const where = `${message.name}.${field.name}`;
      const oneof = field.oneof === undefined ? -1 : (oneofs.get(field.oneof) ?? -1);
      const write = message.messageSet === true ? itemWriter(field, where) : fieldWriter(field, where);
      return { field, where, oneof, write };
    });
  }

  write(output: Sink, value: unknown, depth: number): void {
    const { fields, message } = this;
    if (!(value instanceof Map)) refuse(message.name, value, 'a message');
    demandDepth(message.name, depth);
    let written = 0;
    let chosen: FieldWriter[] | undefined;
    for (let i = 0; i < fields.length; i++) {
      const one = fields[i] as FieldWriter;
      const given: unknown = value.get(one.field.number);
      if (given === undefined) {
        if (one.field.required) refuse(one.where, given, 'required');
        continue;
      }
      written++;
      if (one.oneof >= 0) {
        chosen ??= [];
        const other = chosen[one.oneof];
        if (other !== undefined)
          refuse(one.where, given, `in one oneof with ${other.field.name}, which is set`);
        chosen[one.oneof] = one;
      }
      one.write(output, given, depth);
    }
    if (written !== value.size)
      throw formatError('value_refused', `the value of ${message.name} has fields that the message has not`);
  }
}

function fieldWriter(field: ProtoField, where: string): Put {
  const { number, message, mapKey } = field;
  const tagOf = (wire: number): number => ((number << 3) | wire) >>> 0;
  if (message?.unknown === true)
    return (_output, given) => refuse(where, given, `of the type ${message.name}, which is not known`);
  if (mapKey !== undefined) return mapWriter(field, mapKey, where, tagOf(WIRE.LENGTH));
  if (message !== undefined) {
    const tag = tagOf(field.delimited ? WIRE.GROUP : WIRE.LENGTH);
    const put = field.delimited ? groupPut(message, tagOf(WIRE.END)) : messagePut(message);
    return tagged(field, where, tag, put);
  }
  const { wire, put } = simpleOf(field, where);
  if (field.repeated && field.packed) {
    const tag = tagOf(WIRE.LENGTH);
    return (output, given, depth) => {
      const items = listOf(given, where);
      if (items.length === 0) return;
      output.varint(tag);
      const start = output.begin();
      for (let i = 0; i < items.length; i++) put(output, items[i], depth);
      output.finish(start);
    };
  }
  return tagged(field, where, tagOf(wire), put);
}

function listOf(given: unknown, where: string): readonly unknown[] {
  return Array.isArray(given) ? given : refuse(where, given, 'repeated');
}

/** Writes one value, or each of a list, behind a tag. */
function tagged({ repeated }: ProtoField, where: string, tag: number, put: Put): Put {
  const one: Put = (output, given, depth) => {
    output.varint(tag);
    put(output, given, depth);
  };
  if (!repeated) return one;
  return (output, given, depth) => {
    const items = listOf(given, where);
    for (let i = 0; i < items.length; i++) one(output, items[i], depth);
  };
}

function messagePut(message: ProtoMessage): Put {
  return (output, given, depth) => {
    const start = output.begin();
    writerOf(message).write(output, given, depth + 1);
    output.finish(start);
  };
}

function groupPut(message: ProtoMessage, endTag: number): Put {
  return (output, given, depth) => {
    writerOf(message).write(output, given, depth + 1);
    output.varint(endTag);
  };
}

/** Writes an item of a message set. */
function itemWriter({ number, message }: ProtoField, where: string): Put {
  if (message === undefined || message.unknown)
    return (_output, given) => refuse(where, given, 'in a message set, which holds messages only');
  const put = messagePut(message);
  return (output, given, depth) => {
    output.varint(SET_ITEM.BEGIN);
    output.varint(SET_ITEM.NUMBER);
    output.varint(number);
    output.varint(SET_ITEM.MESSAGE);
    put(output, given, depth + 1);
    output.varint(SET_ITEM.END);
  };
}

/** Writes map entries: each is a message of a key = 1 and a value = 2, both written. */
function mapWriter(field: ProtoField, mapKey: string, where: string, tag: number): Put {
  const key = scalarOf(mapKey);
  const putKey = scalarPut(mapKey, { tag: (1 << 3) | key.wire, hidesZero: false });
  const { message } = field;
  const simple = message === undefined ? simpleOf(field, where) : undefined;
  const valueTag = (2 << 3) | (simple?.wire ?? WIRE.LENGTH);
  const put = simple?.put ?? messagePut(message as ProtoMessage);
  return (output, given, depth) => {
    for (const [keyGiven, value] of pairsOf(given, where)) {
      demandDepth(where, depth + 1);
      if (!key.fits(keyGiven)) refuse(where, keyGiven, `a map with keys of type ${mapKey}`);
      output.varint(tag);
      const start = output.begin();
      putKey(output, keyGiven);
      output.varint(valueTag);
      put(output, value, depth + 1);
      output.finish(start);
    }
  };
}

function pairsOf(given: unknown, where: string): ReadonlyArray<readonly [key: unknown, value: unknown]> {
  const isMap = Array.isArray(given) && given.every((pair) => Array.isArray(pair) && pair.length === 2);
  return isMap
    ? (given as Array<[unknown, unknown]>)
    : refuse(where, given, 'a map, given as a list of pairs');
}

/** Encoding of a value that is not a message. */
function simpleOf(
  { type, enumeration }: ProtoField,
  where: string,
): { readonly wire: number; readonly put: Put } {
  const place = { tag: 0, hidesZero: false };
  if (enumeration === undefined) {
    const { wire, fits } = scalarOf(type);
    const write = scalarPut(type, place);
    const put: Put = (output, given) => (fits(given) ? write(output, given) : refuse(where, given, type));
    return { wire, put };
  }
  const { values, closed, name } = enumeration;
  const write = enumPut(enumeration, place);
  const put: Put = (output, given) => {
    const fits = ENUM_NUMBER.fits(given) && (!closed || values.has(given as number));
    if (fits) write(output, given);
    else refuse(where, given, `enum ${name}`);
  };
  return { wire: ENUM_NUMBER.wire, put };
}
