/** Encodes values of a message type. Fields are written in the order of their numbers, repeated
 *  fields packed where the schema says so. Source: protobuf.dev, "Encoding", "Field Presence".
 *
 *  A value that does not fit is refused: a number out of range, a lone surrogate, a missing
 *  required field, two members of one oneof, a number that a closed enum lacks, a field that the
 *  type lacks. */

import type { ProtoDatum } from '../../datum.ts';
import { formatError } from '../../errors.ts';
import { shownOf } from '../../shown.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import { DATUM_FORM, PLAIN_FORM, type ProtoForm } from './form.ts';
import { PROTO_NESTING_MAX, SET_ITEM, WIRE } from './input.ts';
import { ProtoOutput } from './output.ts';
import { ENUM_NUMBER, scalarOf } from './scalar.ts';

/** Writes one value, without its tag. */
type Put = (output: ProtoOutput, given: unknown, depth: number) => void;

interface FieldWriter {
  readonly field: ProtoField;
  readonly where: string;
  readonly oneof: number;
  /** Writes the whole field, with its tags. */
  readonly write: Put;
}

/** Encoding of a value that is not a message. */
interface Simple {
  readonly wire: number;
  /** Converts a value to its exact form. @throws value_refused */
  readonly convert: (given: unknown) => unknown;
  readonly isZero: (value: unknown) => boolean;
  readonly write: (output: ProtoOutput, value: never) => void;
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

/** Encodes a datum. @throws value_refused */
export function encodeProto(message: ProtoMessage, datum: ProtoDatum): Buffer {
  const output = new ProtoOutput();
  writerOf(message, DATUM_FORM).write(output, datum, 0);
  return Buffer.from(output.written());
}

/** Makes the encoder of a program's plain objects. Its result is valid until the next call.
 *  @throws value_refused */
export function protoEncoder(message: ProtoMessage): (value: unknown) => Buffer {
  const writer = writerOf(message, PLAIN_FORM);
  const output = new ProtoOutput();
  return (value) => {
    output.used = 0;
    writer.write(output, value, 0);
    return output.written();
  };
}

const writers = new Map<ProtoForm, WeakMap<ProtoMessage, MessageWriter>>([
  [DATUM_FORM, new WeakMap()],
  [PLAIN_FORM, new WeakMap()],
]);

function writerOf(message: ProtoMessage, form: ProtoForm): MessageWriter {
  const known = writers.get(form);
  const held = known?.get(message) ?? new MessageWriter(message, form);
  known?.set(message, held);
  return held;
}

class MessageWriter {
  private readonly message: ProtoMessage;
  private readonly form: ProtoForm;
  private readonly fields: readonly FieldWriter[];

  constructor(message: ProtoMessage, form: ProtoForm) {
    this.message = message;
    this.form = form;
    const names = new Set(message.fields.map(({ oneof }) => oneof));
    const oneofs = new Map([...names].map((name, index) => [name, index]));
    this.fields = message.fields.map((field) => {
      const where = `${message.name}.${field.name}`;
      const oneof = field.oneof === undefined ? -1 : (oneofs.get(field.oneof) ?? -1);
      const write =
        message.messageSet === true ? itemWriter(field, where, form) : fieldWriter(field, where, form);
      return { field, where, oneof, write };
    });
  }

  write(output: ProtoOutput, value: unknown, depth: number): void {
    const { form, fields, message } = this;
    if (!form.isMessage(value)) refuse(message.name, value, 'a message');
    demandDepth(message.name, depth);
    let written = 0;
    let chosen: FieldWriter[] | undefined;
    for (let i = 0; i < fields.length; i++) {
      const one = fields[i] as FieldWriter;
      const given = form.fieldOf(value, one.field);
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
    if (written !== (form.countOf(value) ?? written))
      throw formatError('value_refused', `the value of ${message.name} has fields that the message has not`);
  }
}

function fieldWriter(field: ProtoField, where: string, form: ProtoForm): Put {
  const { number, message, mapKey } = field;
  const tagOf = (wire: number): number => ((number << 3) | wire) >>> 0;
  if (message?.unknown === true)
    return (_output, given) => refuse(where, given, `of the type ${message.name}, which is not known`);
  if (mapKey !== undefined) return mapWriter(field, mapKey, where, form, tagOf(WIRE.LENGTH));
  if (message !== undefined) {
    const tag = tagOf(field.delimited ? WIRE.GROUP : WIRE.LENGTH);
    const put = field.delimited ? groupPut(message, form, tagOf(WIRE.END)) : messagePut(message, form);
    return tagged(field, where, tag, put);
  }
  const simple = simpleOf(field, where, form);
  const put: Put = (output, given) => simple.write(output, simple.convert(given) as never);
  if (field.repeated && field.packed) {
    const tag = tagOf(WIRE.LENGTH);
    return (output, given, depth) => {
      const items = listOf(given, where);
      if (items.length === 0) return;
      output.uint32(tag);
      const start = output.begin();
      for (let i = 0; i < items.length; i++) put(output, items[i], depth);
      output.end(start);
    };
  }
  const tag = tagOf(simple.wire);
  if (field.repeated || field.presence || field.required || !form.hidesZeros)
    return tagged(field, where, tag, put);
  return (output, given) => {
    const value = simple.convert(given);
    if (simple.isZero(value)) return;
    output.uint32(tag);
    simple.write(output, value as never);
  };
}

function listOf(given: unknown, where: string): readonly unknown[] {
  return Array.isArray(given) ? given : refuse(where, given, 'repeated');
}

/** Writes one value, or each of a list, behind a tag. */
function tagged({ repeated }: ProtoField, where: string, tag: number, put: Put): Put {
  const one: Put = (output, given, depth) => {
    output.uint32(tag);
    put(output, given, depth);
  };
  if (!repeated) return one;
  return (output, given, depth) => {
    const items = listOf(given, where);
    for (let i = 0; i < items.length; i++) one(output, items[i], depth);
  };
}

function messagePut(message: ProtoMessage, form: ProtoForm): Put {
  return (output, given, depth) => {
    const start = output.begin();
    writerOf(message, form).write(output, given, depth + 1);
    output.end(start);
  };
}

function groupPut(message: ProtoMessage, form: ProtoForm, endTag: number): Put {
  return (output, given, depth) => {
    writerOf(message, form).write(output, given, depth + 1);
    output.uint32(endTag);
  };
}

/** Writes an item of a message set. */
function itemWriter({ number, message }: ProtoField, where: string, form: ProtoForm): Put {
  if (message === undefined || message.unknown)
    return (_output, given) => refuse(where, given, 'in a message set, which holds messages only');
  const put = messagePut(message, form);
  return (output, given, depth) => {
    output.uint32(SET_ITEM.BEGIN);
    output.uint32(SET_ITEM.NUMBER);
    output.uint32(number);
    output.uint32(SET_ITEM.MESSAGE);
    put(output, given, depth + 1);
    output.uint32(SET_ITEM.END);
  };
}

/** Writes map entries: each is a message of a key = 1 and a value = 2, both written. */
function mapWriter(field: ProtoField, mapKey: string, where: string, form: ProtoForm, tag: number): Put {
  const key = scalarOf(mapKey);
  const keyTag = (1 << 3) | key.wire;
  const { message } = field;
  const simple = message === undefined ? simpleOf(field, where, form) : undefined;
  const valueTag = (2 << 3) | (simple?.wire ?? WIRE.LENGTH);
  const put: Put =
    message === undefined
      ? (output, given) => simple?.write(output, simple.convert(given) as never)
      : messagePut(message, form);
  return (output, given, depth) => {
    const entries = form.entriesOf(given) ?? refuse(where, given, 'a map, given as an object');
    for (const [givenKey, value] of entries) {
      demandDepth(where, depth + 1);
      const keyValue = form.keyOf(mapKey, givenKey);
      if (!key.fits(keyValue)) refuse(where, givenKey, `a map with keys of type ${mapKey}`);
      output.uint32(tag);
      const start = output.begin();
      output.uint32(keyTag);
      key.write(output, keyValue as never);
      output.uint32(valueTag);
      put(output, value, depth + 1);
      output.end(start);
    }
  };
}

function simpleOf({ type, enumeration }: ProtoField, where: string, form: ProtoForm): Simple {
  if (enumeration === undefined) {
    const scalar = scalarOf(type);
    const exact = form.scalarOf(type);
    return {
      wire: scalar.wire,
      convert: (given) => {
        const value = exact(given);
        return scalar.fits(value) ? value : refuse(where, given, type);
      },
      isZero:
        type === 'bytes'
          ? (value) => (value as Uint8Array).length === 0
          : (value) => Object.is(value, scalar.zero),
      write: scalar.write,
    };
  }
  const { values, closed, name } = enumeration;
  const numbers = new Map([...values].map(([number, symbol]) => [symbol, number]));
  return {
    wire: ENUM_NUMBER.wire,
    convert: (given) => {
      const value = form.enumOf(numbers, given);
      const fits = ENUM_NUMBER.fits(value) && (!closed || values.has(value as number));
      return fits ? value : refuse(where, given, `enum ${name}`);
    },
    isZero: (value) => value === 0,
    write: ENUM_NUMBER.write,
  };
}
