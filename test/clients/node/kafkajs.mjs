/** Test driver of @kafkajs/confluent-schema-registry:
 *    node kafkajs.mjs CLIENTS_DIR REGISTRY_URL [ACCESS] */
import { readFileSync } from 'node:fs';
import { Agent } from 'node:https';
import { plain, requireFrom, serve } from './lines.mjs';

const [, , dir, url, given] = process.argv;
const access = given === undefined ? undefined : JSON.parse(given);
const { SchemaRegistry, SchemaType } = requireFrom(dir)('@kafkajs/confluent-schema-registry');

/** Creates a client with empty caches. */
const fresh = () =>
  new SchemaRegistry({
    host: url,
    ...(access && {
      auth: { username: access.user, password: access.password },
      agent: new Agent({ ca: readFileSync(access.ca) }),
    }),
  });
const reader = fresh();

const schemaOf = ({ schemaType, schema, references }) => ({
  type: SchemaType[schemaType],
  schema,
  ...(references && { references }),
});

await serve({
  register: async (request) => {
    const options = { subject: request.subject, ...(request.level && { compatibility: request.level }) };
    return { id: (await fresh().register(schemaOf(request), options)).id };
  },
  lookup: async (request) => ({
    id: await fresh().getRegistryIdBySchema(request.subject, schemaOf(request)),
  }),
  latest: async ({ subject }) => ({ id: await fresh().getLatestSchemaId(subject) }),
  version: async ({ subject, version }) => ({ id: await fresh().getRegistryId(subject, version) }),
  serialize: async ({ topic, schema, schemaId, value }) => {
    const registry = fresh();
    const id = schemaId ?? (await registry.register(schemaOf(schema), { subject: `${topic}-value` })).id;
    // protobufjs: a value in its JSON form is converted to a message first.
    const { message } = await registry.getSchema(id);
    const bytes = await registry.encode(id, message ? message.fromObject(value) : value);
    return { bytes: bytes.toString('base64'), headers: {} };
  },
  deserialize: async ({ bytes, readerSchema }) => {
    const options = readerSchema && { [SchemaType.AVRO]: { readerSchema: JSON.parse(readerSchema) } };
    const value = await reader.decode(Buffer.from(bytes, 'base64'), options);
    // protobufjs: 64-bit integers and enums in their JSON form.
    const type = value.constructor;
    return plain(type.toObject ? type.toObject(value, { longs: String, enums: String }) : value);
  },
});
