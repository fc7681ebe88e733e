/** Test driver of @confluentinc/schemaregistry:
 *    node confluent.mjs CLIENTS_DIR REGISTRY_URL [ACCESS] */
import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { plain, requireFrom, serve } from './lines.mjs';

const [, , dir, url, given] = process.argv;
const access = given === undefined ? undefined : JSON.parse(given);
const require = requireFrom(dir);
const {
  AvroDeserializer,
  AvroSerializer,
  HeaderSchemaIdSerializer,
  ProtobufDeserializer,
  ProtobufSerializer,
  SchemaRegistryClient,
  SerdeType,
} = require('@confluentinc/schemaregistry');
const {
  create,
  createFileRegistry,
  createMutableRegistry,
  fromBinary,
  fromJson,
  toJson,
} = require('@bufbuild/protobuf');
const wkt = require('@bufbuild/protobuf/wkt');

const newClient = () =>
  SchemaRegistryClient.newClient({
    baseURLs: [url],
    ...(access && {
      basicAuthCredentials: { credentialsSource: 'USER_INFO', userInfo: `${access.user}:${access.password}` },
      createAxiosDefaults: { httpsAgent: new Agent({ ca: readFileSync(access.ca) }) },
    }),
  });
const client = newClient();
/** Creates a client with empty caches. */
const fresh = () => newClient();

const infoOf = ({ schemaType, schema, references, metadata }) => ({
  schema,
  schemaType,
  ...(references && { references }),
  ...(metadata && { metadata }),
});

/** Makes the registry that ProtobufSerializer expects.
 *  @param set FileDescriptorSet in its JSON form, or base64 of one FileDescriptorProto
 */
function registryOf(set) {
  const files =
    typeof set === 'string'
      ? create(wkt.FileDescriptorSetSchema, {
          file: [fromBinary(wkt.FileDescriptorProtoSchema, Buffer.from(set, 'base64'))],
        })
      : fromJson(wkt.FileDescriptorSetSchema, set);
  files.file.unshift(wkt.file_google_protobuf_timestamp.proto, wkt.file_google_protobuf_wrappers.proto);
  return createMutableRegistry(createFileRegistry(files));
}

/** Turns the JSON form of buffers back into buffers. */
const withBuffers = (value) =>
  JSON.parse(JSON.stringify(value), (_, inner) =>
    inner?.type === 'Buffer' && Array.isArray(inner.data) ? Buffer.from(inner.data) : inner,
  );

const readers = new Map();
function readerOf(schemaType, isKey = false) {
  const Reader = schemaType === 'AVRO' ? AvroDeserializer : ProtobufDeserializer;
  const name = `${schemaType} ${isKey}`;
  if (!readers.has(name)) readers.set(name, new Reader(fresh(), typeOf(isKey), {}));
  return readers.get(name);
}
const typeOf = (isKey) => (isKey ? SerdeType.KEY : SerdeType.VALUE);

await serve({
  register: async (request) => {
    const { id, version } = await fresh().registerFullResponse(
      request.subject,
      infoOf(request),
      request.normalize ?? false,
    );
    return { id, version: version ?? null };
  },
  lookup: async (request) => {
    const found = await fresh().getIdFullResponse(
      request.subject,
      infoOf(request),
      request.normalize ?? false,
    );
    return { id: found.id, version: found.version };
  },
  byId: async ({ subject, id, format }) => plain(await fresh().getBySubjectAndId(subject, id, format)),
  byGuid: async ({ guid }) => plain(await fresh().getByGuid(guid)),
  latest: async ({ subject, format }) => plain(await fresh().getLatestSchemaMetadata(subject, format)),
  version: async ({ subject, version, deleted }) =>
    plain(await fresh().getSchemaMetadata(subject, version, deleted ?? false)),
  versions: ({ subject }) => client.getAllVersions(subject),
  subjects: () => client.getAllSubjects(),
  withMetadata: async ({ subject, metadata }) =>
    plain(await fresh().getLatestWithMetadata(subject, metadata)),
  compatible: (request) => client.testSubjectCompatibility(request.subject, infoOf(request)),
  level: ({ subject }) => client.getCompatibility(subject),
  setLevel: ({ subject, level }) => client.updateCompatibility(subject, level),
  config: async ({ subject }) => plain(await client.getConfig(subject)),
  setConfig: async ({ subject, config }) => plain(await client.updateConfig(subject, config)),
  deleteVersion: ({ subject, version, permanent }) =>
    client.deleteSubjectVersion(subject, version, permanent),
  deleteSubject: ({ subject, permanent }) => client.deleteSubject(subject, permanent),
  serialize: async ({ schemaType, topic, value, schema, set, message, headers, isKey = false }) => {
    const conf = headers === true ? { schemaIdSerializer: HeaderSchemaIdSerializer } : {};
    const sent = {};
    let bytes;
    if (schemaType === 'AVRO') {
      // An Avro schema derived from a value would differ, so the registered schema is used.
      await fresh().register(`${topic}-${isKey ? 'key' : 'value'}`, infoOf(schema));
      const latest = { autoRegisterSchemas: false, useLatestVersion: true };
      const serializer = new AvroSerializer(fresh(), typeOf(isKey), { ...conf, ...latest });
      bytes = await serializer.serialize(topic, withBuffers(value), sent);
    } else {
      const registry = registryOf(set);
      const serializer = new ProtobufSerializer(fresh(), typeOf(isKey), {
        ...conf,
        autoRegisterSchemas: true,
        registry,
      });
      bytes = await serializer.serialize(topic, fromJson(registry.getMessage(message), value), sent);
    }
    return {
      bytes: bytes.toString('base64'),
      headers: Object.fromEntries(
        Object.entries(sent).map(([name, it]) => [name, Buffer.from(it).toString('base64')]),
      ),
    };
  },
  deserialize: async ({ schemaType, topic, bytes, headers, isKey }) => {
    const sent = Object.fromEntries(
      Object.entries(headers ?? {}).map(([name, it]) => [name, Buffer.from(it, 'base64')]),
    );
    const read = await readerOf(schemaType, isKey).deserialize(topic, Buffer.from(bytes, 'base64'), sent);
    if (schemaType === 'AVRO') return plain(read);
    const files = readerOf(schemaType, isKey).fileRegistry;
    return toJson(files.getMessage(read.$typeName), read);
  },
});
