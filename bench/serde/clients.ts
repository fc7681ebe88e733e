/** Clients of a schema registry as contestants: Millrace's public serializer and deserializer,
 *  @kafkajs/confluent-schema-registry and @confluentinc/schemaregistry, against one registry. */
import type { SchemaRegistry } from '../../src/registry/index.ts';
import type { Contestants, Reading, SerdeCase, Wanted, Writing } from './case.ts';
import type { LoadPeer } from './peers.ts';

const awaited = (wanted: Wanted, read: (frame: Buffer) => Promise<unknown>): Reading => ({
  kind: 'read',
  wanted,
  isSync: false,
  read,
});

/** A copy of a finished record: what a producer does without a schema. */
function rawBytes({ frames }: SerdeCase): Writing {
  return {
    kind: 'write',
    isSync: true,
    write(index) {
      const ready = frames[index] as Buffer;
      const record = Buffer.allocUnsafe(ready.length);
      ready.copy(record, 0);
      return record;
    },
  };
}

/** Millrace's public classes, loaded before the first timed call. */
export async function ourSides(one: SerdeCase, registry: SchemaRegistry): Promise<Contestants> {
  const { format, texts, topics, orders, numbers, id } = one;
  const serializer = await registry
    .serializer({ topic: topics.writer, format, schema: texts.writer })
    .prefetch();
  const plain = await registry.deserializer().prefetch([id]);
  const resolving = await registry.deserializer({ format, readerSchema: texts.reader }).prefetch([id]);
  const reading = (wanted: Wanted, read: (frame: Buffer) => unknown): Reading => ({
    kind: 'read',
    wanted,
    isSync: true,
    read,
  });
  const writing = (values: readonly unknown[]): Writing => ({
    kind: 'write',
    isSync: true,
    write: (index) => serializer.serialize(values[index]),
  });
  return {
    'raw bytes': rawBytes(one),
    'serialize, bigint': writing(orders),
    'serialize, numbers': writing(numbers),
    deserializeSync: reading('writer', (frame) => plain.deserializeSync(frame)),
    'deserializeSync, reader schema': reading('reader', (frame) => resolving.deserializeSync(frame)),
    'deserialize, awaited': awaited('writer', (frame) => plain.deserialize(frame)),
    'deserialize, awaited, reader schema': awaited('reader', (frame) => resolving.deserialize(frame)),
  };
}

interface KafkajsPackage {
  readonly SchemaRegistry: new (options: {
    host: string;
  }) => {
    encode(id: number, value: unknown): Promise<Buffer>;
    decode(frame: Buffer, options?: object): Promise<unknown>;
  };
  readonly SchemaType: { readonly AVRO: string };
}

interface ProtobufMessage {
  readonly constructor: { toObject(message: unknown, options: object): unknown };
}

/** The value with the field names of the schema in place of their camel case. */
function withProtoNames(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withProtoNames);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([name, inner]) => [
    name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    withProtoNames(inner),
  ]);
  return Object.fromEntries(entries);
}

/** Contestants of @kafkajs/confluent-schema-registry. */
export function kafkajsSides(one: SerdeCase, load: LoadPeer, url: string): Contestants {
  const { SchemaRegistry: Client, SchemaType } = load<KafkajsPackage>('@kafkajs/confluent-schema-registry');
  const client = new Client({ host: url });
  const decode = awaited('writer', (frame) => client.decode(frame));
  if (one.format === 'PROTOBUF') {
    const options = { defaults: true, enums: String, longs: String };
    const plain = (value: unknown): unknown =>
      withProtoNames((value as ProtobufMessage).constructor.toObject(value, options));
    return { 'kafkajs, decode': { ...decode, plain } };
  }
  const options = { [SchemaType.AVRO]: { readerSchema: JSON.parse(one.texts.reader) as object } };
  return {
    'kafkajs, encode': {
      kind: 'write',
      isSync: false,
      write: (index) => client.encode(one.id, one.numbers[index]),
    },
    'kafkajs, decode': decode,
    'kafkajs, decode with a reader schema': awaited('reader', (frame) => client.decode(frame, options)),
  };
}

interface ConfluentSerde {
  serialize(topic: string, value: unknown): Promise<Buffer>;
  deserialize(topic: string, frame: Buffer): Promise<unknown>;
  readonly fileRegistry?: { getMessage(name: string): object };
}
type ConfluentClass = new (client: object, type: number, options: object) => ConfluentSerde;
interface ConfluentPackage {
  readonly AvroDeserializer: ConfluentClass;
  readonly AvroSerializer: ConfluentClass;
  readonly ProtobufDeserializer: ConfluentClass;
  readonly SchemaRegistryClient: { newClient(options: object): object };
  readonly SerdeType: { readonly VALUE: number };
}
interface ProtobufJson {
  toJson(schema: object, message: unknown, options: object): unknown;
}

/** Contestants of @confluentinc/schemaregistry. Its reader schema is the latest of the subject. */
export function confluentSides(one: SerdeCase, load: LoadPeer, url: string): Contestants {
  const library = load<ConfluentPackage>('@confluentinc/schemaregistry');
  const client = library.SchemaRegistryClient.newClient({ baseURLs: [url] });
  const { VALUE } = library.SerdeType;
  const { topics, numbers } = one;
  if (one.format === 'PROTOBUF') {
    const deserializer = new library.ProtobufDeserializer(client, VALUE, {});
    const { toJson } = load<ProtobufJson>('@bufbuild/protobuf');
    const options = { useProtoFieldName: true, alwaysEmitImplicit: true };
    const plain = (value: unknown): unknown => {
      const { $typeName } = value as { readonly $typeName: string };
      return toJson(deserializer.fileRegistry?.getMessage($typeName) as object, value, options);
    };
    const decode = awaited('writer', (frame) => deserializer.deserialize(topics.writer, frame));
    return { 'confluent, deserialize': { ...decode, plain } };
  }
  const latest = { autoRegisterSchemas: false, useLatestVersion: true };
  const serializer = new library.AvroSerializer(client, VALUE, latest);
  const plain = new library.AvroDeserializer(client, VALUE, {});
  const resolving = new library.AvroDeserializer(client, VALUE, { useLatestVersion: true });
  return {
    'confluent, serialize': {
      kind: 'write',
      isSync: false,
      write: (index) => serializer.serialize(topics.writer, numbers[index]),
    },
    'confluent, deserialize': awaited('writer', (frame) => plain.deserialize(topics.writer, frame)),
    'confluent, deserialize with a reader schema': awaited('reader', (frame) =>
      resolving.deserialize(topics.reader, frame),
    ),
  };
}
