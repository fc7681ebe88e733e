// A serializer and a deserializer of parcels: node CLIENT.mjs REGISTRY_URL BROKERS TOPIC
// [prefix|headers]
import { SchemaRegistry } from 'millrace/registry';

export const [url, brokers, topic, framing] = process.argv.slice(2);
const fields = [
  { name: 'id', type: 'long' },
  { name: 'state', type: 'string' },
];
const schema = { type: 'record', name: 'Parcel', fields };
const header = framing === 'headers' ? 'headers' : 'prefix';
const registry = new SchemaRegistry({ url });
export const serializer = await registry.serializer({ topic, schema, header, autoRegister: true }).prefetch();
export const deserializer = registry.deserializer();
