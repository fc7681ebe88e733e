/** Options and arguments of the client library that no compiler has checked. */
import { describe, expect, it } from 'vitest';
import { Metrics } from '../../../../src/core/metrics.ts';
import { Deserializer } from '../../../../src/registry/client/deserializer.ts';
import { SchemaRegistry } from '../../../../src/registry/client/schema-registry.ts';
import { serdeTimes } from '../../../../src/registry/client/serde-metrics.ts';
import { Serializer } from '../../../../src/registry/client/serializer.ts';
import { RegistryClient } from '../../../../src/serde/client.ts';
import type { TransportAnswer } from '../../../../src/serde/transport.ts';
import { SeededRandom } from '../../../../src/sim/clock.ts';
import { realClock } from '../../../wait.ts';

const ABSENT: TransportAnswer = { status: 404, body: '{"error_code":40401,"message":"Subject not found."}' };
const RECORD = JSON.stringify({ type: 'record', name: 'R', fields: [] });

/** A registry that answers every registration and look-up with an id, and has the id's schema. */
function setUp() {
  const sent: string[] = [];
  const metrics = new Metrics();
  const client = new RegistryClient({
    transport: {
      request(method, path) {
        sent.push(`${method} ${path}`);
        const answer = path.startsWith('/subjects/absent')
          ? ABSENT
          : { status: 200, body: JSON.stringify({ id: 1, version: 1, subject: 's', schema: RECORD }) };
        return Promise.resolve(answer);
      },
    },
    clock: realClock,
    random: new SeededRandom(1),
    metrics,
    unknownForMs: 1000,
    retries: 0,
    retryDelayMs: 1,
  });
  const times = serdeTimes(metrics, realClock);
  return {
    sent,
    serializer: (options: unknown) => new Serializer(client, options as never, times),
    deserializer: (options: unknown) => new Deserializer(client, options as never, times),
  };
}

const written = { topic: 't', schema: RECORD, autoRegister: true };

describe('options of a serializer', () => {
  it.each([
    ['no options', undefined],
    ['no topic', { ...written, topic: undefined }],
    ['an empty topic', { ...written, topic: '' }],
    ['an unknown subject strategy', { ...written, subject: 'TopicNameStrategy' }],
    ['an unknown format', { ...written, format: 'avro' }],
    ['a validator that is no function', { ...written, format: 'JSON', schema: '{}', validator: {} }],
    ['an unknown framing', { ...written, header: 'header' }],
    ['an unknown codec', { ...written, codec: 'fast' }],
  ])('the serializer refuses %s before a request', (_what, options) => {
    const { serializer, sent } = setUp();
    expect(() => serializer(options)).toThrow(expect.objectContaining({ code: 'bad_option' }));
    expect(sent).toEqual([]);
  });

  it.each([
    ['undefined', () => undefined],
    ['a promise', () => Promise.resolve('s')],
    ['an empty text', () => ''],
  ])('a subject function that returns %s is refused before a request', async (_what, subject) => {
    const { serializer, sent } = setUp();
    await expect(serializer({ ...written, subject }).prefetch()).rejects.toMatchObject({
      code: 'bad_option',
      message: expect.stringContaining('the result of the subject function'),
    });
    expect(sent).toEqual([]);
  });

  it('a message that the schema lacks is refused before the schema is registered', async () => {
    const { serializer, sent } = setUp();
    const schema = 'syntax = "proto3"; message A {}';
    const options = { topic: 't', format: 'PROTOBUF', schema, message: 'B', autoRegister: true };
    await expect(serializer(options).prefetch()).rejects.toMatchObject({ code: 'invalid_schema' });
    expect(sent).toEqual([]);
  });

  it('a reference that does not exist is an error of the options, with the next step', async () => {
    const { serializer, sent } = setUp();
    const references = [{ name: 'n.X', subject: 'absent', version: 1 }];
    await expect(serializer({ ...written, references }).prefetch()).rejects.toMatchObject({
      code: 'subject_not_found',
      message: expect.stringContaining('"n.X" (subject absent, version 1)'),
      next: expect.stringContaining('references'),
    });
    expect(sent).toHaveLength(1);
  });
});

describe('options of a deserializer', () => {
  it.each([
    ['an unknown format', { readerSchema: RECORD, format: 'proto' }],
    ['an unknown codec', { codec: 'fast' }],
    ['a version without a subject', { readerVersion: { version: 1 } }],
    ['a subject without a version', { readerVersion: { subject: 's' } }],
    ['a bare version', { readerVersion: 3 }],
    ['a second reader schema', { readerSchema: RECORD, readerVersion: 'writer' }],
  ])('the deserializer refuses %s', (_what, options) => {
    const { deserializer } = setUp();
    expect(() => deserializer(options)).toThrow(expect.objectContaining({ code: 'bad_option' }));
  });

  it('readerVersion writer reads each record with the schema of its writer', async () => {
    const { deserializer, sent } = setUp();
    expect(await deserializer({ readerVersion: 'writer' }).deserialize(Buffer.from([0, 0, 0, 0, 1]))).toEqual(
      {},
    );
    expect(sent).toEqual([expect.stringContaining('/schemas/ids/1')]);
  });

  it.each([
    ['a text', 'text'],
    ['an ArrayBuffer', new ArrayBuffer(9)],
    ['a message of a Kafka client', { value: Buffer.alloc(9) }],
    ['a record whose bytes are a text', { bytes: 'text' }],
  ])('the deserializer refuses %s in place of a record, and reads no tombstone', async (_what, record) => {
    const deserializer = setUp().deserializer({});
    const refused = expect.objectContaining({ code: 'bad_option' });
    await expect(deserializer.deserialize(record as never)).rejects.toEqual(refused);
    await expect(deserializer.deserializeBatch([record as never])).rejects.toEqual(refused);
    expect(() => deserializer.deserializeSync(record as never)).toThrow(refused);
  });
});

describe('settings of the connection', () => {
  const url = 'http://127.0.0.1:1';

  it.each([
    ['no settings', undefined],
    ['an address that is no text', { url: 5 }],
    ['addresses that are no list', { urls: url }],
    ['a time limit below zero', { url, timeoutMs: -1 }],
    ['a number of retries that is none', { url, retries: Number.NaN }],
    ['a user without a password', { url, auth: { user: 'a' } }],
    ['empty credentials', { url, auth: {} }],
    ['a token that is no text', { url, auth: { token: 5 } }],
  ])('a connection with %s is refused', (_what, options) => {
    expect(() => new SchemaRegistry(options as never)).toThrow(
      expect.objectContaining({ code: 'bad_option' }),
    );
  });

  it('an error about credentials quotes none of them', () => {
    const auth = { user: 5, password: 's3cret' };
    expect(() => new SchemaRegistry({ url, auth } as never)).not.toThrow(/s3cret/);
  });
});
