/** Codec libraries as contestants: avsc for Avro; protobufjs and @bufbuild/protobuf for Protobuf.
 *  Each is used in its fastest form that gives the same values. */
import avsc from 'avsc';
import { ORDER_STATUSES } from '../../src/gen/order.ts';
import type { Contestants, Reading, SerdeCase, Wanted, Writing } from './case.ts';
import type { LoadPeer } from './peers.ts';

/** Bytes of the slab that avsc writes into, and the room that a record needs at most. */
const SLAB_BYTES = 1 << 16;
const RECORD_BYTES_MAX = 4096;

/** The long type that avsc documents for exact 64-bit integers. */
const bigLong = avsc.types.LongType.__with({
  fromBuffer: (bytes: Buffer) => bytes.readBigInt64LE(),
  toBuffer(value: bigint) {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigInt64LE(value);
    return bytes;
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value: unknown) => typeof value === 'bigint',
  compare: (a: bigint, b: bigint) => (a < b ? -1 : a > b ? 1 : 0),
});

/** Writes framed records one after the other into a slab. */
function slabWriter(type: avsc.Type, { prefix }: SerdeCase, values: readonly unknown[]): Writing {
  let slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
  let used = 0;
  return {
    kind: 'write',
    isSync: true,
    write(index) {
      if (used + RECORD_BYTES_MAX > SLAB_BYTES) {
        slab = Buffer.allocUnsafeSlow(SLAB_BYTES);
        used = 0;
      }
      const start = used;
      prefix.copy(slab, start);
      used = type.encode(values[index], slab, start + prefix.length);
      return slab.subarray(start, used);
    },
  };
}

/** Contestants of avsc. */
export function avscSides(one: SerdeCase): Contestants {
  const writer = avsc.Type.forSchema(JSON.parse(one.texts.writer));
  const reader = avsc.Type.forSchema(JSON.parse(one.texts.reader));
  const exact = avsc.Type.forSchema(JSON.parse(one.texts.writer), { registry: { long: bigLong } });
  const resolver = reader.createResolver(writer);
  const start = one.prefix.length;
  const reading = (wanted: Wanted, read: (frame: Buffer) => unknown): Reading => ({
    kind: 'read',
    wanted,
    isSync: true,
    read,
  });
  return {
    'avsc, decode': reading('writer', (frame) => writer.decode(frame, start).value),
    'avsc, decode with a resolver': reading('reader', (frame) => reader.decode(frame, start, resolver).value),
    'avsc, encode into a slab': slabWriter(writer, one, one.numbers),
    'avsc with bigint, encode into a slab': slabWriter(exact, one, one.orders),
  };
}

interface ProtobufjsType {
  decode(bytes: Uint8Array): unknown;
  encode(value: unknown): { finish(): Uint8Array };
  toObject(message: unknown, options: object): unknown;
}
export interface Protobufjs {
  util: { Long: unknown };
  configure(): void;
  parse(text: string, options: object): { readonly root: { lookupType(name: string): ProtobufjsType } };
}

const MESSAGE = 'shop.orders.Order';

/** The value with the number of its status, as Protobuf libraries take it. */
const withStatusNumber = (order: Readonly<Record<string, unknown>>): Record<string, unknown> => ({
  ...order,
  status: (ORDER_STATUSES as readonly unknown[]).indexOf(order['status']),
});

/** A copy of the payload behind the prefix. */
function framed(prefix: Buffer, payload: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(prefix.length + payload.length);
  prefix.copy(frame, 0);
  frame.set(payload, prefix.length);
  return frame;
}

/** Contestants of protobufjs: reflection, 64-bit integers as numbers, which is its fastest form. */
export function protobufjsSides(one: SerdeCase, load: LoadPeer): Contestants {
  const protobuf = load<Protobufjs>('protobufjs');
  protobuf.util.Long = null;
  protobuf.configure();
  const typeOf = (wanted: Wanted): ProtobufjsType =>
    protobuf.parse(one.texts[wanted], { keepCase: true }).root.lookupType(MESSAGE);
  const { prefix } = one;
  const reading = (wanted: Wanted): Reading => {
    const type = typeOf(wanted);
    return {
      kind: 'read',
      wanted,
      isSync: true,
      read: (frame) => type.decode(frame.subarray(prefix.length)),
      plain: (value) => type.toObject(value, { defaults: true, enums: String }),
    };
  };
  const writer = typeOf('writer');
  const values = one.numbers.map(withStatusNumber);
  return {
    'protobufjs, decode': reading('writer'),
    "protobufjs, decode with the reader's message": reading('reader'),
    'protobufjs, encode': {
      kind: 'write',
      isSync: true,
      write: (index) => framed(prefix, writer.encode(values[index]).finish()),
    },
  };
}

interface BufbuildRegistry {
  getMessage(name: string): object;
}
interface Bufbuild {
  create(schema: object, value?: unknown): object;
  createFileRegistry(files: object): BufbuildRegistry;
  fromBinary(schema: object, bytes: Uint8Array): object;
  fromJson(schema: object, json: unknown): object;
  toBinary(schema: object, message: object): Uint8Array;
  toJson(schema: object, message: object, options?: object): unknown;
}
interface WellKnown {
  readonly FileDescriptorSetSchema: object;
  readonly FileDescriptorProtoSchema: object;
}

const JSON_OPTIONS = { useProtoFieldName: true, alwaysEmitImplicit: true };

/** The value in the JSON form of Protobuf. */
const protoJson = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value, (_, inner: unknown) => (typeof inner === 'bigint' ? inner.toString() : inner)),
  );

/** Contestants of @bufbuild/protobuf; a message is written that exists already.
 *  @param descriptors FileDescriptorProto of both schemas */
export function bufbuildSides(
  one: SerdeCase,
  load: LoadPeer,
  descriptors: Readonly<Record<Wanted, Buffer>>,
): Contestants {
  const library = load<Bufbuild>('@bufbuild/protobuf');
  const { FileDescriptorProtoSchema, FileDescriptorSetSchema } = load<WellKnown>('@bufbuild/protobuf/wkt');
  const schemaOf = (wanted: Wanted): object => {
    const file = library.fromBinary(FileDescriptorProtoSchema, descriptors[wanted]);
    const set = library.create(FileDescriptorSetSchema, { file: [file] });
    return library.createFileRegistry(set).getMessage(MESSAGE);
  };
  const { prefix } = one;
  const reading = (wanted: Wanted): Reading => {
    const schema = schemaOf(wanted);
    return {
      kind: 'read',
      wanted,
      isSync: true,
      read: (frame) => library.fromBinary(schema, frame.subarray(prefix.length)),
      plain: (value) => library.toJson(schema, value as object, JSON_OPTIONS),
    };
  };
  const writer = schemaOf('writer');
  const messages = one.orders.map((order) => library.fromJson(writer, protoJson(order)));
  return {
    '@bufbuild/protobuf, fromBinary': reading('writer'),
    "@bufbuild/protobuf, fromBinary of the reader's message": reading('reader'),
    '@bufbuild/protobuf, toBinary of a message': {
      kind: 'write',
      isSync: true,
      write: (index) => framed(prefix, library.toBinary(writer, messages[index] as object)),
    },
  };
}
