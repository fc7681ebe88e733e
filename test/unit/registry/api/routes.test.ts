import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../../../src/core/log.ts';
import { nodeHttpDriver } from '../../../../src/io/http/node/server.ts';
import type { HttpResponse, HttpRoute, HttpServer } from '../../../../src/io/http/port.ts';
import { registryFallbacks } from '../../../../src/registry/api/answers.ts';
import { registryRoutes } from '../../../../src/registry/api/routes.ts';
import { MemoryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { realClock, turn } from '../../../wait.ts';

const TYPE = 'application/vnd.schemaregistry.v1+json';
const BODY_BYTES_MAX = 100_000;

let server: HttpServer;
let base: string;

beforeAll(async () => {
  const registry = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
  server = await nodeHttpDriver.listen({
    host: '127.0.0.1',
    port: 0,
    routes: registryRoutes(() => registry),
    fallbacks: registryFallbacks(BODY_BYTES_MAX),
    bodyBytesMax: BODY_BYTES_MAX,
    headerBytesMax: 16_384,
    requestTimeoutMs: 30_000,
    keepAliveTimeoutMs: 1000,
    log: silentLogger,
  });
  base = `http://127.0.0.1:${server.port}`;
});
afterAll(() => server.drain(1000));

interface Answer {
  readonly status: number;
  readonly type: string | null;
  readonly body: unknown;
}

async function call(
  method: string,
  path: string,
  body?: unknown,
  headers: Readonly<Record<string, string>> = { 'content-type': TYPE },
): Promise<Answer> {
  const response = await fetch(base + path, {
    method,
    headers,
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  return { status: response.status, type: response.headers.get('content-type'), body: await response.json() };
}

const field = (name: string, type: unknown, rest: Readonly<Record<string, unknown>> = {}): unknown => ({
  name,
  type,
  ...rest,
});
const avro = (...fields: readonly unknown[]): string =>
  JSON.stringify({ type: 'record', name: 'Order', fields });
const V1 = avro(field('id', 'string'), field('amount', 'long'));
const V2 = avro(field('id', 'string'), field('amount', 'long'), field('note', 'string', { default: '' }));
const BREAKING = avro(field('id', 'string'), field('amount', 'string'));
const PROTO = 'syntax = "proto3"; message Order { string id = 1; }';

const error = (status: number, number: number, message: unknown = expect.any(String)): unknown => ({
  status,
  type: TYPE,
  body: { error_code: number, message },
});

describe('long lists', () => {
  it('a long list of schemas is printed in several turns of the event loop', async () => {
    const registry = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
    const count = 12;
    for (let i = 0; i < count; i++)
      await registry.register(
        `s${i}`,
        { text: avro(field(`f${i}`, 'int', { doc: 'x'.repeat(500_000) })) },
        {},
      );
    const list = registryRoutes(() => registry).find(
      ({ method, path }) => method === 'GET' && path === '/schemas',
    ) as HttpRoute;
    const turnsOf = async (query: string): Promise<readonly [number, unknown]> => {
      let body: HttpResponse['body'];
      void Promise.resolve(
        list.handler({
          ...{ method: 'GET', path: '/schemas', params: {}, query: new URLSearchParams(query) },
          ...{
            header: () => [],
            signal: new AbortController().signal,
            remoteAddress: '',
            body: new Uint8Array(),
          },
        }),
      ).then((response) => {
        body = response.body;
      });
      let turns = 0;
      for (; body === undefined; turns++) await turn();
      return [turns, JSON.parse(Buffer.from(body as Uint8Array).toString('utf8'))];
    };
    const [fewTurns, few] = await turnsOf('subjectPrefix=s3');
    const [turns, all] = await turnsOf('');
    expect(turns - fewTurns).toBeGreaterThan(3);
    const versions = all as Array<{ readonly subject: string; readonly schema: string }>;
    expect(versions.map(({ subject }) => subject)).toEqual(registry.subjects({ prefix: '', deleted: 'no' }));
    expect(versions.find(({ subject }) => subject === 's3')).toEqual((few as readonly unknown[])[0]);
    await registry.close();
  });
});

describe('registration and reading', () => {
  it('the registry registers, repeats, looks up, lists and reads in the shapes of the protocol', async () => {
    expect(await call('POST', '/subjects/orders-value/versions', { schema: V1 })).toEqual({
      status: 200,
      type: TYPE,
      body: { id: 1 },
    });
    expect(
      await call('POST', '/subjects/orders-value/versions', {
        schema: V1,
        schemaType: 'AVRO',
        unknownProperty: {},
      }),
    ).toMatchObject({ body: { id: 1 } });
    expect(
      await call('POST', '/subjects/orders-value/versions', { schema: V2, references: [], metadata: null }),
    ).toMatchObject({ body: { id: 2 } });
    expect(await call('POST', '/subjects/other/versions', { schema: V2 })).toMatchObject({ body: { id: 2 } });
    expect(await call('GET', '/subjects')).toMatchObject({ body: ['orders-value', 'other'] });
    expect(await call('GET', '/subjects?subjectPrefix=ot')).toMatchObject({ body: ['other'] });
    expect(await call('GET', '/subjects/orders-value/versions')).toMatchObject({ body: [1, 2] });
    const second = { subject: 'orders-value', version: 2, id: 2, schemaType: 'AVRO', schema: V2 };
    for (const version of ['2', 'latest', '-1']) {
      expect(await call('GET', `/subjects/orders-value/versions/${version}`)).toMatchObject({
        status: 200,
        body: second,
      });
    }
    expect(await call('POST', '/subjects/orders-value', { schema: V2 })).toMatchObject({
      status: 200,
      body: second,
    });
    expect((await call('GET', '/schemas/ids/2')).body).toEqual({ schemaType: 'AVRO', schema: V2 });
    expect((await call('GET', '/schemas/ids/2?subject=other')).body).toEqual({
      schemaType: 'AVRO',
      schema: V2,
      subject: 'other',
      version: 1,
    });
    expect((await call('GET', '/schemas/ids/2/versions')).body).toEqual([
      { subject: 'orders-value', version: 2 },
      { subject: 'other', version: 1 },
    ]);
    expect(await (await fetch(`${base}/subjects/orders-value/versions/1/schema`)).text()).toBe(V1);
    expect(await (await fetch(`${base}/schemas/ids/1/schema`)).text()).toBe(V1);
    expect((await call('GET', '/schemas/types')).body).toEqual(expect.arrayContaining(['AVRO', 'PROTOBUF']));
  });

  it('the registry accepts Protobuf and answers with its type', async () => {
    const { body } = await call('POST', '/subjects/proto-value/versions', {
      schema: PROTO,
      schemaType: 'PROTOBUF',
    });
    const { id } = body as { id: number };
    expect((await call('GET', `/schemas/ids/${id}`)).body).toMatchObject({
      schemaType: 'PROTOBUF',
      schema: expect.stringContaining('message Order'),
    });
  });

  it('the registry decodes the subject of the path, slashes included', async () => {
    const name = encodeURIComponent('a/b:{c} "ü" %');
    expect(await call('POST', `/subjects/${name}/versions`, { schema: V1 })).toMatchObject({
      status: 200,
      body: { id: 1 },
    });
    expect(await call('GET', `/subjects/${name}/versions`)).toMatchObject({ body: [1] });
  });
});

describe('refusals', () => {
  it('a 409 names the field and the reason', async () => {
    await call('POST', '/subjects/refused/versions', { schema: V1 });
    const answer = await call('POST', '/subjects/refused/versions', { schema: BREAKING });
    expect(answer).toEqual(
      error(409, 409, expect.stringMatching(/"refused".*BACKWARD against version 1.*Order\.amount/)),
    );
    expect(await call('GET', '/subjects/refused/versions')).toMatchObject({ body: [1] });
  });

  it('a registration gets 409 where only a deleted version refuses it', async () => {
    const proto = (type: string): unknown => ({
      schema: `syntax = "proto3"; message M { ${type} a = 1; }`,
      schemaType: 'PROTOBUF',
    });
    await call('POST', '/subjects/gone/versions', proto('string'));
    for (const query of ['', '?permanent=true']) {
      await call('DELETE', `/subjects/gone${query}`);
      expect(await call('POST', '/subjects/gone/versions', proto('int64'))).toEqual(
        error(409, 409, expect.stringMatching(/"gone".*PROTO_NUMBER_RETYPED/)),
      );
    }
  });

  it.each<readonly [string, string, string, unknown, number, number]>([
    ['a text that is not a schema', 'POST', '/subjects/x/versions', { schema: '{"type":"rec"}' }, 422, 42201],
    ['an unknown format', 'POST', '/subjects/x/versions', { schema: '{}', schemaType: 'XML' }, 422, 42201],
    ['an empty schema', 'POST', '/subjects/x/versions', { schema: '' }, 422, 42201],
    ['no schema', 'POST', '/subjects/x/versions', {}, 422, 42201],
    [
      'references',
      'POST',
      '/subjects/x/versions',
      { schema: V1, references: [{ name: 'n', subject: 's', version: 1 }] },
      422,
      42201,
    ],
    ['an id of its own', 'POST', '/subjects/x/versions', { schema: V1, id: 7 }, 422, 42205],
    ['a control character', 'POST', '/subjects/a%07b/versions', { schema: V1 }, 422, 42208],
    ['a body that is not JSON', 'POST', '/subjects/x/versions', '{"schema":', 400, 400],
    ['a body that is not an object', 'POST', '/subjects/x/versions', '[]', 400, 400],
    [
      'a body that is too large',
      'POST',
      '/subjects/x/versions',
      { schema: 'x'.repeat(BODY_BYTES_MAX) },
      413,
      413,
    ],
    ['an unknown subject', 'GET', '/subjects/unknown/versions', undefined, 404, 40401],
    ['an unknown subject in a lookup', 'POST', '/subjects/unknown', { schema: V1 }, 404, 40401],
    ['an unknown content in a lookup', 'POST', '/subjects/orders-value', { schema: BREAKING }, 404, 40403],
    ['an unknown version', 'GET', '/subjects/orders-value/versions/99', undefined, 404, 40402],
    ['an invalid version', 'GET', '/subjects/orders-value/versions/0', undefined, 422, 42202],
    ['a version that is a word', 'GET', '/subjects/orders-value/versions/newest', undefined, 422, 42202],
    ['an unknown id', 'GET', '/schemas/ids/4000', undefined, 404, 40403],
    ['an invalid id', 'GET', '/schemas/ids/abc', undefined, 404, 404],
    ['an unknown level', 'PUT', '/config', { compatibility: 'SIDEWAYS' }, 422, 42203],
    ['a level that is not set', 'GET', '/config/orders-value', undefined, 404, 40408],
    [
      'a comparison with an unknown version',
      'POST',
      '/compatibility/subjects/orders-value/versions/9',
      { schema: V1 },
      404,
      40402,
    ],
    ['an unknown path', 'GET', '/nothing/here', undefined, 404, 404],
    ['another method', 'PATCH', '/config', undefined, 405, 405],
  ])('the registry refuses %s', async (_what, method, path, body, status, number) => {
    expect(await call(method, path, body)).toEqual(error(status, number));
  });

  it('the registry negotiates content types', async () => {
    expect(await call('GET', '/subjects', undefined, { accept: 'text/html' })).toEqual(
      error(406, 406, 'HTTP 406 Not Acceptable'),
    );
    expect(await call('GET', '/subjects', undefined, { accept: 'application/json' })).toMatchObject({
      status: 200,
      type: 'application/json',
    });
    expect(await call('GET', '/subjects', undefined, { accept: 'text/html, */*;q=0.1' })).toMatchObject({
      status: 200,
      type: TYPE,
    });
    expect(
      await call('POST', '/subjects/x/versions', { schema: V1 }, { 'content-type': 'text/plain' }),
    ).toEqual(error(415, 415, 'HTTP 415 Unsupported Media Type'));
    expect(
      await call(
        'POST',
        '/subjects/ct/versions',
        { schema: V1 },
        { 'content-type': 'application/json; charset=utf-8' },
      ),
    ).toMatchObject({ status: 200 });
  });
});

describe('compatibility and levels', () => {
  it('a compatibility check against one version answers with messages on demand', async () => {
    await call('POST', '/subjects/c/versions', { schema: V1 });
    const path = '/compatibility/subjects/c/versions';
    expect((await call('POST', `${path}/latest`, { schema: V2 })).body).toEqual({ is_compatible: true });
    expect((await call('POST', `${path}/1`, { schema: BREAKING })).body).toEqual({ is_compatible: false });
    expect((await call('POST', `${path}/1?verbose=true`, { schema: BREAKING })).body).toEqual({
      is_compatible: false,
      messages: [
        expect.stringMatching(/cannot read long at Order\.amount \(AVRO_TYPE_CHANGED\)/),
        '{oldSchemaVersion: 1}',
        `{oldSchema: '${V1}'}`,
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
      ],
      findings: [expect.objectContaining({ rule: 'AVRO_TYPE_CHANGED' })],
    });
    expect((await call('POST', `${path}?verbose=true`, { schema: BREAKING })).body).toMatchObject({
      is_compatible: false,
    });
    expect(
      (await call('POST', '/compatibility/subjects/unknown/versions/latest', { schema: V1 })).body,
    ).toEqual({ is_compatible: true });
    expect(await call('POST', `${path}/latest`, { schema: '{' })).toEqual(error(422, 42201));
    expect((await call('POST', `${path}/latest?verbose=true`, { schema: '{' })).body).toMatchObject({
      is_compatible: false,
      messages: [expect.stringMatching(/is not JSON/)],
    });
  });

  it('PUT echoes compatibility, GET answers compatibilityLevel, and the level decides', async () => {
    expect((await call('GET', '/config')).body).toEqual({ compatibilityLevel: 'BACKWARD' });
    expect((await call('PUT', '/config/leveled', { compatibility: 'NONE' })).body).toEqual({
      compatibility: 'NONE',
    });
    expect((await call('GET', '/config/leveled')).body).toEqual({ compatibilityLevel: 'NONE' });
    expect((await call('GET', '/config/orders-value?defaultToGlobal=true')).body).toEqual({
      compatibilityLevel: 'BACKWARD',
    });
    await call('POST', '/subjects/leveled/versions', { schema: V1 });
    expect(await call('POST', '/subjects/leveled/versions', { schema: BREAKING })).toMatchObject({
      status: 200,
    });
    expect((await call('GET', '/mode')).body).toEqual({ mode: 'READWRITE' });
  });
});
