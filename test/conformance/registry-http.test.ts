/** Every operation of the registry's HTTP interface. Each answer is validated against the served
 *  description. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { registryDescription, registryRoutes } from '../../src/registry/api/routes.ts';
import {
  Conformance,
  field,
  ORDER_1,
  ORDER_2,
  ORDER_BROKEN,
  PROTO,
  record,
  TYPE,
} from './registry-http-kit.ts';

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start({ version: '1.2.3', clusterId: 'conformance' });
});
afterAll(() => api.close());

const get = async (path: string): Promise<unknown> => {
  const answer = await api.call('GET', path);
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
};
const send = async (method: string, path: string, body?: unknown): Promise<unknown> => {
  const answer = await api.call(method, path, { body });
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
};

describe('OpenAPI description', () => {
  it('the description equals the route table and names every route exactly', () => {
    expect(api.description).toEqual(
      JSON.parse(JSON.stringify(registryDescription({ version: '1.2.3', clusterId: 'conformance' }))),
    );
    const described = Object.entries(api.description.paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const routes = registryRoutes(() => api.registry).map(({ method, path }) => `${method} ${path}`);
    expect(described.sort()).toEqual(routes.sort());
    expect(new Set(described).size).toBe(described.length);
  });

  it('the description is OpenAPI 3.1 with unique ids, matching path parameters and resolvable references', () => {
    expect(api.description).toMatchObject({ openapi: '3.1.0', info: { version: '1.2.3' } });
    const ids = new Set<string>();
    for (const [path, methods] of Object.entries(api.description.paths)) {
      for (const operation of Object.values(methods)) {
        expect(ids.has(operation.operationId), operation.operationId).toBe(false);
        ids.add(operation.operationId);
        const inPath = operation.parameters.filter((one) => one.in === 'path').map(({ name }) => name);
        expect(inPath).toEqual([...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]));
        expect(Object.keys(operation.responses)).toContain('200');
      }
    }
    const names = Object.keys(api.description.components.schemas);
    for (const [, name] of JSON.stringify(api.description).matchAll(/#\/components\/schemas\/(\w+)"/g))
      expect(names).toContain(name);
  });
});

describe('subjects and versions', () => {
  it('the registry registers a schema once, repeats its answer and counts versions from 1', async () => {
    expect(await send('POST', '/subjects/orders-value/versions', { schema: ORDER_1 })).toEqual({ id: 1 });
    expect(
      await send('POST', '/subjects/orders-value/versions?normalize=false', {
        schema: ORDER_1,
        schemaType: 'AVRO',
        references: [],
        metadata: null,
        ruleSet: null,
        propagateSchemaTags: false,
      }),
    ).toEqual({ id: 1 });
    expect(await send('POST', '/subjects/orders-value/versions', { schema: ORDER_2, version: -1 })).toEqual({
      id: 2,
    });
    expect(await send('POST', '/subjects/other/versions', { schema: ORDER_2 })).toEqual({ id: 2 });
    expect(await get('/subjects')).toEqual(['orders-value', 'other']);
    expect(await get('/subjects?subjectPrefix=or')).toEqual(['orders-value']);
    expect(await get('/subjects?subjectPrefix=%3A*%3A')).toEqual(['orders-value', 'other']);
    expect(await get('/subjects/orders-value/versions')).toEqual([1, 2]);
    const second = { subject: 'orders-value', version: 2, id: 2, schemaType: 'AVRO', schema: ORDER_2 };
    for (const version of ['2', 'latest', '-1'])
      expect(await get(`/subjects/orders-value/versions/${version}`)).toEqual(second);
    expect(await send('POST', '/subjects/orders-value', { schema: ORDER_2 })).toEqual(second);
    expect(
      await send('POST', '/subjects/orders-value?normalize=true&deleted=true', { schema: ORDER_2 }),
    ).toEqual(second);
  });

  it('the registry accepts a schema as a raw body', async () => {
    const raw = { 'content-type': 'application/octet-stream' };
    const path = '/subjects/raw-value/versions';
    for (const headers of [raw, { 'content-type': TYPE }, { 'content-type': 'application/json' }])
      expect((await api.call('POST', path, { body: ORDER_1, headers })).body).toEqual({ id: 1 });
    expect((await api.call('POST', path, { body: Buffer.from(ORDER_1), headers: {} })).body).toEqual({
      id: 1,
    });
    expect(
      (await api.call('POST', path, { body: JSON.stringify({ schema: ORDER_1 }), headers: raw })).body,
    ).toEqual({
      id: 1,
    });
    const proto = await api.call('POST', '/subjects/raw-proto/versions', {
      body: `// an order\n${PROTO}`,
      headers: raw,
    });
    expect(proto.status).toBe(200);
    expect(await get('/subjects/raw-proto/versions/latest')).toMatchObject({ schemaType: 'PROTOBUF' });
    expect(
      (await api.call('POST', '/subjects/raw-text/versions', { body: '"string"', headers: raw })).status,
    ).toBe(200);
    expect(await get('/subjects/raw-text/versions/1/schema')).toBe('string');
  });

  it('the registry answers the text of a schema alone', async () => {
    for (const path of ['/subjects/orders-value/versions/1/schema', '/schemas/ids/1/schema'])
      expect((await api.call('GET', path)).text).toBe(ORDER_1);
  });

  it('the registry pages lists and includes deleted subjects on request', async () => {
    for (const name of ['p1', 'p2', 'p3']) await api.register(`paged-${name}`, ORDER_1);
    const list = '/subjects?subjectPrefix=paged-';
    expect(await get(`${list}&limit=2`)).toEqual(['paged-p1', 'paged-p2']);
    expect(await get(`${list}&offset=1&limit=1`)).toEqual(['paged-p2']);
    expect(await get(`${list}&offset=2&limit=-1`)).toEqual(['paged-p3']);
    expect(await get(`${list}&limit=0`)).toEqual([]);
    expect(await get(`${list}&offset=9`)).toEqual([]);
    await api.register('paged-p1', ORDER_2);
    await send('DELETE', '/subjects/paged-p1/versions/1');
    const versions = '/subjects/paged-p1/versions';
    expect(await get(versions)).toEqual([2]);
    expect(await get(`${versions}?deleted=true`)).toEqual([1, 2]);
    expect(await get(`${versions}?deletedOnly=true`)).toEqual([1]);
    expect(await get(`${versions}?deleted=true&deletedAsNegative=true`)).toEqual([-1, 2]);
    expect(await get(`${versions}/1?deleted=true`)).toMatchObject({ version: 1 });
    await send('DELETE', '/subjects/paged-p2');
    expect(await get(list)).toEqual(['paged-p1', 'paged-p3']);
    expect(await get(`${list}&deleted=true`)).toEqual(['paged-p1', 'paged-p2', 'paged-p3']);
    expect(await get(`${list}&deletedOnly=true`)).toContain('paged-p2');
    expect(await get(`${list}&deletedOnly=true`)).not.toContain('paged-p3');
  });

  it('the registry deletes softly, continues to count versions, and deletes permanently', async () => {
    await api.register('gone', ORDER_1);
    await api.register('gone', ORDER_2);
    expect(await send('DELETE', '/subjects/gone/versions/latest')).toBe(2);
    expect(await get('/schemas/ids/2')).toMatchObject({ schema: ORDER_2 });
    expect(await send('DELETE', '/subjects/gone')).toEqual([1]);
    expect(await api.register('gone', ORDER_1)).toBe(1);
    expect(await get('/subjects/gone/versions')).toEqual([3]);
    expect(await send('DELETE', '/subjects/gone/versions/2?permanent=true')).toBe(2);
    await send('DELETE', '/subjects/gone');
    await send('DELETE', '/subjects/gone?permanent=true');
    expect((await api.call('GET', '/subjects/gone/versions?deleted=true')).body).toMatchObject({
      error_code: 40401,
    });
    await api.register('gone', ORDER_1);
    expect(await get('/subjects/gone/versions')).toEqual([1]);
  });

  it('the registry finds a version by its metadata and stores metadata and rules', async () => {
    const metadata = { properties: { owner: 'team-a', major: '1' } };
    const ruleSet = {
      domainRules: [{ name: 'checked', kind: 'CONDITION', mode: 'WRITE', type: 'CEL', expr: 'true' }],
    };
    await api.register('meta', ORDER_1, { metadata, ruleSet });
    await api.register('meta', ORDER_1, { metadata: { properties: { owner: 'team-b', major: '1' } } });
    expect(await get('/subjects/meta/versions')).toEqual([1, 2]);
    expect(await get('/subjects/meta/metadata?key=owner&value=team-a')).toMatchObject({
      version: 1,
      metadata,
      ruleSet,
    });
    expect(await get('/subjects/meta/metadata?key=owner&value=team-a&key=major&value=1')).toMatchObject({
      version: 1,
    });
    expect(await get('/subjects/meta/metadata?key=major&value=1')).toMatchObject({ version: 2 });
    // A version without rules of its own inherits those of the previous version.
    expect(await get('/schemas?ruleType=CEL')).toMatchObject([
      { subject: 'meta', version: 1 },
      { subject: 'meta', version: 2, ruleSet },
    ]);
    expect(await get('/schemas?ruleType=JSONATA')).toEqual([]);
  });

  it('the registry stores references and names the schemas that refer', async () => {
    await api.register('item', record('Item', field('sku', 'string')));
    const references = [{ name: 'Item', subject: 'item', version: 1 }];
    const id = await api.register('basket', record('Basket', field('item', 'Item')), { references });
    expect(await get('/subjects/item/versions/1/referencedby')).toEqual([id]);
    expect(await get(`/schemas/ids/${id}`)).toMatchObject({ references });
    expect(await get(`/schemas/ids/${id}?format=resolved`)).toMatchObject({
      schema: expect.stringContaining('"sku"'),
    });
    expect((await api.call('DELETE', '/subjects/item/versions/1')).body).toEqual({
      error_code: 42206,
      message: 'One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=item,version=1}.',
    });
  });

  it('the registry accepts any percent-encoded name', async () => {
    for (const name of [
      'a/b',
      'quote"brace{}',
      "o'clock",
      'with:colon',
      'ünï–☃',
      '%2F',
      '+ &?#',
      'n'.repeat(255),
    ]) {
      const path = `/subjects/${encodeURIComponent(name)}`;
      expect(await send('POST', `${path}/versions`, { schema: ORDER_1 })).toEqual({ id: 1 });
      expect(await get(`${path}/versions/1`)).toMatchObject({ subject: name });
      expect(await get('/schemas/ids/1/subjects')).toContain(name);
      expect(
        await send('PUT', `/config${path.slice('/subjects'.length)}`, { compatibility: 'NONE' }),
      ).toEqual({
        compatibility: 'NONE',
      });
    }
  });
});

describe('schemas', () => {
  it('the registry answers ids, their subjects, guids and types', async () => {
    expect(await get('/schemas/ids/2')).toEqual({ schemaType: 'AVRO', schema: ORDER_2 });
    expect(await get('/schemas/ids/2?subject=other')).toEqual({
      schemaType: 'AVRO',
      schema: ORDER_2,
      subject: 'other',
      version: 1,
    });
    expect(await get('/schemas/ids/1?fetchMaxId=true')).toMatchObject({ maxId: expect.any(Number) });
    expect(await get('/schemas/ids/2/subjects')).toEqual(expect.arrayContaining(['orders-value', 'other']));
    expect(await get('/schemas/ids/2/versions?limit=1')).toHaveLength(1);
    expect(await get('/schemas/ids/2/versions')).toContainEqual({ subject: 'other', version: 1 });
    expect(await get('/schemas/types')).toEqual(['JSON', 'PROTOBUF', 'AVRO']);
    const { guid } = api.registry.schema(2);
    expect(await get(`/schemas/guids/${guid}`)).toEqual({ schemaType: 'AVRO', schema: ORDER_2 });
    expect(await get(`/schemas/guids/${guid}/ids`)).toEqual([{ context: '.', id: 2 }]);
  });

  it('the registry answers Protobuf as a serialized descriptor too', async () => {
    const id = await api.register('proto-value', PROTO, { schemaType: 'PROTOBUF' });
    expect(await get(`/schemas/ids/${id}`)).toMatchObject({
      schemaType: 'PROTOBUF',
      schema: expect.stringContaining('message Order'),
    });
    const { schema } = (await get(`/schemas/ids/${id}?format=serialized`)) as { schema: string };
    expect(Buffer.from(schema, 'base64').toString('latin1')).toContain('Order');
    // Descriptor that clients register: a file with one message of one field, as their generators
    // embed it.
    const field = Buffer.from('\x0a\x02id\x18\x01\x20\x01\x28\x09', 'latin1');
    const message = Buffer.concat([
      Buffer.from([0x0a, 5]),
      Buffer.from('Order'),
      Buffer.from([0x12, field.length]),
      field,
    ]);
    const embedded = Buffer.concat([
      Buffer.from('\x0a\x0border.proto\x22', 'latin1'),
      Buffer.from([message.length]),
      message,
      Buffer.from('\x62\x06proto3', 'latin1'),
    ]).toString('base64');
    expect(await api.register('proto-again', embedded, { schemaType: 'PROTOBUF' })).toBe(id);
    expect(
      await send('POST', '/subjects/proto-value', { schema: embedded, schemaType: 'PROTOBUF' }),
    ).toMatchObject({
      id,
    });
  });

  it('the registry lists schemas by prefix, page and latest version', async () => {
    const list = (await get('/schemas?subjectPrefix=orders-&latestOnly=true')) as unknown[];
    expect(list).toEqual([
      { subject: 'orders-value', version: 2, id: 2, schemaType: 'AVRO', schema: ORDER_2 },
    ]);
    expect(await get('/schemas?subjectPrefix=orders-&limit=1&offset=1')).toEqual(list);
    expect(await get('/schemas?subjectPrefix=orders-&deletedOnly=true')).toEqual([]);
  });

  it('HEAD is answered like GET without a body, and OPTIONS lists the methods', async () => {
    const head = await fetch(`${api.base}/schemas/ids/1`, { method: 'HEAD' });
    expect([head.status, head.headers.get('content-type'), await head.text()]).toEqual([200, TYPE, '']);
    const options = await fetch(`${api.base}/config/x`, { method: 'OPTIONS' });
    expect([options.status, options.headers.get('allow')]).toEqual([204, 'DELETE, GET, HEAD, OPTIONS, PUT']);
  });
});

describe('compatibility', () => {
  const path = '/compatibility/subjects/checked/versions';
  it('a check answers yes or no with reasons in the order that clients expect', async () => {
    await api.register('checked', ORDER_1);
    expect(await send('POST', `${path}/latest`, { schema: ORDER_2 })).toEqual({ is_compatible: true });
    expect(await send('POST', `${path}/1`, { schema: ORDER_BROKEN })).toEqual({ is_compatible: false });
    expect(await send('POST', path, { schema: ORDER_BROKEN })).toEqual({ is_compatible: false });
    expect(await send('POST', `${path}/1?verbose=true`, { schema: ORDER_BROKEN })).toEqual({
      is_compatible: false,
      messages: [
        "{errorType:'TYPE_MISMATCH', description:'BACKWARD against version 1: a reader of type string cannot read long at Order.amount (AVRO_TYPE_CHANGED), path '/fields/1/type'', additionalInfo:'Order.amount'}",
        '{oldSchemaVersion: 1}',
        `{oldSchema: '${ORDER_1}'}`,
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
      ],
      findings: [expect.objectContaining({ rule: 'AVRO_TYPE_CHANGED', severity: 'fail' })],
    });
  });

  it('a check names a field without a default as the existing registries do', async () => {
    const added = record('Order', field('id', 'string'), field('f2', 'int'), field('amount', 'long'));
    const { messages } = (await send('POST', `${path}?verbose=true`, { schema: added })) as {
      messages: string[];
    };
    expect(messages[0]).toBe(
      "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f2' at path '/fields/1' in the new schema has no default value and is missing in the old schema', additionalInfo:'f2'}",
    );
    await send('PUT', '/config/checked', { compatibility: 'FORWARD' });
    const removed = record('Order', field('id', 'string'));
    const forward = (await send('POST', `${path}?verbose=true`, { schema: removed })) as {
      messages: string[];
    };
    expect(forward.messages[0]).toBe(
      "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'amount' at path '/fields/1' in the old schema has no default value and is missing in the new schema', additionalInfo:'amount'}",
    );
  });

  it('a check against an unknown subject is compatible, and a check of an invalid text is not', async () => {
    expect(await send('POST', '/compatibility/subjects/absent/versions/latest', { schema: ORDER_1 })).toEqual(
      {
        is_compatible: true,
      },
    );
    expect(await send('POST', `${path}/latest?verbose=true`, { schema: '{' })).toEqual({
      is_compatible: false,
      messages: [expect.any(String)],
    });
  });

  it('a refused registration gives the same messages as the check', async () => {
    await api.register('refused', ORDER_1);
    const { status, body } = await api.call('POST', '/subjects/refused/versions', {
      body: { schema: ORDER_BROKEN },
    });
    expect([status, (body as { error_code: number }).error_code]).toEqual([409, 409]);
    expect((body as { message: string }).message).toMatch(
      /^Schema being registered is incompatible with an earlier schema for subject "refused", details: \[\{errorType:'TYPE_MISMATCH'.*\{oldSchemaVersion: 1\}, \{oldSchema: '.*'\}, \{validateFields: 'false', compatibility: 'BACKWARD'\}\]$/,
    );
  });
});

describe('config and mode', () => {
  it('PUT of a config echoes compatibility, and GET and DELETE answer compatibilityLevel', async () => {
    expect(await get('/config')).toMatchObject({ compatibilityLevel: 'BACKWARD' });
    expect(
      await send('PUT', '/config/leveled', { compatibility: 'full_transitive', normalize: true }),
    ).toEqual({
      compatibility: 'FULL_TRANSITIVE',
      normalize: true,
    });
    expect(await get('/config/leveled')).toEqual({ compatibilityLevel: 'FULL_TRANSITIVE', normalize: true });
    expect(await get('/config/unset?defaultToGlobal=true')).toMatchObject({ compatibilityLevel: 'BACKWARD' });
    expect(await send('PUT', '/config', { compatibility: 'NONE' })).toEqual({ compatibility: 'NONE' });
    expect(await get('/config/unset?defaultToGlobal=true')).toMatchObject({ compatibilityLevel: 'NONE' });
    expect(await send('DELETE', '/config')).toMatchObject({ compatibilityLevel: 'NONE' });
    expect(await get('/config')).toMatchObject({ compatibilityLevel: 'BACKWARD' });
    expect(await send('DELETE', '/config/leveled')).toMatchObject({ compatibilityLevel: 'FULL_TRANSITIVE' });
  });

  it('a read-only subject refuses writes, and a subject in import mode accepts ids', async () => {
    expect(await get('/mode')).toEqual({ mode: 'READWRITE' });
    expect(await send('PUT', '/mode/frozen', { mode: 'READONLY' })).toEqual({ mode: 'READONLY' });
    expect(await get('/mode/frozen')).toEqual({ mode: 'READONLY' });
    expect(
      (await api.call('POST', '/subjects/frozen/versions', { body: { schema: ORDER_1 } })).body,
    ).toMatchObject({
      error_code: 42205,
    });
    expect(await send('DELETE', '/mode/frozen')).toEqual({ mode: 'READONLY' });
    expect(await get('/mode/frozen?defaultToGlobal=true')).toEqual({ mode: 'READWRITE' });
    expect(await send('PUT', '/mode/imported', { mode: 'IMPORT' })).toEqual({ mode: 'IMPORT' });
    expect(
      await send('POST', '/subjects/imported/versions', { schema: record('Imported'), id: 5000, version: 7 }),
    ).toEqual({ id: 5000 });
    expect(await get('/subjects/imported/versions')).toEqual([7]);
    expect(await send('PUT', '/mode/imported?force=true', { mode: 'READWRITE' })).toEqual({
      mode: 'READWRITE',
    });
    expect(await send('PUT', '/mode', { mode: 'READWRITE' })).toEqual({ mode: 'READWRITE' });
    expect(await send('DELETE', '/mode?recursive=true')).toEqual({ mode: 'READWRITE' });
  });
});

describe('contexts', () => {
  it('a context has its own ids, levels and subjects, under its path and by its prefix', async () => {
    const at = '/contexts/.staging';
    expect(await send('POST', `${at}/subjects/s/versions`, { schema: ORDER_2 })).toEqual({ id: 1 });
    expect(await get('/contexts')).toEqual(['.', '.staging']);
    expect(await get(`${at}/subjects`)).toEqual([':.staging:s']);
    expect(await get('/contexts/staging/subjects')).toEqual([':.staging:s']);
    expect(await get('/subjects')).toContain(':.staging:s');
    expect(await get('/subjects?subjectPrefix=%3A.staging%3A')).toEqual([':.staging:s']);
    expect(await get('/contexts/./subjects?subjectPrefix=s').catch(() => [])).not.toContain(':.staging:s');
    expect(await get(`${at}/subjects/s/versions/1`)).toMatchObject({ subject: ':.staging:s', id: 1 });
    expect(await get('/subjects/%3A.staging%3As/versions/1')).toMatchObject({ subject: ':.staging:s' });
    expect(await send('POST', `${at}/subjects/s`, { schema: ORDER_2 })).toMatchObject({ version: 1 });
    expect(await get(`${at}/schemas/ids/1`)).toMatchObject({ schema: ORDER_2 });
    expect(await get('/schemas/ids/1?subject=%3A.staging%3A')).toMatchObject({ schema: ORDER_2 });
    expect(await get('/schemas/ids/1')).toEqual({ schemaType: 'AVRO', schema: ORDER_1 });
    expect(await send('PUT', `${at}/config`, { compatibility: 'FULL' })).toEqual({ compatibility: 'FULL' });
    expect(await get('/config/%3A.staging%3A')).toMatchObject({ compatibilityLevel: 'FULL' });
    expect(await get(`${at}/config/s?defaultToGlobal=true`)).toMatchObject({ compatibilityLevel: 'FULL' });
    expect(await get('/config')).toMatchObject({ compatibilityLevel: 'BACKWARD' });
    expect(await send('PUT', `${at}/mode`, { mode: 'READONLY' })).toEqual({ mode: 'READONLY' });
    expect(
      (await api.call('POST', `${at}/subjects/t/versions`, { body: { schema: ORDER_1 } })).body,
    ).toMatchObject({
      error_code: 42205,
    });
    expect(await send('DELETE', `${at}/mode`)).toEqual({ mode: 'READONLY' });
    expect(await send('DELETE', `${at}/config`)).toMatchObject({ compatibilityLevel: 'FULL' });
    const { guid } = api.registry.schema(2);
    expect(await get(`/schemas/guids/${guid}/ids`)).toEqual([
      { context: '.', id: 2 },
      { context: '.staging', id: 1 },
    ]);
  });
});

describe('service operations', () => {
  it('the registry answers probes, and refuses associations so that clients continue without them', async () => {
    expect(await get('/')).toEqual({});
    expect(await get('/openapi.json')).toEqual(api.description);
    expect(await get('/v1/metadata/id')).toEqual({
      scope: { path: [], clusters: { 'kafka-cluster': '', 'schema-registry-cluster': 'conformance' } },
      id: '',
    });
    expect(await get('/v1/metadata/version')).toEqual({ version: '1.2.3', commitId: '' });
    expect(await get('/v1/metadata/deployment')).toEqual({ attributes: ['deployment:self-managed'] });
    expect(await get('/master_available')).toEqual({ master_available: true });
    for (const path of [
      '/associations/resources/-/orders?resourceType=topic&associationType=value&offset=0&limit=-1',
      '/associations/resources/lkc-1',
      '/associations/subjects/orders-value',
    ]) {
      expect((await api.call('GET', path)).body).toMatchObject({
        error_code: 40410,
        message: expect.any(String),
      });
    }
    expect((await api.call('POST', '/associations', { body: {} })).status).toBe(404);
  });
});

it('every operation of the default context was answered with 200, except those that never are', () => {
  const all = Object.values(api.description.paths).flatMap((methods) => Object.values(methods));
  const missed = all
    .map(({ operationId }) => operationId)
    .filter((id) => !id.endsWith('InContext') && !api.succeeded.has(id));
  expect(missed.sort()).toEqual(
    ['findAssociations', 'findAssociationsOfResource', 'findAssociationsOfSubject'].sort(),
  );
});
