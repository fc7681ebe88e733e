/** Writes a program's plain objects as Protobuf payloads, into the buffer of the payloads. Fields
 *  are written in the order of their numbers, repeated fields packed where the schema says so. Null
 *  and undefined are absent. Source: protobuf.dev, "Encoding", "Field Presence".
 *
 *  A value that does not fit is refused: a number out of range, a lone surrogate, a missing
 *  required field, two members of one oneof, a number that a closed enum lacks. A length is written
 *  when its message is complete: one byte is reserved, and a longer message is moved. */

import { type ObjectWriter, objectPut, type PropertyPut, type Put } from '../../binary/object-writer.ts';
import type { Encode } from '../../decode.ts';
import { isPlainObject, ownProperty } from '../../plain-object.ts';
import { ValueRefusal } from '../../value-refusal.ts';
import type { ProtoField, ProtoMessage } from '../tree.ts';
import { PROTO_NESTING_MAX, SET_ITEM, WIRE } from './input.ts';
import { scalarOf } from './scalar.ts';
import { enumPut, mapKeyOf, type ScalarPlace, scalarPut } from './scalar-put.ts';

/** Makes the encoder of a message type. It throws value_refused with the detail `path`. */
export function protoEncoder(message: ProtoMessage): Encode {
  const slot = slotOf(message);
  return (value, into) => {
    const { sink } = into;
    sink.open();
    try {
      slot.put(sink, value);
    } catch (thrown) {
      sink.abandon();
      throw ValueRefusal.toError(message.name, thrown);
    }
    sink.close();
  };
}

/** Writer of a message type, made when the first such message is written: a chain of types may be
 *  longer than the stack is deep. */
interface MessageSlot {
  put: Put;
}

const slots = new WeakMap<ProtoMessage, MessageSlot>();

function slotOf(message: ProtoMessage): MessageSlot {
  const held = slots.get(message);
  if (held !== undefined) return held;
  const slot: MessageSlot = {
    put: (sink, value) => {
      slot.put = messagePut(message, slot);
      slot.put(sink, value);
    },
  };
  slots.set(message, slot);
  return slot;
}

function messagePut(message: ProtoMessage, slot: MessageSlot): Put {
  const { fields } = message;
  const puts = fields.map((field, at) => {
    const put = message.messageSet === true ? itemPut(field) : fieldPut(field);
    if (field.required) return requiredPut(put);
    if (field.oneof === undefined) return optionalPut(put);
    const earlier = fields.slice(0, at).filter(({ oneof }) => oneof === field.oneof);
    return earlier.length === 0
      ? optionalPut(put)
      : chosenPut(
          put,
          earlier.map(({ name }) => name),
        );
  });
  const writer: ObjectWriter = {
    names: fields.map(({ name }) => name),
    puts,
    type: 'a message',
    begin: (sink) => {
      if (++sink.depth > PROTO_NESTING_MAX + 1) throw tooDeep();
    },
    inside: ValueRefusal.inField,
  };
  return objectPut(writer, (put) => {
    slot.put = put;
  });
}

const optionalPut =
  (put: Put): PropertyPut =>
  (sink, given) => {
    if (given !== undefined && given !== null) put(sink, given);
  };

const requiredPut =
  (put: Put): PropertyPut =>
  (sink, given) => {
    if (given === undefined || given === null) throw ValueRefusal.of(undefined, 'required');
    put(sink, given);
  };

/** Writes a member of a oneof. @param earlier members of it that are written before */
const chosenPut =
  (put: Put, earlier: readonly string[]): PropertyPut =>
  (sink, given, object) => {
    if (given === undefined || given === null) return;
    const other = earlier.find((name) => (ownProperty(object, name) ?? null) !== null);
    if (other !== undefined) throw ValueRefusal.of(given, `in one oneof with ${other}, which is set`);
    put(sink, given);
  };

const tooDeep = (): ValueRefusal => new ValueRefusal(`is nested deeper than ${PROTO_NESTING_MAX} levels`);

function fieldPut(field: ProtoField): Put {
  const { number, message, mapKey } = field;
  const tagOf = (wire: number): number => ((number << 3) | wire) >>> 0;
  if (message?.unknown === true)
    return (_sink, given) => {
      throw ValueRefusal.of(given, `of the type ${message.name}, which is not known`);
    };
  if (mapKey !== undefined) return mapPut(field, mapKey, tagOf(WIRE.LENGTH));
  if (message !== undefined) {
    const put = field.delimited
      ? groupPut(message, tagOf(WIRE.GROUP), tagOf(WIRE.END))
      : nestedPut(message, tagOf(WIRE.LENGTH));
    return field.repeated ? listPut(put) : put;
  }
  if (field.repeated && field.packed) return packedPut(simplePut(field, NO_TAG), tagOf(WIRE.LENGTH));
  const hidesZero = !field.repeated && !field.presence && !field.required;
  const put = simplePut(field, { tag: tagOf(wireOf(field)), hidesZero });
  return field.repeated ? listPut(put) : put;
}

const NO_TAG: ScalarPlace = { tag: 0, hidesZero: false };

const simplePut = ({ type, enumeration }: ProtoField, place: ScalarPlace): Put =>
  enumeration === undefined ? scalarPut(type, place) : enumPut(enumeration, place);

const wireOf = ({ type, enumeration }: ProtoField): number =>
  enumeration === undefined ? scalarOf(type).wire : WIRE.VARINT;

/** Writes each item of a list with its own tag. */
function listPut(put: Put): Put {
  return (sink, given) => {
    if (!Array.isArray(given)) throw ValueRefusal.of(given, 'repeated');
    let i = 0;
    try {
      for (; i < given.length; i++) put(sink, given[i]);
    } catch (thrown) {
      throw ValueRefusal.inItem(i, thrown);
    }
  };
}

/** Writes the items of a list behind one tag and one length. */
function packedPut(put: Put, tag: number): Put {
  const items = listPut(put);
  return (sink, given) => {
    if (Array.isArray(given) && given.length === 0) return;
    sink.varint(tag);
    const start = sink.begin();
    items(sink, given);
    sink.finish(start);
  };
}

function nestedPut(message: ProtoMessage, tag: number): Put {
  const slot = slotOf(message);
  return (sink, given) => {
    sink.varint(tag);
    const start = sink.begin();
    slot.put(sink, given);
    sink.finish(start);
  };
}

function groupPut(message: ProtoMessage, tag: number, endTag: number): Put {
  const slot = slotOf(message);
  return (sink, given) => {
    sink.varint(tag);
    slot.put(sink, given);
    sink.varint(endTag);
  };
}

/** Writes an item of a message set. */
function itemPut({ number, message }: ProtoField): Put {
  if (message === undefined || message.unknown)
    return (_sink, given) => {
      throw ValueRefusal.of(given, 'in a message set, which holds messages only');
    };
  const put = nestedPut(message, SET_ITEM.MESSAGE);
  return (sink, given) => {
    sink.varint(SET_ITEM.BEGIN);
    sink.varint(SET_ITEM.NUMBER);
    sink.varint(number);
    sink.depth++;
    put(sink, given);
    sink.depth--;
    sink.varint(SET_ITEM.END);
  };
}

/** Writes map entries: each is a message of a key = 1 and a value = 2, both written. */
function mapPut(field: ProtoField, mapKey: string, tag: number): Put {
  const putKey = scalarPut(mapKey, { tag: (1 << 3) | scalarOf(mapKey).wire, hidesZero: false });
  const { message } = field;
  const putValue =
    message === undefined
      ? simplePut(field, { tag: (2 << 3) | wireOf(field), hidesZero: false })
      : nestedPut(message, (2 << 3) | WIRE.LENGTH);
  const refuseKey = (key: string): ValueRefusal => ValueRefusal.of(key, `a map with keys of type ${mapKey}`);
  return (sink, given) => {
    if (!isPlainObject(given)) throw ValueRefusal.of(given, 'a map, given as an object');
    for (const key of Object.keys(given)) {
      const keyValue = mapKeyOf(mapKey, key);
      if (keyValue === undefined) throw refuseKey(key);
      if (sink.depth > PROTO_NESTING_MAX) throw tooDeep();
      sink.varint(tag);
      const start = sink.begin();
      try {
        putKey(sink, keyValue);
      } catch (thrown) {
        throw thrown instanceof ValueRefusal ? refuseKey(key) : thrown;
      }
      try {
        sink.depth++;
        putValue(sink, given[key]);
        sink.depth--;
      } catch (thrown) {
        throw ValueRefusal.inProperty(key, thrown);
      }
      sink.finish(start);
    }
  };
}
