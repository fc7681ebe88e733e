/** Registry with many, slow, large and hostile clients. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { CONTRACT_ENTRIES_MAX } from '../../src/registry/api/limits.ts';
import { RawClient } from '../contract/raw-client.ts';
import { BODY_BYTES_MAX, Conformance, field, ORDER_1, ORDER_2, record, TYPE } from './registry-http-kit.ts';

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
  await api.register('orders', ORDER_1);
});
afterAll(() => api.close());

const json = { 'content-type': TYPE };
const port = (): number => Number(new URL(api.base).port);

describe('subject names', () => {
  it.each([
    ['quotes', 'a"b\'c`d'],
    ['braces', '{"a":[1]}'],
    ['a slash', 'team/orders-value'],
    ['colons', 'a:b::c'],
    ['percent signs', '100%2F%'],
    ['blanks', ' a  b '],
    ['plus and ampersand', 'a+b&c=d?e#f;g'],
    ['a backslash', 'a\\b'],
    ['unicode', 'größe-本町-🚚-e\u0301'],
    ['right to left', 'שלום\u202e'],
    ['255 characters', 'n'.repeat(255)],
    ['255 characters of 4 bytes', '🚚'.repeat(127)],
    ['two dots', '..'],
    ['one dot', '.'],
    ['a property of every object', '__proto__'],
    ['a method of every object', 'constructor'],
    ['a word of the paths', 'versions'],
  ])('a subject name with %s is registered, found and deleted', async (_what, name) => {
    const encoded = encodeURIComponent(name).replaceAll('.', '%2E');
    const path = `/subjects/${encoded}`;
    const registered = await api.target('POST', `${path}/versions`, {
      headers: json,
      body: JSON.stringify({ schema: ORDER_1 }),
    });
    expect([registered.status, registered.body]).toEqual([200, { id: 1 }]);
    expect((await api.target('GET', `${path}/versions`)).body).toEqual([1]);
    expect((await api.target('GET', `${path}/versions/latest`)).body).toMatchObject({
      subject: name,
      version: 1,
    });
    expect(
      (await api.target('GET', `/schemas/ids/1?subject=${encodeURIComponent(name)}`)).body,
    ).toMatchObject({
      subject: name,
      version: 1,
    });
    expect((await api.target('GET', `/subjects?subjectPrefix=${encodeURIComponent(name)}`)).body).toContain(
      name,
    );
    const config = `/config/${encoded}`;
    await api.target('PUT', config, { headers: json, body: '{"compatibility":"NONE"}' });
    expect((await api.target('GET', config)).body).toEqual({ compatibilityLevel: 'NONE' });
    expect((await api.target('DELETE', path)).body).toEqual([1]);
    expect((await api.target('DELETE', `${path}?permanent=true`)).body).toEqual([1]);
    expect((await api.target('GET', `${path}/versions`)).status).toBe(404);
  });

  it('the registry refuses a name over the limit and a name that no file could have', async () => {
    for (const name of ['n'.repeat(1025), 'a%00b', '%7F', '%C2%85', '__EMPTY', '%3A*%3Aa']) {
      const answer = await api.target('POST', `/subjects/${name}/versions`, {
        headers: json,
        body: JSON.stringify({ schema: ORDER_1 }),
      });
      expect([name.slice(0, 10), (answer.body as { error_code: number }).error_code]).toEqual([
        name.slice(0, 10),
        42208,
      ]);
    }
  });
});

describe('request paths', () => {
  it.each<readonly [target: string, status: number]>([
    ['/subjects/../config', 404],
    ['/subjects/orders/../../config', 404],
    ['/subjects/%2e%2e/versions', 404],
    ['/./subjects', 404],
    ['//subjects', 404],
    ['/subjects//versions', 404],
    ['/subjects/orders//versions', 404],
    ['/subjects/orders%2Fversions', 405],
    ['/subjects%2Forders/versions', 404],
    ['/subjects/orders/versions%2F1', 404],
    ['/subjects/%252e%252e/versions', 404],
    ['/subjects/orders%00/versions', 404],
    ['/subjects/orders/versions/1%00', 422],
    ['/schemas/ids/1%00', 404],
    ['/schemas/ids/1%2Fschema', 404],
    ['/schemas/ids/01', 200],
    // Parsed as Java parses an Integer, like the existing registries.
    ['/schemas/ids/+1', 200],
    ['/schemas/ids/1e0', 404],
    ['/schemas/ids/0x1', 404],
    ['/schemas/ids/-1', 404],
    ['/schemas/ids/%31', 200],
    ['/subjects/%', 400],
    ['/subjects/%zz/versions', 400],
    ['/subjects/%C3%28/versions', 400],
    ['/subjects/orders/versions/', 200],
    ['/contexts/..%2f..%2fetc/subjects', 200],
    ['/contexts/%2e/subjects', 200],
    ['/SUBJECTS', 404],
    ['/subjects;v=1', 404],
    ['/openapi.json/', 200],
    [`/${'a/'.repeat(3000)}`, 404],
  ])('the path %s is answered with status %i', async (target, status) => {
    expect((await api.target('GET', target)).status).toBe(status);
  });
});

describe('request bodies', () => {
  const path = '/subjects/large/versions';

  it('a body up to the limit is read, and one byte more is refused, declared or not', async () => {
    const schema = record('Large', field('f', 'string'));
    const wrap = (size: number): string => {
      const text = JSON.stringify({ schema, ignored: '' });
      return text.replace('"ignored":""', `"ignored":"${'x'.repeat(size - text.length)}"`);
    };
    expect((await api.target('POST', path, { headers: json, body: wrap(BODY_BYTES_MAX) })).status).toBe(200);
    const over = await api.target('POST', path, { headers: json, body: wrap(BODY_BYTES_MAX + 1) });
    expect([over.status, over.body]).toEqual([
      413,
      { error_code: 413, message: expect.stringMatching(/^HTTP 413 .*-body-max=100000$/) },
    ]);
    const client = await RawClient.open(port());
    client.send(
      `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${TYPE}\r\ntransfer-encoding: chunked\r\n\r\n`,
    );
    const chunk = 'x'.repeat(10_000);
    for (let sent = 0; sent <= BODY_BYTES_MAX; sent += chunk.length) client.send(`2710\r\n${chunk}\r\n`);
    const answer = await client.answer();
    expect([answer.status, JSON.parse(answer.body.toString())]).toEqual([
      413,
      { error_code: 413, message: expect.stringMatching(/^HTTP 413 .*-body-max=100000$/) },
    ]);
    client.close();
  });

  it('a body that does not arrive is aborted, and the registry continues', async () => {
    const slow = await Conformance.start({}, { requestTimeoutMs: 300 });
    try {
      const clients = await Promise.all(
        Array.from({ length: 50 }, () => RawClient.open(Number(new URL(slow.base).port))),
      );
      for (const client of clients)
        client.send(
          `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${TYPE}\r\ncontent-length: 100\r\n\r\n{"sch`,
        );
      expect(await slow.register('meanwhile', ORDER_1)).toBe(1);
      for (const client of clients) {
        const answer = await client.answer();
        expect([answer.status, JSON.parse(answer.body.toString())]).toEqual([
          408,
          { error_code: 408, message: 'HTTP 408 Request Timeout' },
        ]);
        client.close();
      }
      expect((await slow.call('GET', '/subjects')).body).toEqual(['meanwhile']);
    } finally {
      await slow.close();
    }
  });

  it('a refusal names the limit of a schema that was exceeded', async () => {
    const small = await Conformance.start({ limits: { schemaMax: 200, nestingMax: 8, referencesMax: 1 } });
    try {
      const refusal = async (schema: string, rest: object = {}): Promise<unknown> =>
        (await small.call('POST', '/subjects/s/versions', { body: { schema, ...rest } })).body;
      expect(
        await refusal(record('R', ...'abcdefgh'.split('').map((name) => field(name, 'string')))),
      ).toEqual({
        error_code: 413,
        message: expect.stringMatching(/^the schema has \d+ bytes, over the limit -schema-max=200$/),
      });
      expect(await refusal('['.repeat(9))).toEqual({
        error_code: 42201,
        message: 'the schema nests its brackets deeper than the limit -nesting-max=8',
      });
      expect(await refusal(`// ${'{'.repeat(9)}\nmessage M {}`, { schemaType: 'PROTOBUF' })).toEqual({
        id: 1,
      });
      await small.register('a', record('A', field('x', 'int')));
      await small.register('b', record('B', field('a', 'A')), {
        references: [{ name: 'A', subject: 'a', version: 1 }],
      });
      expect(
        await refusal(record('C', field('b', 'B')), {
          references: [{ name: 'B', subject: 'b', version: 1 }],
        }),
      ).toEqual({
        error_code: 42201,
        message: 'the references of the schema go deeper than the limit -references-max=1',
      });
    } finally {
      await small.close();
    }
  });
});

describe('entries of metadata and rules', () => {
  const words = (count: number): string[] => Array.from({ length: count }, (_, i) => `w${i}`);
  const properties = (count: number) => ({
    properties: Object.fromEntries(words(count).map((w) => [w, 'v'])),
  });
  const rules = (count: number) => ({
    domainRules: words(count / 4).map((name) => ({
      name,
      type: 'CEL',
      tags: ['a', 'b'],
      params: { c: 'd' },
    })),
  });
  const MAX = CONTRACT_ENTRIES_MAX;

  it.each([
    ['metadata properties', { metadata: properties(MAX) }, { metadata: properties(MAX + 1) }],
    [
      'metadata tags',
      { metadata: { tags: { a: words(MAX - 1) } } },
      { metadata: { tags: { a: words(MAX - 2), b: ['c'] } } },
    ],
    ['sensitive names', { metadata: { sensitive: words(MAX) } }, { metadata: { sensitive: words(MAX + 1) } }],
    ['rules', { ruleSet: rules(MAX) }, { ruleSet: rules(MAX + 4) }],
    [
      'metadata and rules together',
      { metadata: properties(MAX / 2), ruleSet: rules(MAX / 2) },
      { metadata: properties(MAX / 2 + 1), ruleSet: rules(MAX / 2) },
    ],
  ])('a schema with more %s than the limit is refused with its name', async (what, most, more) => {
    const post = async (rest: object): Promise<unknown> =>
      (
        await api.call('POST', `/subjects/${encodeURIComponent(what)}/versions`, {
          body: { schema: '"int"', ...rest },
        })
      ).body;
    expect(await post(more)).toEqual({
      error_code: 413,
      message: `the metadata and rules of the schema have more than ${MAX} entries (the limit contract-entries)`,
    });
    expect(await post(most)).toEqual({ id: expect.any(Number) });
  });

  it('settings with more metadata than the limit are refused with its name', async () => {
    const put = async (count: number): Promise<unknown> =>
      (await api.call('PUT', '/config/entries', { body: { defaultMetadata: properties(count) } })).body;
    expect(await put(MAX + 1)).toEqual({
      error_code: 413,
      message: `the metadata and rules of the settings have more than ${MAX} entries (the limit contract-entries)`,
    });
    expect(await put(MAX)).toHaveProperty('defaultMetadata');
  });
});

describe('concurrent writers', () => {
  it('1,000 writers on one subject get dense versions and unique ids, each its own', {
    timeout: 300_000,
  }, async () => {
    const subject = 'crowded';
    await api.call('PUT', `/config/${subject}`, { body: { compatibility: 'NONE' } });
    const schemas = Array.from({ length: 1000 }, (_, i) => record('Crowd', field(`f${i}`, 'long')));
    const ids = await Promise.all(schemas.map((schema) => api.register(subject, schema)));
    expect(new Set(ids).size).toBe(1000);
    const { body } = await api.call('GET', `/subjects/${subject}/versions`);
    expect(body).toEqual(Array.from({ length: 1000 }, (_, i) => i + 1));
    const numbers = await Promise.all(
      schemas.map(async (schema, i) => {
        const found = await api.call('POST', `/subjects/${subject}`, { body: { schema } });
        expect(found.body).toMatchObject({ id: ids[i], schema });
        return (found.body as { version: number }).version;
      }),
    );
    expect(new Set(numbers).size).toBe(1000);
    // Concurrent registrations of one content give one version.
    const same = await Promise.all(Array.from({ length: 200 }, () => api.register('alike', ORDER_2)));
    expect(new Set(same).size).toBe(1);
    expect((await api.call('GET', '/subjects/alike/versions')).body).toEqual([1]);
  });

  it('a written schema can be read immediately by id and by name', async () => {
    for (let i = 0; i < 50; i++) {
      const schema = record('Fresh', field(`g${i}`, 'int'));
      const id = await api.register(`fresh-${i}`, schema);
      const [byId, byName, list] = await Promise.all([
        api.call('GET', `/schemas/ids/${id}`),
        api.call('GET', `/subjects/fresh-${i}/versions/latest`),
        api.call('GET', `/subjects?subjectPrefix=fresh-${i}`),
      ]);
      expect(byId.body).toMatchObject({ schema });
      expect(byName.body).toMatchObject({ id });
      expect(list.body).toContain(`fresh-${i}`);
    }
  });

  it('an id that was deleted permanently is not answered from a cache', async () => {
    const id = await api.register('brief', record('Brief', field('x', 'int')));
    expect((await api.call('GET', `/schemas/ids/${id}`)).status).toBe(200);
    await api.call('DELETE', '/subjects/brief');
    expect((await api.call('GET', `/schemas/ids/${id}`)).status).toBe(200);
    await api.call('DELETE', '/subjects/brief?permanent=true');
    expect((await api.call('GET', `/schemas/ids/${id}`)).body).toMatchObject({ error_code: 40403 });
  });

  it('the version that an id names for a subject follows the subject', async () => {
    const schema = record('Moved', field('x', 'int'));
    const id = await api.register('moved', schema);
    const read = async (): Promise<unknown> =>
      (await api.call('GET', `/schemas/ids/${id}?subject=moved`)).body;
    expect(await read()).toMatchObject({ version: 1 });
    await api.call('DELETE', '/subjects/moved');
    expect(await api.register('moved', schema)).toBe(id);
    expect(await read()).toMatchObject({ subject: 'moved', version: 2 });
  });
});
