/** The client library against a running registry: serializers and deserializers as a service uses
 *  them, with framing, strategies, errors and several addresses. */
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { beforeAll, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { openMetricsPage } from '../../src/drivers.ts';
import {
  type RecordFault,
  type RecordHeaders,
  recordFaultOf,
  SchemaRegistry,
} from '../../src/registry/index.ts';
import { countingProxy } from '../fixtures/counting-proxy.ts';
import { launcher } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';

const own = launcher();
let url = '';
beforeAll(async () => {
  url = `http://${await startRegistry(own, ['-store=memory']).ready()}`;
});

const field = (name: string, type: unknown, more: object = {}): object => ({ name, type, ...more });
const record = (name: string, ...fields: object[]): object => ({
  type: 'record',
  name,
  namespace: 'shop',
  fields,
});
const V1 = record('Parcel', field('id', 'long'), field('state', 'string'));
const V2 = record(
  'Parcel',
  field('id', 'long'),
  field('state', 'string'),
  field('weight', 'double', { default: 0 }),
);
interface Parcel {
  readonly id: bigint;
  readonly state: string;
  readonly weight?: number;
}
const parcel: Parcel = { id: 9_007_199_254_740_993n, state: 'sent' };

const codeOf = async (work: () => unknown): Promise<string | undefined> => {
  try {
    await work();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.code;
  }
};

test('an Avro record makes the round trip through a newer reader schema', async () => {
  const registry = new SchemaRegistry({ url });
  const serializer = registry.serializer<Parcel>({ topic: 'parcels', schema: V1, autoRegister: true });
  expect(() => serializer.serialize(parcel)).toThrow('is not loaded');
  await serializer.prefetch();
  const bytes = serializer.serialize(parcel);
  expect(bytes.readUInt8(0)).toBe(0);
  expect(bytes.readUInt32BE(1)).toBe(serializer.schemaId);

  const deserializer = registry.deserializer<Parcel>({ readerSchema: V2 });
  expect(() => deserializer.deserializeSync(bytes)).toThrow('is not loaded');
  expect(await deserializer.deserialize(bytes)).toEqual({ ...parcel, weight: 0 });
  expect(deserializer.deserializeSync(bytes)).toEqual({ ...parcel, weight: 0 });
  expect(await deserializer.deserialize(null)).toBeNull();
  expect(await registry.deserializer().deserialize(bytes)).toEqual(parcel);
});

test('a schema is written by its version, and another registered version is read with it', async () => {
  const registry = new SchemaRegistry({ url });
  await registry.serializer({ topic: 'versions', schema: V1, autoRegister: true }).prefetch();
  await registry.serializer({ topic: 'versions', schema: V2, autoRegister: true }).prefetch();
  const latest = await registry.serializer<Parcel>({ topic: 'versions', version: 'latest' }).prefetch();
  const first = await registry.serializer<Parcel>({ topic: 'versions', version: 1 }).prefetch();
  const given = await registry.serializer<Parcel>({ topic: 'versions', schema: V1 }).prefetch();
  expect(given.schemaId).toBe(first.schemaId);
  const old = registry.deserializer<Parcel>({ readerVersion: { subject: 'versions-value', version: 1 } });
  expect(await old.deserialize(latest.serialize({ ...parcel, weight: 2.5 }))).toEqual(parcel);
  expect(await codeOf(() => registry.serializer({ topic: 'versions', version: 7 }).prefetch())).toBe(
    'version_not_found',
  );
  const unregistered = registry.serializer({ topic: 'versions', schema: record('Other') });
  expect(await codeOf(() => unregistered.prefetch())).toBe('schema_not_found');
});

test('Protobuf records carry message indexes, also of a nested message', async () => {
  const registry = new SchemaRegistry({ url });
  const schema = `syntax = "proto3"; package shop;
message Unused {} message Outer { message Inner { int64 id = 1; repeated string tags = 2; } Inner inner = 1; }`;
  const options = { topic: 'proto', format: 'PROTOBUF', schema, autoRegister: true } as const;
  const first = await registry.serializer({ ...options, message: 'shop.Outer' }).prefetch();
  const nested = await registry.serializer({ ...options, message: 'shop.Outer.Inner' }).prefetch();
  expect([...first.serialize({ inner: null }).subarray(5, 7)]).toEqual([2, 2]);
  expect([...nested.serialize({ id: 1n }).subarray(5, 8)]).toEqual([4, 2, 0]);
  const deserializer = registry.deserializer();
  expect(await deserializer.deserialize(nested.serialize({ id: 5n, tags: ['a'] }))).toMatchObject({
    id: 5n,
    tags: ['a'],
  });
  expect(await deserializer.deserialize(first.serialize({ inner: { id: 6n } }))).toMatchObject({
    inner: { id: 6n },
  });
});

test('the guid in a header replaces the prefix, for keys and values', async () => {
  const registry = new SchemaRegistry({ url });
  for (const isKey of [false, true]) {
    const options = { topic: 'headers', isKey, schema: V1, autoRegister: true, header: 'headers' } as const;
    const serializer = await registry.serializer<Parcel>(options).prefetch();
    const name = isKey ? '__key_schema_id' : '__value_schema_id';
    const header = serializer.headers[name] as Buffer;
    expect(header).toHaveLength(17);
    expect(header[0]).toBe(1);
    const bytes = serializer.serialize(parcel);
    const prefixed = await registry.serializer<Parcel>({ ...options, header: 'prefix' }).prefetch();
    expect(bytes.equals(prefixed.serialize(parcel).subarray(5))).toBe(true);
    const deserializer = registry.deserializer<Parcel>({ isKey });
    expect(await deserializer.deserialize(bytes, serializer.headers)).toEqual(parcel);
    expect(await deserializer.deserialize(bytes, { [name]: [header] })).toEqual(parcel);
  }
});

/** Sends a request to a registry. Returns its answer. */
async function send(method: string, address: string, body: object): Promise<Record<string, unknown>> {
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(address, { method, headers, body: JSON.stringify(body) });
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  return JSON.parse(text) as Record<string, unknown>;
}

test.each(['own', '7', '8'])(
  'a guid in a header resolves where the schema has metadata or rules (wire %s)',
  async (wire) => {
    const flags = ['-store=memory', `-wire=${wire}`];
    const at = `http://${await startRegistry(own, flags, `registry-wire-${wire}`).ready()}`;
    const subject = (topic: string): string => `${at}/subjects/${topic}-value/versions`;
    const schema = JSON.stringify(V1);
    const rule = { name: 'sent', kind: 'CONDITION', type: 'CEL', mode: 'WRITE', expr: "message.state != ''" };
    await send('PUT', `${at}/config/defaults-value`, { defaultMetadata: { properties: { owner: 'shop' } } });
    await send('PUT', `${at}/config/rules-value`, { overrideRuleSet: { domainRules: [rule] } });
    await send('POST', subject('defaults'), { schema });
    await send('POST', subject('rules'), { schema });
    await send('POST', subject('numbered'), { schema, version: 1 });
    await send('POST', subject('described'), { schema, metadata: { tags: { id: ['key'] } } });
    for (const topic of ['defaults', 'rules', 'numbered', 'described']) {
      const options = { topic, schema: V1, header: 'headers' } as const;
      const serializer = await new SchemaRegistry({ url: at }).serializer<Parcel>(options).prefetch();
      const bytes = serializer.serialize(parcel);
      const reader = new SchemaRegistry({ url: at }).deserializer<Parcel>();
      expect(await reader.deserialize(bytes, serializer.headers), topic).toEqual(parcel);
      const loaded = new SchemaRegistry({ url: at });
      await loaded.prefetch(topic);
      expect(loaded.deserializer().deserializeSync(bytes, serializer.headers), topic).toEqual(parcel);
      expect(loaded.serializer(options).headers, topic).toEqual(serializer.headers);
    }
    // Answers omit empty metadata, which the guid covers.
    await send('POST', subject('empty'), { schema, metadata: {} });
    const empty = new SchemaRegistry({ url: at }).serializer({
      topic: 'empty',
      version: 'latest',
      header: 'headers',
    });
    expect(await codeOf(() => empty.prefetch())).toBe(wire === '8' ? undefined : 'schema_not_found');
  },
);

test('equal ids of two contexts are the schemas of each context, for all threads', async () => {
  const at = `http://${await startRegistry(own, ['-store=memory'], 'registry-contexts').ready()}`;
  const versions = (subject: string): string => `${at}/subjects/${encodeURIComponent(subject)}/versions`;
  const item = (type: string): string => JSON.stringify(record('Item', field('sku', type)));
  const order = (name: string): object => record('Order', field(name, 'shop.Item'), field('n', 'long'));
  const references = [{ name: 'shop.Item', subject: 'item', version: 1 }];
  // In each context the item has id 1 and the order id 2.
  for (const [context, type, name] of [
    ['', 'string', 'main'],
    [':.staging:', 'int', 'staged'],
  ] as const) {
    expect(await send('POST', versions(`${context}item`), { schema: item(type) })).toMatchObject({ id: 1 });
    const schema = JSON.stringify(order(name));
    const sent = { schema, references };
    expect(await send('POST', versions(`${context}orders-value`), sent)).toMatchObject({ id: 2 });
  }
  await send('PUT', `${at}/config/alias-value`, { alias: ':.staging:orders-value' });

  const registry = new SchemaRegistry({ url: at });
  const thread = new SchemaRegistry({ port: registry.threadPort() });
  const subject = ':.staging:orders-value';
  const written = { topic: 'orders', schema: order('staged'), references, header: 'headers' } as const;
  const staged = await registry.serializer({ ...written, subject: () => subject }).prefetch();
  const value = { staged: { sku: 7 }, n: 1n };
  const bytes = staged.serialize(value);
  const prefixed = Buffer.concat([Buffer.from([0, 0, 0, 0, 2]), bytes]);
  const main = await registry.serializer({ topic: 'orders', version: 1 }).prefetch();
  const mainValue = { main: { sku: 'a' }, n: 2n };

  // The versions of one context must not answer for the ids of the other one.
  for (const one of [thread, registry]) {
    for (const [name, id] of [
      ['item', 1],
      ['orders-value', 2],
    ] as const)
      expect(await one.client.version(`:.staging:${name}`, '1')).toMatchObject({ id, context: '.staging' });
    expect(await one.deserializer().deserialize(main.serialize(mainValue))).toEqual(mainValue);
    expect(await one.deserializer({ context: '.staging' }).deserialize(prefixed)).toEqual(value);
    expect(await one.deserializer().deserialize(bytes, staged.headers)).toEqual(value);
    for (const reader of [subject, 'alias-value']) {
      const readerVersion = { subject: reader, version: 1 } as const;
      expect(await one.deserializer({ readerVersion }).deserialize(prefixed), reader).toEqual(value);
    }
  }

  // An address of a context has the ids of that context.
  const within = new SchemaRegistry({ url: `${at}/contexts/.staging` });
  expect(await within.deserializer().deserialize(prefixed)).toEqual(value);
  const readerVersion = { subject: 'orders-value', version: 'latest' } as const;
  expect(await within.deserializer({ readerVersion }).deserialize(prefixed)).toEqual(value);
});

test('the header with the guid is found in the headers of each Kafka client', async () => {
  const registry = new SchemaRegistry({ url });
  const options = { topic: 'shapes', schema: V1, autoRegister: true, header: 'headers' } as const;
  const serializer = await registry.serializer<Parcel>(options).prefetch();
  const name = '__value_schema_id';
  const header = serializer.headers[name] as Buffer;
  const trace = Buffer.from('trace');
  // The last of several headers with this name counts, as for the existing clients.
  const old = Buffer.alloc(17, 1);
  const shapes: readonly RecordHeaders[] = [
    { trace, [name]: header },
    { trace: [trace, trace], [name]: [old, header] },
    new Map([
      [Buffer.from('trace'), trace],
      [Buffer.from(name), old],
      [Buffer.from(name), header],
    ]),
    new Map([
      ['trace', trace],
      [name, header],
    ]),
    [{ trace }, { [name]: old }, { [name]: header }],
  ];
  const bytes = serializer.serialize(parcel);
  const deserializer = registry.deserializer<Parcel>();
  for (const headers of shapes) expect(await deserializer.deserialize(bytes, headers)).toEqual(parcel);
  const results = await deserializer.deserializeBatch(shapes.map((headers) => ({ bytes, headers })));
  expect(results.map(({ value }) => value)).toEqual(shapes.map(() => parcel));
  // Without the header the first byte of the payload is read as the magic byte of a prefix.
  for (const headers of [undefined, {}, new Map(), [], { trace }, new Map([[trace, trace]]), [{ trace }]])
    expect(await codeOf(() => deserializer.deserialize(bytes, headers))).toBe('bad_magic');
  expect(await deserializer.deserializeBatch([undefined, { bytes: undefined }])).toEqual([
    { value: null },
    { value: null },
  ]);
});

test('a strategy names the subject', async () => {
  const registry = new SchemaRegistry({ url });
  for (const [subject, name] of [
    ['TopicName', 'strategy-value'],
    ['RecordName', 'shop.Parcel'],
    ['TopicRecordName', 'strategy-shop.Parcel'],
    [({ topic, isKey }: { topic: string; isKey: boolean }) => `own.${topic}.${isKey}`, 'own.strategy.false'],
  ] as const) {
    await registry.serializer({ topic: 'strategy', subject, schema: V1, autoRegister: true }).prefetch();
    expect((await registry.client.version(name, 'latest')).version).toBe(1);
  }
  const nameless = registry.serializer({ topic: 'strategy', subject: 'RecordName', version: 'latest' });
  expect(await codeOf(() => nameless.prefetch())).toBe('bad_option');
});

test('a bad record of a batch costs its own row and says what and where', async () => {
  const registry = new SchemaRegistry({ url });
  const serializer = await registry
    .serializer<Parcel>({ topic: 'batch', schema: V1, autoRegister: true })
    .prefetch();
  const good = serializer.serialize(parcel);
  const unknown = Buffer.from(good);
  unknown.writeUInt32BE(4_000_000, 1);
  const results = await registry
    .deserializer<Parcel>()
    .deserializeBatch([
      good,
      null,
      Buffer.from('{"json":true}'),
      Buffer.from([0, 0, 0]),
      unknown,
      good.subarray(0, good.length - 1),
    ]);
  expect(results.map(({ value, error }) => error?.row.reason ?? value)).toEqual([
    parcel,
    null,
    'bad_magic',
    'truncated_frame',
    'unknown_schema_id',
    'malformed_payload',
  ]);
  expect(results[4]?.error?.details).toMatchObject({ schemaId: 4_000_000 });
  expect(results[5]?.error?.details).toMatchObject({
    schemaId: serializer.schemaId,
    path: 'Parcel.state',
  });
  expect(await codeOf(() => serializer.serialize({ id: 1n } as Parcel))).toBe('value_refused');
});

/** Facts of the error that reading a record throws. */
async function faultOf(work: () => Promise<unknown>): Promise<RecordFault | undefined> {
  try {
    await work();
    return undefined;
  } catch (thrown) {
    return recordFaultOf(thrown);
  }
}

test('an error names reason, field, byte, writer schema and the version of the reader schema', async () => {
  const registry = new SchemaRegistry({ url });
  const options = { topic: 'faults', autoRegister: true } as const;
  const first = await registry.serializer<Parcel>({ ...options, schema: V1 }).prefetch();
  const second = await registry.serializer<Parcel>({ ...options, schema: V2 }).prefetch();
  const cut = first.serialize({ id: 1n, state: 'sent' }).subarray(0, -1);
  // The prefix of 5 bytes, the id of 1 byte, then the length of the text and 3 of its 4 bytes.
  const fault = { reason: 'malformed_payload', path: 'Parcel.state', at: 1, byte: 6 };
  const schemaId = first.schemaId;
  expect(await faultOf(() => registry.deserializer().deserialize(cut))).toEqual({ ...fault, schemaId });

  const subject = 'faults-value';
  const latest = registry.deserializer({ readerVersion: { subject, version: 'latest' } });
  const reader = { subject, version: 2, schemaId: second.schemaId };
  expect(await faultOf(() => latest.deserialize(cut))).toEqual({ ...fault, schemaId, reader });
  await expect(async () => latest.deserializeSync(cut)).rejects.toMatchObject({ details: { reader } });
  expect((await latest.deserializeBatch([cut])).map(({ error }) => recordFaultOf(error))).toEqual([
    { ...fault, schemaId, reader },
  ]);

  const given = registry.deserializer({ readerSchema: V2 });
  const guid = await registry.client.guidOf(second.schemaId);
  expect(await faultOf(() => given.deserialize(cut))).toEqual({ ...fault, schemaId, reader: { guid } });

  const other = registry.deserializer({
    readerSchema: record('Parcel', field('id', 'long'), field('more', 'int')),
  });
  expect(await faultOf(() => other.deserialize(first.serialize(parcel)))).toMatchObject({
    reason: 'incompatible_schema',
    schemaId,
    path: 'Parcel',
    at: 0,
    byte: 5,
  });
});

test('an error of the frame names its byte, also in a header', async () => {
  const registry = new SchemaRegistry({ url });
  const schema = 'syntax = "proto3"; package shop; message Parcel { int64 id = 1; }';
  const options = { topic: 'frames', format: 'PROTOBUF', schema, autoRegister: true } as const;
  const serializer = await registry.serializer({ ...options, header: 'headers' }).prefetch();
  const { schemaId } = serializer;
  const read = (bytes: Uint8Array, headers?: Record<string, Uint8Array>) =>
    faultOf(() => registry.deserializer().deserialize(bytes, headers));
  const prefix = (...rest: number[]): Buffer => {
    const bytes = Buffer.from([0, 0, 0, 0, 0, ...rest]);
    bytes.writeUInt32BE(schemaId, 1);
    return bytes;
  };
  expect(await read(Buffer.from('{}'))).toEqual({ reason: 'bad_magic', byte: 0 });
  expect(await read(Buffer.from([0, 0, 0]))).toEqual({ reason: 'truncated_frame', byte: 3 });
  expect(await read(prefix())).toEqual({ reason: 'truncated_frame', schemaId, byte: 5 });
  expect(await read(prefix(2, 1))).toEqual({ reason: 'bad_message_index', schemaId, byte: 6 });
  expect(await read(prefix(2, 8))).toEqual({ reason: 'bad_message_index', schemaId, byte: 5 });
  expect(await read(prefix(0, 8))).toEqual({
    reason: 'malformed_payload',
    schemaId,
    path: 'shop.Parcel.id',
    at: 1,
    byte: 7,
  });
  const unknown = Buffer.from([0, 0x7f, 0, 0, 0, 0]);
  expect(await read(unknown)).toEqual({ reason: 'unknown_schema_id', schemaId: 0x7f00_0000, byte: 1 });

  const name = '__value_schema_id';
  const header = serializer.headers[name] as Buffer;
  const guid = await registry.client.guidOf(schemaId);
  const none = Buffer.alloc(0);
  expect(await read(none, { [name]: Buffer.of(9) })).toEqual({ reason: 'bad_magic', headerByte: 0 });
  expect(await read(none, { [name]: header.subarray(0, 4) })).toEqual({
    reason: 'truncated_frame',
    headerByte: 4,
  });
  expect(await read(none, { [name]: Buffer.concat([header.subarray(0, 17), Buffer.of(2, 8)]) })).toEqual({
    reason: 'bad_message_index',
    schemaId: guid,
    headerByte: 17,
  });
  const lost = Buffer.concat([Buffer.of(1), Buffer.alloc(16, 3)]);
  expect(await read(none, { [name]: lost })).toMatchObject({ reason: 'unknown_schema_id', headerByte: 1 });
  expect(await read(Buffer.of(8), { [name]: header })).toMatchObject({
    reason: 'malformed_payload',
    schemaId: guid,
    at: 1,
    byte: 1,
  });
});

test('a Protobuf record that a reader would misread is refused with its message', async () => {
  const registry = new SchemaRegistry({ url });
  const text = (type: string): string =>
    `syntax = "proto3"; package shop; message Box { ${type} size = 1; } message Parcel { Box box = 1; }`;
  const options = {
    topic: 'misread',
    format: 'PROTOBUF',
    autoRegister: true,
    message: 'shop.Parcel',
  } as const;
  const serializer = await registry.serializer({ ...options, schema: text('int64') }).prefetch();
  const { schemaId } = serializer;
  const reader = text('sint64');
  const deserializer = registry.deserializer({ readerSchema: reader, format: 'PROTOBUF' });
  expect(await deserializer.deserialize(serializer.serialize({ box: null }))).toEqual({ box: null });
  const fault = await faultOf(() => deserializer.deserialize(serializer.serialize({ box: { size: 5n } })));
  const indexes = 2;
  expect(fault).toMatchObject({ reason: 'incompatible_schema', schemaId, at: 0, byte: 5 + indexes });
  expect(fault?.path).toMatch(/^shop\.Parcel/);
});

test('an error that says nothing about the record has no facts', async () => {
  const registry = new SchemaRegistry({ url: 'http://127.0.0.1:1', retries: 0 });
  const bytes = Buffer.from([0, 0, 0, 0, 1, 0]);
  expect(await codeOf(() => registry.deserializer().deserialize(bytes))).toBe('registry_unavailable');
  expect(await faultOf(() => registry.deserializer().deserialize(bytes))).toBeUndefined();
  expect(recordFaultOf(new Error('another'))).toBeUndefined();
});

test('a refused value names the field and the schema', async () => {
  const registry = new SchemaRegistry({ url });
  const avro = await registry.serializer({ topic: 'refused', schema: V1, autoRegister: true }).prefetch();
  const schema = 'syntax = "proto3"; package shop; message Parcel { repeated int64 id = 1; }';
  const proto = await registry
    .serializer({ topic: 'refused-proto', format: 'PROTOBUF', schema, autoRegister: true })
    .prefetch();
  for (const [serializer, value, path] of [
    [avro, { id: 1n, state: 5 }, 'shop.Parcel.state'],
    [proto, { id: ['x'] }, 'shop.Parcel.id[0]'],
  ] as const) {
    const details = { path, schemaId: serializer.schemaId };
    await expect(async () => serializer.serialize(value)).rejects.toMatchObject({
      code: 'value_refused',
      details,
    });
  }
});

test('ten thousand concurrent misses of one id are one request', async () => {
  const serializer = await new SchemaRegistry({ url })
    .serializer<Parcel>({ topic: 'misses', schema: V1, autoRegister: true })
    .prefetch();
  const proxy = await countingProxy(url);
  try {
    const registry = new SchemaRegistry({ url: proxy.url });
    const deserializer = registry.deserializer<Parcel>();
    const bytes = serializer.serialize(parcel);
    const values = await Promise.all(Array.from({ length: 10_000 }, () => deserializer.deserialize(bytes)));
    expect(values.every((value) => value?.id === parcel.id)).toBe(true);
    expect(proxy.paths).toEqual([`GET /schemas/ids/${serializer.schemaId}`]);
    const page = await (await openMetricsPage(registry.metrics, { process: false })).text();
    expect(page).toContain('serde_seconds_count{operation="deserialize"} 10000');
    expect(page).toContain('schema_cache_lookups_total{cache="id_to_schema",result="miss"} 10000');
    await deserializer.deserialize(bytes);
    const next = await (await openMetricsPage(registry.metrics, { process: false })).text();
    expect(next).toContain('schema_cache_lookups_total{cache="id_to_schema",result="hit"} 1');
  } finally {
    proxy.close();
  }
});

test('requests pass on to another address when the first one does not answer', async () => {
  const closed = createTcpServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const dead = `http://127.0.0.1:${port}`;
  const registry = new SchemaRegistry({ urls: [dead, url], retries: 0 });
  const options = { topic: 'several', schema: V1, autoRegister: true } as const;
  expect((await registry.serializer(options).prefetch()).schemaId).toBeGreaterThan(0);
  const alone = new SchemaRegistry({ url: dead, retries: 0 });
  expect(await codeOf(() => alone.serializer(options).prefetch())).toBe('registry_unavailable');
});

test('contradicting options are refused before any request', async () => {
  expect(await codeOf(() => new SchemaRegistry({}))).toBe('bad_option');
  expect(await codeOf(() => new SchemaRegistry({ url, urls: [url] }))).toBe('bad_option');
  expect(await codeOf(() => new SchemaRegistry({ urls: [] }))).toBe('bad_option');
  expect(await codeOf(() => new SchemaRegistry({ url: 'localhost:8081' }))).toBe('bad_option');
  expect(await codeOf(() => new SchemaRegistry({ url: 'http://user:secret@localhost:8081' }))).toBe(
    'bad_option',
  );
  const registry = new SchemaRegistry({ url });
  expect(await codeOf(() => registry.serializer({ topic: 't' }))).toBe('bad_option');
  expect(await codeOf(() => registry.serializer({ topic: 't', schema: V1, version: 1 }))).toBe('bad_option');
  const two = { readerSchema: V1, readerVersion: { subject: 's', version: 1 } };
  expect(await codeOf(() => registry.deserializer(two))).toBe('bad_option');
});
