/** Reference codec for Protobuf: protobufjs writes and reads. It is slower than the compiled codec,
 *  and its checks are weaker; it is for comparison.
 *
 *  protobufjs wants 64-bit numbers as two words, enums as numbers, and the keys of a map in forms
 *  of its own; this module converts a program's values from and to these. */
import protobuf from 'protobufjs';
import type { Decode, Encode } from '../../decode.ts';
import { formatError } from '../../errors.ts';
import { isPlainObject, ownProperty } from '../../plain-object.ts';
import { scalarOf } from '../codec/scalar.ts';
import { printProto } from '../syntax/print.ts';
import type { ProtoField, ProtoFile, ProtoMessage } from '../tree.ts';

type Plain = Record<string, unknown>;

const roots = new WeakMap<ProtoFile, protobuf.Root>();

/** @throws invalid_schema for a schema that protobufjs cannot use */
function typeOf(file: ProtoFile, message: ProtoMessage): protobuf.Type {
  try {
    let root = roots.get(file);
    if (root === undefined) {
      root = new protobuf.Root();
      for (const { node } of [...file.link.files.values(), file.link.root])
        protobuf.parse(printProto(node), root, { keepCase: true });
      root.resolveAll();
      roots.set(file, root);
    }
    return root.lookupType(message.name);
  } catch (cause) {
    throw formatError('invalid_schema', `protobufjs cannot use this schema: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/** Makes the encoder of a message type. It throws value_refused with the detail `path`.
 *  @throws invalid_schema */
export function protoReferenceEncoder(file: ProtoFile, message: ProtoMessage): Encode {
  const type = typeOf(file, message);
  return (value, into) => {
    const bytes = type.encode(type.create(toTheirs(message, value, message.name))).finish();
    const { sink } = into;
    sink.open();
    sink.raw(bytes);
    sink.close();
  };
}

function refuse(path: string, value: unknown, type: string): Error {
  const shown = typeof value === 'object' ? 'an object' : String(value);
  return formatError('value_refused', `${path} cannot hold ${shown}: it is ${type}`, { details: { path } });
}

/** Name of a field in protobufjs: an extension has a leading dot instead of brackets. */
const theirName = (name: string): string => name.replace(/^\[(.*)\]$/, '.$1');

function toTheirs(message: ProtoMessage, value: unknown, path: string): Plain {
  if (!isPlainObject(value)) throw refuse(path, value, 'a message');
  const out: Plain = {};
  const chosen = new Set<string>();
  for (const field of message.fields) {
    const given = ownProperty(value, field.name);
    const where = `${path}.${field.name}`;
    if (given === undefined || given === null) {
      if (field.required) throw refuse(where, given, 'required');
      continue;
    }
    if (field.oneof !== undefined && chosen.has(field.oneof)) throw refuse(where, given, 'in one oneof');
    if (field.oneof !== undefined) chosen.add(field.oneof);
    const theirs = fieldToTheirs(field, given, where);
    if (theirs !== undefined) out[theirName(field.name)] = theirs;
  }
  return out;
}

/** Undefined for a value that a field without presence omits. */
function fieldToTheirs(field: ProtoField, given: unknown, where: string): unknown {
  if (field.mapKey !== undefined) {
    if (!isPlainObject(given)) throw refuse(where, given, 'a map');
    const isBool = field.mapKey === 'bool';
    return Object.fromEntries(
      // protobufjs takes the text of a key for true unless it is empty.
      Object.entries(given).map(([key, one]) => [
        isBool && key === 'false' ? '' : key,
        oneToTheirs(field, one, `${where}.${key}`),
      ]),
    );
  }
  if (field.repeated) {
    if (!Array.isArray(given)) throw refuse(where, given, 'repeated');
    return given.map((one, i) => oneToTheirs(field, one, `${where}[${i}]`));
  }
  const isZero = !field.presence && !field.required && isDefault(field, given);
  return isZero ? undefined : oneToTheirs(field, given, where);
}

function isDefault({ enumeration }: ProtoField, given: unknown): boolean {
  if (enumeration !== undefined) return given === 0 || enumeration.numbers.get(String(given)) === 0;
  if (given instanceof Uint8Array) return given.length === 0;
  return given === '' || given === false || given === 0n || Object.is(given, 0);
}

function oneToTheirs({ message, enumeration, type }: ProtoField, given: unknown, where: string): unknown {
  if (message !== undefined) return toTheirs(message, given, where);
  if (enumeration !== undefined) {
    const named = typeof given === 'string' ? enumeration.numbers.get(given) : undefined;
    const number = named ?? given;
    if (!scalarOf('int32').fits(number)) throw refuse(where, given, `enum ${enumeration.name}`);
    return number;
  }
  const isWide = type.endsWith('64');
  const exact = isWide && Number.isSafeInteger(given) ? BigInt(given as number) : given;
  if (!scalarOf(type).fits(exact)) throw refuse(where, given, type);
  if (!isWide) return exact;
  const low = Number(BigInt.asIntN(32, exact as bigint));
  const high = Number(BigInt.asIntN(32, (exact as bigint) >> 32n));
  return { low, high, unsigned: isUnsigned(type) };
}

const isUnsigned = (type: string): boolean => type === 'uint64' || type === 'fixed64';

/** Makes the decoder of a message type. It throws malformed_payload.
 *  @throws invalid_schema */
export function protoReferenceDecoder(file: ProtoFile, message: ProtoMessage): Decode {
  const type = typeOf(file, message);
  return (bytes, start, end) => {
    let read: protobuf.Message;
    try {
      read = type.decode(bytes.subarray(start, end));
    } catch (cause) {
      throw formatError('malformed_payload', `protobufjs cannot read it: ${(cause as Error).message}`, {
        cause,
      });
    }
    return toPlain(message, read as unknown as Plain);
  };
}

function toPlain(message: ProtoMessage, read: Plain): Plain {
  const out: Plain = {};
  for (const field of message.fields) {
    const name = theirName(field.name);
    out[field.name] = fieldToPlain(field, Object.hasOwn(read, name) ? read[name] : undefined);
  }
  return out;
}

function fieldToPlain(field: ProtoField, given: unknown): unknown {
  const { mapKey } = field;
  if (mapKey !== undefined) {
    const map = Object.create(null) as Plain;
    for (const [key, one] of Object.entries((given ?? {}) as Plain))
      map[keyToPlain(mapKey, key)] = oneToPlain(field, one);
    return map;
  }
  if (field.repeated) return ((given ?? []) as readonly unknown[]).map((one) => oneToPlain(field, one));
  if (given !== undefined) return oneToPlain(field, given);
  if (field.presence || field.required) return null;
  const { enumeration } = field;
  return enumeration === undefined ? scalarOf(field.type).zero : [...enumeration.values.values()][0];
}

/** Key of a map: protobufjs hashes 64-bit keys to eight characters. */
const keyToPlain = (type: string, key: string): string =>
  type.endsWith('64') ? String(wideOf(type, protobuf.util.longFromHash(key, isUnsigned(type)))) : key;

function oneToPlain({ message, enumeration, type }: ProtoField, given: unknown): unknown {
  if (message !== undefined) return toPlain(message, given as Plain);
  if (enumeration !== undefined) return enumeration.values.get(given as number) ?? given;
  if (type === 'bytes') return Buffer.from(given as Uint8Array);
  return type.endsWith('64') ? wideOf(type, given) : given;
}

function wideOf(type: string, given: unknown): bigint {
  const { low, high } = given as { readonly low: number; readonly high: number };
  const bits = (BigInt(high) << 32n) | BigInt(low >>> 0);
  return isUnsigned(type) ? BigInt.asUintN(64, bits) : BigInt.asIntN(64, bits);
}
