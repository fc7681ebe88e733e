/** The layers between a route and its handler: access control, forwarding to the leader, reading of
 *  new records, and the state during a start. */
import { describe, expect, it, vi } from 'vitest';
import { withHeaders } from '../../../../src/access/refusal.ts';
import type { Access, Need, RequestGate } from '../../../../src/access/request.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import type { HttpRequest, HttpResponse } from '../../../../src/io/http/port.ts';
import {
  type RegistryApiOptions,
  registryDescription,
  registryRoutes,
} from '../../../../src/registry/api/routes.ts';
import { registryError } from '../../../../src/registry/errors.ts';
import { MemoryLog } from '../../../../src/registry/store/log.ts';
import { Registry } from '../../../../src/registry/store/registry.ts';
import { Deferred } from '../../../../src/registry/worker/checks.ts';
import { realClock } from '../../../wait.ts';

const SCHEMA = '{"type":"record","name":"R","fields":[]}';

function requestOf(params: Record<string, string>, query = '', body = '', user = ''): HttpRequest {
  const headers: Record<string, readonly string[]> = { 'content-type': ['application/json'], user: [user] };
  return {
    method: '',
    path: '',
    params,
    query: new URLSearchParams(query),
    header: (name) => headers[name] ?? [],
    body: Buffer.from(body),
    signal: new AbortController().signal,
    remoteAddress: '',
  };
}

async function setUp(options: RegistryApiOptions = {}) {
  const registry = await Registry.open(new MemoryLog(), silentLogger, { clock: realClock });
  const routes = registryRoutes(() => registry, options);
  const call = async (
    route: string,
    params: Record<string, string>,
    rest: { readonly query?: string; readonly body?: string; readonly user?: string } = {},
  ): Promise<HttpResponse & { readonly document: unknown }> => {
    const [method, path] = route.split(' ');
    const found = routes.find((one) => one.method === method && one.path === path);
    if (found === undefined) throw new Error(`no route ${route}`);
    const response = await found.handler(requestOf(params, rest.query, rest.body, rest.user));
    return { ...response, document: JSON.parse(Buffer.from(response.body ?? '').toString()) as unknown };
  };
  return { registry, routes, call };
}

/** Rights by user: operation and prefix of a subject. */
const RIGHTS: Readonly<Record<string, ReadonlyArray<readonly [string, string]>>> = {
  alice: [
    ['read', 'a-'],
    ['write', 'a-'],
  ],
  carol: [
    ['write', 'nick'],
    ['write', ':.x:'],
    ['write', ':.y:'],
    ['read', ':.x:'],
  ],
  root: [
    ['read', ''],
    ['write', ''],
    ['delete', ''],
    ['admin', ''],
  ],
};

function gateOf(needs: Need[]): RequestGate {
  const may = (user: string, { operation, subject, anyOf }: Need): boolean =>
    (anyOf ?? [subject ?? 'a-']).some((one) =>
      (RIGHTS[user] ?? []).some(([right, begin]) => right === operation && one.startsWith(begin)),
    );
  const gate: RequestGate = {
    authorise: async (request, need) => {
      needs.push(need);
      const user = request.header('user')[0] ?? '';
      if (user === '')
        throw registryError('unauthenticated', 'who are you', withHeaders({ 'www-authenticate': 'Basic' }));
      const access: Access = {
        principal: user,
        may: (one) => may(user, one),
        mayRead: (subject) => may(user, { operation: 'read', subject }),
        mayReadContext: (context) => user === 'root' || context === '.',
      };
      gate.demand(request, access, need);
      return access;
    },
    demand: (_request, access, need) => {
      if (!access.may(need)) throw registryError('forbidden', `${access.principal} may not`);
    },
  };
  return gate;
}

describe('access gate of the registry', () => {
  it('the gate is called with the operation and the subject in its canonical form', async () => {
    const needs: Need[] = [];
    const { call } = await setUp({ gate: gateOf(needs) });
    const user = 'root';
    const body = JSON.stringify({ schema: SCHEMA });
    await call('POST /subjects/{subject}/versions', { subject: 'a-1' }, { body, user });
    await call('POST /subjects/{subject}/versions', { subject: ':.:a-1' }, { body, user });
    await call(
      'POST /contexts/{context}/subjects/{subject}/versions',
      { context: 'x', subject: 'a' },
      { body, user },
    );
    await call('GET /contexts/{context}/config', { context: '.x' }, { user });
    await call(
      'PUT /config/{subject}',
      { subject: ':.__GLOBAL:' },
      { body: '{"compatibility":"NONE"}', user },
    );
    await call('DELETE /subjects/{subject}', { subject: 'a-1' }, { user });
    await call('GET /schemas/ids/{id}', { id: '1' }, { user });
    expect(needs).toEqual([
      { operation: 'write', subject: 'a-1' },
      { operation: 'write', subject: 'a-1' },
      { operation: 'write', subject: ':.x:a' },
      { operation: 'read', subject: ':.x:' },
      { operation: 'admin' },
      { operation: 'delete', subject: 'a-1' },
      { operation: 'read' },
    ]);
  });

  it('a gate refusal has the error shape and its headers, and precedes any other answer', async () => {
    const { call } = await setUp({ gate: gateOf([]) });
    const refused = await call('GET /schemas/ids/{id}', { id: '77' });
    expect(refused).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': 'Basic', 'cache-control': 'no-cache, no-store, must-revalidate' },
      document: { error_code: 40101, message: 'who are you' },
    });
    expect(
      (await call('DELETE /subjects/{subject}', { subject: 'a-1' }, { user: 'alice' })).document,
    ).toMatchObject({
      error_code: 40301,
    });
    expect((await call('GET /', {})).document).toEqual({});
  });

  it('a caller sees only readable subjects in lists, ids, guids and references', async () => {
    const { call, registry } = await setUp({ gate: gateOf([]) });
    const secret = '{"type":"record","name":"Secret","fields":[]}';
    await registry.register('a-1', { text: SCHEMA }, {});
    await registry.register('b-1', { text: secret }, {});
    await registry.register('b-2', { text: SCHEMA }, {});
    const user = 'alice';
    expect((await call('GET /subjects', {}, { user })).document).toEqual(['a-1']);
    expect((await call('GET /schemas', {}, { user })).document).toMatchObject([{ subject: 'a-1' }]);
    expect((await call('GET /schemas/ids/{id}', { id: '1' }, { user })).status).toBe(200);
    expect((await call('GET /schemas/ids/{id}/subjects', { id: '1' }, { user })).document).toEqual(['a-1']);
    expect((await call('GET /schemas/ids/{id}/versions', { id: '1' }, { user })).document).toEqual([
      { subject: 'a-1', version: 1 },
    ]);
    for (const rest of [{}, { query: 'subject=b-1' }, { query: 'subject=a-1' }])
      expect((await call('GET /schemas/ids/{id}', { id: '2' }, { user, ...rest })).status).toBe(403);
    expect((await call('GET /schemas/ids/{id}/schema', { id: '2' }, { user })).status).toBe(403);
    const { guid } = registry.schema(2);
    expect((await call('GET /schemas/guids/{guid}', { guid }, { user })).status).toBe(403);
    expect((await call('GET /schemas/guids/{guid}/ids', { guid }, { user })).status).toBe(403);
    const body = JSON.stringify({
      schema: '{"type":"record","name":"Spy","fields":[{"name":"f","type":"Secret"}]}',
      references: [{ name: 'Secret', subject: 'b-1', version: 1 }],
    });
    for (const route of ['POST /subjects/{subject}/versions', 'POST /subjects/{subject}'])
      expect((await call(route, { subject: 'a-2' }, { user, body })).status).toBe(403);
    await registry.setConfig('a-alias', { alias: 'b-1' });
    expect(
      (
        await call(
          'GET /subjects/{subject}/versions/{version}',
          { subject: 'a-alias', version: '1' },
          { user },
        )
      ).status,
    ).toBe(403);
  });
});

it('the rights to references are checked again when the alias of a request was moved', async () => {
  const { call, registry } = await setUp({ gate: gateOf([]) });
  const leaf = '{"type":"record","name":"Leaf","fields":[]}';
  for (const context of ['x', 'y']) await registry.register(`:.${context}:leaf`, { text: leaf }, {});
  await registry.setConfig('nick', { alias: ':.x:t' });
  const body = JSON.stringify({
    schema: '{"type":"record","name":"Tree","fields":[{"name":"f","type":"Leaf"}]}',
    references: [{ name: 'Leaf', subject: 'leaf', version: 1 }],
  });
  const ask = (): ReturnType<typeof call> =>
    call('POST /subjects/{subject}/versions', { subject: 'nick' }, { body, user: 'carol' });
  vi.spyOn(registry, 'register').mockImplementationOnce(async () => {
    await registry.setConfig('nick', { alias: ':.y:t' });
    throw new Deferred(async () => {});
  });
  expect(await ask()).toMatchObject({ status: 403, document: { error_code: 40301 } });
  expect(registry.counts().versions).toBe(2);
  await registry.setConfig('nick', { alias: ':.x:t' });
  expect((await ask()).status).toBe(200);
});

describe('forwarding to the leader', () => {
  it('only requests that change something are forwarded to the leader', async () => {
    const forwarded: HttpResponse = { status: 200, body: '{"id":9}' };
    const writeAtLeader = vi.fn(async () => forwarded);
    const { call, registry } = await setUp({ writeAtLeader, masterAvailable: () => false });
    const body = JSON.stringify({ schema: SCHEMA });
    expect((await call('POST /subjects/{subject}/versions', { subject: 's' }, { body })).document).toEqual({
      id: 9,
    });
    expect(registry.counts().versions).toBe(0);
    await call('DELETE /subjects/{subject}', { subject: 's' });
    await call('PUT /mode', {}, { body: '{"mode":"READONLY"}' });
    expect(writeAtLeader).toHaveBeenCalledTimes(3);
    await call('GET /subjects', {});
    await call('POST /subjects/{subject}', { subject: 's' }, { body });
    await call('POST /compatibility/subjects/{subject}/versions', { subject: 's' }, { body });
    expect(writeAtLeader).toHaveBeenCalledTimes(3);
    expect((await call('GET /master_available', {})).document).toEqual({ master_available: false });
    const writes = Object.values(
      registryDescription()['paths'] as Record<string, Record<string, { 'x-right': string }>>,
    )
      .flatMap((methods) => Object.values(methods))
      .filter((operation) => ['write', 'delete', 'admin'].includes(operation['x-right']));
    expect(writes.length).toBeGreaterThan(10);
  });

  it('the leader learns why its own attempt failed', async () => {
    let heard: unknown;
    const { call, registry } = await setUp({
      writeAtLeader: async (_request, here) => {
        try {
          return await here();
        } catch (thrown) {
          heard = thrown;
          throw thrown;
        }
      },
    });
    vi.spyOn(registry, 'register').mockRejectedValue(registryError('not_leader', 'lost it'));
    const body = JSON.stringify({ schema: SCHEMA });
    const answer = await call('POST /subjects/{subject}/versions', { subject: 's' }, { body });
    expect(heard).toMatchObject({ code: 'not_leader' });
    expect(answer).toMatchObject({ status: 500, document: { error_code: 50003, message: 'lost it' } });
  });
});

describe('records of other instances', () => {
  it('new records are read before any answer that can change, and before an id is reported as unknown', async () => {
    const { call, registry } = await setUp();
    const fresh = vi.spyOn(registry, 'fresh');
    await registry.register('s', { text: SCHEMA }, {});
    await call('GET /schemas/ids/{id}', { id: '1' });
    await call('GET /schemas/types', {});
    expect(fresh).not.toHaveBeenCalled();
    await call('GET /subjects/{subject}/versions', { subject: 's' });
    expect(fresh).toHaveBeenCalledTimes(1);
    fresh.mockImplementation(async () => {
      await registry.register('s', { text: '"int"' }, {}).catch(() => {});
      await registry.register('t', { text: '"long"' }, {});
    });
    expect((await call('GET /schemas/ids/{id}', { id: '2' })).document).toMatchObject({ schema: '"long"' });
  });

  it('records that cannot be read are an error of the store', async () => {
    const { call, registry } = await setUp();
    vi.spyOn(registry, 'fresh').mockRejectedValue(registryError('store_timeout', 'the log does not answer'));
    expect(await call('GET /subjects', {})).toMatchObject({
      status: 500,
      document: { error_code: 50002, message: 'the log does not answer' },
    });
  });
});

it('a registry that still reads its store answers with that reason', async () => {
  const routes = registryRoutes(() => {
    throw registryError('starting', 'the registry still reads its store');
  });
  for (const route of routes.filter(({ path }) => path !== '/')) {
    const response = await route.handler(requestOf({}));
    expect([response.status, JSON.parse(String(response.body))]).toEqual([
      503,
      { error_code: 503, message: 'the registry still reads its store' },
    ]);
  }
});

describe('admission under access rules', () => {
  const path = '/subjects/{subject}/versions';
  const body = JSON.stringify({ schema: SCHEMA });

  it('a request is refused by its head, before a body is read', async () => {
    const needs: Need[] = [];
    const { routes } = await setUp({ gate: gateOf(needs) });
    const route = routes.find((one) => one.method === 'POST' && one.path === path);
    const head = requestOf({ subject: 'a-value' });
    expect(await route?.admit?.(head)).toMatchObject({
      status: 401,
      headers: { 'www-authenticate': 'Basic' },
    });
    expect(needs).toEqual([{ operation: 'write', subject: 'a-value' }]);
  });

  it('a request that was admitted by its head is not checked again with its body', async () => {
    const needs: Need[] = [];
    const { routes } = await setUp({ gate: gateOf(needs) });
    const route = routes.find((one) => one.method === 'POST' && one.path === path);
    const request = requestOf({ subject: 'a-value' }, '', body, 'alice');
    expect(await route?.admit?.(request)).toBe(undefined);
    expect((await route?.handler(request))?.status).toBe(200);
    expect(needs).toEqual([{ operation: 'write', subject: 'a-value' }]);
    expect((await route?.handler(requestOf({ subject: 'a-value' }, '', body)))?.status).toBe(401);
  });

  it('routes have no admission where no gate is configured', async () => {
    const { routes } = await setUp();
    expect(routes.filter(({ admit }) => admit !== undefined)).toEqual([]);
  });
});

describe('described names', () => {
  const schemaOf = (path: string, method: string, name: string) => {
    const { paths } = registryDescription() as {
      readonly paths: Record<string, Record<string, { readonly parameters: readonly Parameter[] }>>;
    };
    const found = paths[path]?.[method]?.parameters.find((one) => one.name === name);
    if (found === undefined) throw new Error(`${method} ${path} has no ${name}`);
    return found.schema;
  };
  interface Parameter {
    readonly name: string;
    readonly schema: {
      readonly pattern: string;
      readonly maxLength?: number;
      readonly not?: { readonly enum: readonly string[] };
    };
  }
  const names = [
    'a',
    'orders-value',
    'zażółć',
    ' ',
    '.staging',
    'a\u0000b',
    '\u001f',
    'a\u007f',
    '\u0080',
    'x\u009f',
    '\u00a0',
  ];

  it('the described pattern of a subject admits exactly the subjects that settings may have', async () => {
    const { call } = await setUp();
    const { pattern, maxLength = 0 } = schemaOf('/config/{subject}', 'put', 'subject');
    for (const subject of [...names, 'x'.repeat(1024), 'x'.repeat(1025)]) {
      const { status } = await call(
        'PUT /config/{subject}',
        { subject },
        { body: '{"compatibility":"NONE"}' },
      );
      const described = new RegExp(pattern, 'u').test(subject) && subject.length <= maxLength;
      expect([subject.slice(0, 20), status]).toEqual([subject.slice(0, 20), described ? 200 : 422]);
    }
  });

  it('the described pattern of a context admits exactly the contexts that can be listed', async () => {
    const { call } = await setUp();
    const { pattern, not } = schemaOf('/contexts/{context}/subjects', 'get', 'context');
    for (const context of [...names, ':.staging:', 'a:b', '*', ':*:', '.', '::a']) {
      const { status } = await call('GET /contexts/{context}/subjects', { context });
      const described = new RegExp(pattern, 'u').test(context) && not?.enum.includes(context) !== true;
      expect([context, status]).toEqual([context, described ? 200 : 422]);
    }
  });
});
