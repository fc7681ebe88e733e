/** Answers that the clients of several threads share: one request for each, kept while it is valid.
 */
import { MessageChannel } from 'node:worker_threads';
import { afterEach, describe, expect, it } from 'vitest';
import { Metrics } from '../../../src/core/metrics.ts';
import { SchemaRegistry } from '../../../src/registry/index.ts';
import { RegistryClient } from '../../../src/serde/client.ts';
import { serdeError } from '../../../src/serde/errors.ts';
import type { RegistryRequests } from '../../../src/serde/requests.ts';
import { SharedRequests, ThreadRequests } from '../../../src/serde/shared-client.ts';
import type { TransportAnswer } from '../../../src/serde/transport.ts';
import { realClock, turn, until } from '../../wait.ts';

const SCHEMA = JSON.stringify({ type: 'record', name: 'R', fields: [] });
const found: TransportAnswer = { status: 200, body: JSON.stringify({ schema: SCHEMA, id: 7 }) };
const unknown: TransportAnswer = { status: 404, body: '{"error_code":40403,"message":"not found"}' };
const UNKNOWN_MS = 1000;

const closing: Array<() => void> = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

function setUp(answer: (path: string, asked: number) => TransportAnswer | Error = () => found) {
  const asked: string[] = [];
  let nowMs = 0;
  const clock = { ...realClock, monotonicMs: () => nowMs };
  const requests: RegistryRequests = {
    async ask(_operation, method, path) {
      asked.push(`${method} ${path}`);
      await turn();
      const given = answer(path, asked.length);
      if (given instanceof Error) throw given;
      return given;
    },
  };
  const shared = new SharedRequests({ requests, clock, unknownForMs: UNKNOWN_MS });
  /** Client as of another thread. */
  const thread = () => {
    const { port1, port2 } = new MessageChannel();
    shared.serve(port1);
    closing.push(() => port1.close());
    const options = { clock, metrics: new Metrics(), unknownForMs: UNKNOWN_MS };
    const client = new RegistryClient({ ...options, requests: new ThreadRequests(port2) });
    return { client, close: () => port1.close() };
  };
  const wait = (ms: number): void => {
    nowMs += ms;
  };
  return { asked, shared, thread, wait };
}

const codeOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => undefined,
    (thrown: { code?: string }) => thrown.code,
  );

describe('shared requests', () => {
  it('clients share one request for the schema of an id, and for the id of a text', async () => {
    const { asked, thread } = setUp();
    const clients = Array.from({ length: 4 }, () => thread().client);
    const schemas = await Promise.all(clients.map((client) => client.schemaById(7)));
    expect(schemas.map((schema) => schema.text)).toEqual(clients.map(() => SCHEMA));
    const ids = await Promise.all(clients.map((client) => client.register('s', 'AVRO', SCHEMA)));
    expect(ids).toEqual([7, 7, 7, 7]);
    await thread().client.schemaById(7);
    await thread().client.register('s', 'AVRO', SCHEMA);
    expect(asked).toEqual(['GET /schemas/ids/7', 'POST /subjects/s/versions']);
    await thread().client.register('s', 'AVRO', '"string"');
    expect(asked).toHaveLength(3);
  });

  it('the schema of a version answers for its id in the context of the version alone', async () => {
    const staged = JSON.stringify({ type: 'record', name: 'Staged', fields: [] });
    const version = { subject: ':.c:a', version: 1, id: 7, schema: staged };
    const { asked, thread } = setUp((path) =>
      path.startsWith('/subjects/') ? { status: 200, body: JSON.stringify(version) } : found,
    );
    expect(await thread().client.version(':.c:a', '1')).toMatchObject({ id: 7, context: '.c' });
    expect((await thread().client.schemaById(7, '.c')).text).toBe(staged);
    expect(asked).toEqual(['GET /subjects/%3A.c%3Aa/versions/1']);
    expect((await thread().client.schemaById(7)).text).toBe(SCHEMA);
    expect(asked).toHaveLength(2);
  });

  it('an unknown id is requested again after its time', async () => {
    const { asked, thread, wait } = setUp((_path, count) => (count === 1 ? unknown : found));
    expect(await codeOf(thread().client.schemaById(9))).toBe('schema_not_found');
    expect(await codeOf(thread().client.schemaById(9))).toBe('schema_not_found');
    expect(asked).toHaveLength(1);
    wait(UNKNOWN_MS);
    await thread().client.schemaById(9);
    expect(asked).toHaveLength(2);
  });

  it('an answer that may change is requested by each client', async () => {
    const { asked, thread } = setUp(() => ({ status: 200, body: '[1]' }));
    await Promise.all([thread(), thread()].map(({ client }) => client.versions('s', false)));
    expect(asked).toHaveLength(2);
  });

  it('a failure reaches each client with its code, and is not kept', async () => {
    const failure = serdeError('registry_unavailable', 'no answer', { next: 'start it' });
    const { asked, thread } = setUp((_path, count) => (count === 1 ? failure : found));
    const [a, b] = [thread().client, thread().client];
    const codes = await Promise.all([a, b].map((client) => codeOf(client.schemaById(1))));
    expect(codes).toEqual(['registry_unavailable', 'registry_unavailable']);
    expect(asked).toHaveLength(1);
    expect((await a.schemaById(1)).text).toBe(SCHEMA);
  });

  it('kept answers are bounded in bytes: the one used longest ago is requested again', async () => {
    const body = 'x'.repeat(10 << 20);
    const { asked, shared } = setUp(() => ({ status: 200, body }));
    const ask = (id: number) => shared.ask('schema_by_id', 'GET', `/schemas/ids/${id}`);
    for (const id of [1, 2, 3, 1, 4]) await ask(id);
    expect(asked).toHaveLength(4);
    await ask(1);
    expect(asked).toHaveLength(4);
    await ask(2);
    expect(asked).toHaveLength(5);
  });

  it('answers about unknown ids are bounded', async () => {
    const body = JSON.stringify({ error_code: 40403, message: 'm'.repeat(1 << 20) });
    const { asked, shared } = setUp(() => ({ status: 404, body }));
    for (const id of [1, 2, 3, 1]) await shared.ask('schema_by_id', 'GET', `/schemas/ids/${id}`);
    expect(asked).toHaveLength(4);
  });

  it('requests fail once the main thread has closed the channel', async () => {
    let release = (): void => {};
    const asked: string[] = [];
    const gate = new Promise<void>((resolve) => {
      release = resolve;
    });
    const requests: RegistryRequests = {
      async ask(_operation, _method, path) {
        asked.push(path);
        await gate;
        return found;
      },
    };
    const shared = new SharedRequests({ requests, clock: realClock, unknownForMs: UNKNOWN_MS });
    const { port1, port2 } = new MessageChannel();
    shared.serve(port1);
    const thread = new ThreadRequests(port2);
    const waiting = codeOf(thread.ask('schema_by_id', 'GET', '/schemas/ids/1'));
    await until('a request', () => asked.length === 1);
    port1.close();
    expect(await waiting).toBe('closed');
    expect(await codeOf(thread.ask('schema_by_id', 'GET', '/schemas/ids/1'))).toBe('closed');
    release();
  });
});

describe('SchemaRegistry of a thread', () => {
  it('the registry of a thread takes no settings of the connection, and makes no ports', () => {
    const { port1, port2 } = new MessageChannel();
    closing.push(() => port1.close());
    expect(() => new SchemaRegistry({ port: port2, url: 'http://127.0.0.1:1' })).toThrow(
      'url has no effect beside port',
    );
    expect(() => new SchemaRegistry({ port: port2 }).threadPort()).toThrow('makes no ports');
  });
});
