/** Protobuf by protobufjs: its generated codecs move the bytes, and a compiled adapter a message type turns their
 *  objects into plain ones: field names as in the schema, 64-bit integers as bigint, enums by name, absent as null. */
import protobuf from 'protobufjs';
import { registryError } from '../errors.ts';
import type { ProtoEnum, ProtoField, ProtoMessage } from '../schemas/proto-tree.ts';
import type { ProtoSchema, Schema } from '../schemas/schema.ts';
import { type Decode, demandCompatible, malformed, type WriterCodec } from './decode.ts';
import { protobufRoot } from './proto-root.ts';

type Plain = Record<string, unknown>;
type Convert = (value: unknown) => unknown;
interface Words {
  readonly low: number;
  readonly high: number;
}

const INTEGER_RANGE: Readonly<Record<string, readonly [bigint, bigint]>> = {
  int32: [-(2n ** 31n), 2n ** 31n - 1n],
  sint32: [-(2n ** 31n), 2n ** 31n - 1n],
  sfixed32: [-(2n ** 31n), 2n ** 31n - 1n],
  uint32: [0n, 2n ** 32n - 1n],
  fixed32: [0n, 2n ** 32n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
  sint64: [-(2n ** 63n), 2n ** 63n - 1n],
  sfixed64: [-(2n ** 63n), 2n ** 63n - 1n],
  uint64: [0n, 2n ** 64n - 1n],
  fixed64: [0n, 2n ** 64n - 1n],
};
const isWide = (type: string): boolean => type.endsWith('64');
const isUnsigned = (type: string): boolean => type === 'uint64' || type === 'fixed64';
const WORD = 4_294_967_296;

function refuse(where: string, value: unknown, type: string): never {
  const shown =
    typeof value === 'bigint' ? `${value}n` : (JSON.stringify(value)?.slice(0, 64) ?? String(value));
  throw registryError('value_refused', `${where} cannot hold ${shown}: it is ${type}`);
}

function toScalar(type: string, where: string): Convert {
  const range = INTEGER_RANGE[type];
  if (range !== undefined && isWide(type)) {
    const unsigned = isUnsigned(type);
    return (value) => {
      const wide =
        typeof value === 'bigint'
          ? value
          : Number.isSafeInteger(value)
            ? BigInt(value as number)
            : refuse(where, value, type);
      if (wide < range[0] || wide > range[1]) refuse(where, value, type);
      return { low: Number(BigInt.asIntN(32, wide)), high: Number(BigInt.asIntN(32, wide >> 32n)), unsigned };
    };
  }
  if (range !== undefined) {
    const least = Number(range[0]);
    const most = Number(range[1]);
    return (value) =>
      Number.isInteger(value) && (value as number) >= least && (value as number) <= most
        ? value
        : refuse(where, value, type);
  }
  if (type === 'bytes') return (value) => (value instanceof Uint8Array ? value : refuse(where, value, type));
  if (type === 'string') return (value) => (typeof value === 'string' ? value : refuse(where, value, type));
  if (type === 'bool') return (value) => (typeof value === 'boolean' ? value : refuse(where, value, type));
  return (value) => (typeof value === 'number' ? value : refuse(where, value, type));
}

function fromWide(type: string): Convert {
  const unsigned = isUnsigned(type);
  return (value) => {
    const { low, high } = value as Words;
    const upper = unsigned ? high >>> 0 : high | 0;
    // 53 bits are exact in a double; the rest takes the slow way.
    if (upper >= -0x10_0000 && upper < 0x10_0000) return BigInt(upper * WORD + (low >>> 0));
    return (BigInt(upper) << 32n) | BigInt(low >>> 0);
  };
}

const SCALAR_DEFAULT = (type: string): unknown => {
  if (type === 'string') return '';
  if (type === 'bool') return false;
  if (type === 'bytes') return Buffer.alloc(0);
  return isWide(type) ? 0n : 0;
};

interface Adapter {
  toWire: Convert;
  fromWire: Convert;
}

class Adapters {
  private readonly done = new Map<ProtoMessage, Adapter>();

  of(message: ProtoMessage): Adapter {
    const known = this.done.get(message);
    if (known !== undefined) return known;
    const adapter: Adapter = { toWire: (value) => value, fromWire: (value) => value };
    this.done.set(message, adapter);
    const fields = message.fields.map((field) => this.field(message, field));
    adapter.toWire = (value) => {
      if (typeof value !== 'object' || value === null) refuse(message.name, value, 'a message');
      const out: Plain = {};
      for (let i = 0; i < fields.length; i++) {
        const field = fields[i] as FieldAdapter;
        const given = (value as Plain)[field.name];
        if (given !== undefined && given !== null) out[field.name] = field.toWire(given);
        else if (field.required) refuse(`${message.name}.${field.name}`, given, 'required');
      }
      return out;
    };
    adapter.fromWire = (value) => {
      const source = value as Plain;
      const out: Plain = {};
      for (let i = 0; i < fields.length; i++) {
        const field = fields[i] as FieldAdapter;
        out[field.name] = Object.hasOwn(source, field.name)
          ? field.fromWire(source[field.name])
          : field.absent();
      }
      return out;
    };
    return adapter;
  }

  private field(message: ProtoMessage, field: ProtoField): FieldAdapter {
    const where = `${message.name}.${field.name}`;
    const { to, from, fallback } = this.single(field, where);
    const shared = { name: field.name, required: field.required };
    if (field.mapKey !== undefined) {
      if (isWide(field.mapKey)) {
        throw registryError(
          'incompatible_schema',
          `${where} is a map with 64-bit keys, which the Protobuf codec does not take`,
        );
      }
      const each =
        (convert: Convert): Convert =>
        (value) => {
          const out: Plain = Object.create(null) as Plain;
          for (const [key, item] of Object.entries(value as Plain)) out[key] = convert(item);
          return out;
        };
      return { ...shared, toWire: each(to), fromWire: each(from), absent: () => ({}) };
    }
    if (field.repeated) {
      return {
        ...shared,
        toWire: (value) => (Array.isArray(value) ? value.map(to) : refuse(where, value, 'repeated')),
        fromWire: (value) => (value as unknown[]).map(from),
        absent: () => [],
      };
    }
    return {
      ...shared,
      toWire: to,
      fromWire: from,
      absent: field.presence || field.required ? () => null : () => fallback,
    };
  }

  private single(field: ProtoField, where: string): { to: Convert; from: Convert; fallback: unknown } {
    if (field.message !== undefined) {
      const adapter = this.of(field.message);
      return {
        to: (value) => adapter.toWire(value),
        from: (value) => adapter.fromWire(value),
        fallback: null,
      };
    }
    if (field.enumeration !== undefined) return enumAdapter(field.enumeration, where);
    const same: Convert = (value) => value;
    return {
      to: toScalar(field.type, where),
      from: isWide(field.type) ? fromWide(field.type) : same,
      fallback: SCALAR_DEFAULT(field.type),
    };
  }
}

interface FieldAdapter {
  readonly name: string;
  readonly required: boolean;
  readonly toWire: Convert;
  readonly fromWire: Convert;
  readonly absent: () => unknown;
}

/** By name where the number has one, else the bare number, as open enums demand. */
function enumAdapter(
  enumeration: ProtoEnum,
  where: string,
): { to: Convert; from: Convert; fallback: unknown } {
  const numbers = new Map([...enumeration.values].map(([number, name]) => [name, number]));
  const name: Convert = (number) => enumeration.values.get(number as number) ?? number;
  const first = [...enumeration.values.keys()][0] ?? 0;
  return {
    to: (value) =>
      (typeof value === 'string' ? numbers.get(value) : undefined) ??
      (Number.isInteger(value) ? value : refuse(where, value, `enum ${enumeration.name}`)),
    from: name,
    fallback: name(first),
  };
}

interface Codecs {
  readonly root: protobuf.Root;
  readonly adapters: Adapters;
}
const codecs = new WeakMap<ProtoSchema, Codecs>();

function codecOf(
  schema: ProtoSchema,
  message: ProtoMessage,
): { readonly type: protobuf.Type; readonly adapter: Adapter } {
  const held = codecs.get(schema) ?? { root: protobufRoot(schema.tree.link), adapters: new Adapters() };
  codecs.set(schema, held);
  return { type: held.root.lookupType(`.${message.name}`), adapter: held.adapters.of(message) };
}

/** @throws invalid_schema */
export function protoWriter(schema: ProtoSchema, name: string | undefined): WriterCodec {
  const message = name === undefined ? schema.tree.messages[0] : schema.tree.byName.get(name);
  if (message === undefined) {
    throw registryError('invalid_schema', `the schema has no message ${name}`, {
      next: `choose from ${[...schema.tree.byName.keys()].join(', ')}`,
    });
  }
  const { type, adapter } = codecOf(schema, message);
  const writer = protobuf.Writer.create();
  return {
    messageIndexes: Int32Array.from(message.path),
    encode: (value, into) => {
      const wire = adapter.toWire(value) as Plain;
      writer.reset();
      type.encode(wire, writer);
      if (into.used + writer.len > into.bytes.length) into.grow(writer.len);
      const bytes = writer.finish();
      into.bytes.set(bytes, into.used);
      into.push(into.used + bytes.length);
    },
  };
}

/** @throws incompatible_schema, bad_message_index */
export function protoReader(reader: ProtoSchema, writer: Schema, path: readonly number[]): Decode {
  demandCompatible(reader, writer);
  if (writer.format !== 'PROTOBUF') throw registryError('incompatible_schema', 'the record is not Protobuf');
  const key = path.join();
  const written = writer.tree.messages.find((message) => message.path.join() === key);
  if (written === undefined)
    throw registryError('bad_message_index', `the writer's schema has no message at [${path.join(', ')}]`);
  const message = reader.tree.byName.get(written.name);
  if (message === undefined)
    throw registryError('incompatible_schema', `the reader's schema has no message ${written.name}`);
  const { type, adapter } = codecOf(reader, message);
  let source: protobuf.Reader | undefined;
  let over: Buffer | undefined;
  return (bytes, start, end) => {
    if (source === undefined || over !== bytes) {
      source = protobuf.Reader.create(bytes);
      source.discardUnknown = true;
      over = bytes;
    }
    source.pos = start;
    source.len = end;
    let value: unknown;
    try {
      value = type.decode(source);
    } catch (cause) {
      throw malformed((cause as Error).message, cause);
    }
    if (source.pos !== end) throw malformed('the decoder stopped at another byte than the payload ends');
    return adapter.fromWire(value);
  };
}
