/** Parts of a registration request: metadata, rules, raw texts, references, and ids of other
 *  registries. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { encodeRecord } from '../../src/registry/store/state/records.ts';
import { TestLog } from '../unit/registry/store/store-kit.ts';
import { Conformance, field, ORDER_1, ORDER_2, record } from './registry-http-kit.ts';

let api: Conformance;
beforeEach(async () => {
  api = await Conformance.start({ wire: 8 });
});
afterEach(() => api.close());

const VERSIONS = '/subjects/s/versions';
const register = async (body: unknown, path = VERSIONS): Promise<unknown> =>
  (await api.call('POST', path, { body })).body;
const latest = async (): Promise<unknown> => (await api.call('GET', `${VERSIONS}/latest`)).body;
const RULE = { name: 'check', type: 'CEL' };
const FULL_RULE = { name: 'check', kind: 'TRANSFORM', mode: 'WRITEREAD', type: 'CEL', disabled: false };

describe('metadata and rules', () => {
  it('metadata and rules are stored and returned in one form, whatever form was sent', async () => {
    const metadata = {
      tags: { '**.ssn': ['PII', 'A', 'PII'], none: [] },
      properties: { b: '2', a: '' },
      sensitive: ['y', 'x'],
      paths: { old: 1 },
      more: null,
    };
    const rule = {
      ...RULE,
      doc: '',
      tags: ['b', 'a', 'b'],
      params: { z: '1', y: '' },
      expr: null,
      x: [[[]]],
    };
    const ruleSet = { domainRules: [rule], migrationRules: [], encodingRules: null, enableAt: '', other: 7 };
    const answer = await register({ schema: ORDER_1, metadata, ruleSet });
    const kept = {
      metadata: {
        tags: { '**.ssn': ['A', 'PII'], none: [] },
        properties: { a: '', b: '2' },
        sensitive: ['x', 'y'],
      },
      ruleSet: { domainRules: [{ ...FULL_RULE, tags: ['a', 'b'], params: { y: '', z: '1' } }] },
    };
    expect(answer).toMatchObject(kept);
    const version = (await latest()) as Record<string, unknown>;
    expect({ metadata: version['metadata'], ruleSet: version['ruleSet'] }).toEqual(kept);
    // The canonical form and another spelling are the same schema.
    expect(await register({ schema: ORDER_1, ...kept })).toMatchObject({ id: 1, version: 1 });
    expect(await register({ schema: ORDER_1, metadata, ruleSet })).toMatchObject({ id: 1, version: 1 });
  });

  it('empty metadata and rules remove those of the previous version', async () => {
    await register({
      schema: ORDER_1,
      metadata: { properties: { a: '1' } },
      ruleSet: { domainRules: [RULE] },
    });
    await register({ schema: ORDER_1, metadata: { properties: { a: '2' } } });
    expect(await latest()).toMatchObject({ version: 2, ruleSet: { domainRules: [FULL_RULE] } });
    await register({ schema: ORDER_1, metadata: { tags: null }, ruleSet: { domainRules: [] } });
    const version = (await latest()) as Record<string, unknown>;
    expect(version['version']).toBe(3);
    expect(version['metadata']).toBeUndefined();
    expect(version['ruleSet']).toBeUndefined();
  });

  it.each<readonly [body: object, number: number, why: RegExp]>([
    [{ metadata: { tags: { a: 'x' } } }, 400, /^metadata\.tags\["a"\] is not a list/],
    [{ metadata: { tags: [] } }, 400, /^metadata\.tags is not a JSON object/],
    [{ metadata: { properties: { a: 1 } } }, 400, /^metadata\.properties\["a"\] is not a string/],
    [{ metadata: { properties: { a: null } } }, 400, /^metadata\.properties\["a"\] is not a string/],
    [{ metadata: { sensitive: [null] } }, 400, /^metadata\.sensitive\[0\] is not a string/],
    [{ metadata: { properties: { a: '\ud800' } } }, 400, /half of a surrogate pair/],
    [{ metadata: { properties: { '\udc00': '' } } }, 400, /a key of metadata\.properties holds half/],
    [{ ruleSet: 'x' }, 42210, /ruleSet is not a JSON object/],
    [{ ruleSet: { domainRules: {} } }, 42210, /ruleSet\.domainRules is not a list/],
    [{ ruleSet: { domainRules: [null] } }, 42210, /ruleSet\.domainRules\[0\] is not a JSON object/],
    [{ ruleSet: { domainRules: [{ type: 'CEL' }] } }, 42210, /domainRules\[0\] has no name/],
    [{ ruleSet: { domainRules: [{ name: 'r' }] } }, 42210, /domainRules\[0\] has no type/],
    [{ ruleSet: { domainRules: [{ ...RULE, name: '1r' }] } }, 42210, /name is "1r"; it must be/],
    [{ ruleSet: { domainRules: [{ ...RULE, name: 'r'.repeat(65) }] } }, 42210, /at most 64/],
    [{ ruleSet: { domainRules: [{ ...RULE, kind: 'X' }] } }, 42210, /kind is "X"; .* TRANSFORM, CONDITION/],
    [{ ruleSet: { domainRules: [{ ...RULE, mode: 'UPDOWN' }] } }, 42210, /mode is "UPDOWN"; .* WRITEREAD/],
    [{ ruleSet: { migrationRules: [RULE] } }, 42210, /mode is "WRITEREAD"; .* UPGRADE, DOWNGRADE, UPDOWN/],
    [{ ruleSet: { domainRules: [RULE], encodingRules: [RULE] } }, 42210, /two rules are named "check"/],
    [{ ruleSet: { domainRules: [{ ...RULE, disabled: 'no' }] } }, 42210, /disabled is neither/],
    [
      { ruleSet: { domainRules: [{ ...RULE, mode: 'READ', onFailure: 'NONE,ERROR' }] } },
      42210,
      /two actions/,
    ],
    [{ ruleSet: { domainRules: [{ ...RULE, params: { a: 1 } }] } }, 42210, /params\["a"\] is not a string/],
    [{ ruleSet: { domainRules: [{ ...RULE, expr: '\udfff' }] } }, 42210, /expr holds half/],
  ])('the registry refuses a schema with %j', async (body, number, why) => {
    expect(await register({ schema: ORDER_1, ...body })).toEqual({
      error_code: number,
      message: expect.stringMatching(why),
    });
  });

  it.each<readonly [body: object, number: number]>([
    [{ defaultMetadata: { properties: { a: 1 } } }, 400],
    [{ overrideMetadata: { tags: { a: 'x' } } }, 400],
    [{ alias: 'x'.repeat(1025) }, 400],
    [{ defaultRuleSet: { domainRules: [{}] } }, 42210],
    [{ overrideRuleSet: { domainRules: [RULE, RULE] } }, 42210],
  ])('the registry refuses the settings %j', async (body, number) => {
    expect((await api.call('PUT', '/config/s', { body })).body).toMatchObject({ error_code: number });
  });

  it('the registry stores switches of other registries that have no effect here', async () => {
    const body = { validateNewSchemas: false, validateRules: true };
    expect((await api.call('PUT', '/config/switched', { body })).body).toEqual(body);
    expect((await api.call('PUT', '/config/switched', { body: { compatibility: 'FULL' } })).status).toBe(200);
    expect((await api.call('GET', '/config/switched')).body).toEqual({ ...body, compatibilityLevel: 'FULL' });
  });

  it('metadata and rules of the settings have one form too', async () => {
    const body = {
      defaultMetadata: { properties: { b: '1' }, x: 1 },
      defaultRuleSet: { domainRules: [RULE] },
    };
    const kept = {
      defaultMetadata: { properties: { b: '1' } },
      defaultRuleSet: { domainRules: [FULL_RULE] },
    };
    expect((await api.call('PUT', '/config/s', { body })).body).toEqual(kept);
    expect((await api.call('GET', '/config/s')).body).toEqual(kept);
  });

  it('metadata and rules count toward the size of a schema', async () => {
    const limits = { schemaMax: 1000, nestingMax: 200, referencesMax: 32 };
    const small = await Conformance.start({ limits });
    const big = { properties: { a: 'x'.repeat(1000) } };
    const over = { error_code: 413, message: expect.stringMatching(/with its metadata .*-schema-max=1000/) };
    const ruleSet = { domainRules: [{ ...RULE, expr: 'x'.repeat(1000) }] };
    for (const more of [{ metadata: big }, { ruleSet }])
      expect((await small.call('POST', VERSIONS, { body: { schema: ORDER_1, ...more } })).body).toEqual(over);
    const half = { properties: { a: 'x'.repeat(500) } };
    for (const body of [
      { defaultMetadata: big },
      { overrideRuleSet: ruleSet },
      { defaultMetadata: half, overrideMetadata: half },
    ])
      expect((await small.call('PUT', '/config/s', { body })).body).toEqual({
        error_code: 413,
        message: expect.stringMatching(/^the metadata and rules of the settings .*-schema-max=1000$/),
      });
    await small.close();
  });

  it('the names and subjects of references count toward the size of a schema', async () => {
    const small = await Conformance.start({
      limits: { schemaMax: 1000, nestingMax: 200, referencesMax: 32 },
    });
    const reference = { name: 'n', subject: 's', version: 1 };
    for (const more of [{ name: 'x'.repeat(1000) }, { subject: 'x'.repeat(1000) }]) {
      const body = { schema: ORDER_1, references: [{ ...reference, ...more }] };
      expect((await small.call('POST', VERSIONS, { body })).body).toEqual({
        error_code: 413,
        message: expect.stringMatching(/^the schema with its references has .*-schema-max=1000$/),
      });
    }
    await small.close();
  });
});

describe('raw texts', () => {
  const raw = { 'content-type': 'application/octet-stream' };
  const json = { 'content-type': 'application/json' };

  it('an octet-stream body with a property named schema is registered as an Avro schema', async () => {
    const schema = JSON.stringify({ ...(JSON.parse(ORDER_1) as object), schema: 'v7' });
    expect((await api.call('POST', VERSIONS, { body: schema, headers: raw })).body).toMatchObject({
      id: 1,
      schema: expect.stringContaining('"schema":"v7"'),
    });
    // A document about a schema is stored as a document.
    const document = JSON.stringify({ schema: ORDER_2, type: 'x' });
    expect(
      (await api.call('POST', '/subjects/t/versions', { body: document, headers: raw })).body,
    ).toMatchObject({ id: 2, schema: ORDER_2 });
  });

  it('a list in a raw body is a union, and an empty list is refused', async () => {
    const union = '["null",{"type":"array","items":"string"}]';
    for (const headers of [raw, json])
      expect((await api.call('POST', VERSIONS, { body: union, headers })).body).toMatchObject({
        id: 1,
        schema: union,
      });
    expect((await api.call('POST', VERSIONS, { body: '[]', headers: json })).body).toMatchObject({
      error_code: 400,
    });
    expect((await api.call('POST', VERSIONS, { body: '[7]', headers: json })).body).toMatchObject({
      error_code: 42201,
    });
  });
});

it('a normalised schema has its references in one order, each once', async () => {
  for (const name of ['B', 'A'])
    await register({ schema: record(name, field('x', 'string')) }, `/subjects/${name}/versions`);
  const one = (name: string) => ({ name, subject: name, version: 1 });
  const schema = record('Pair', field('b', 'B'), field('a', 'A'));
  const sent = { schema, references: [one('B'), one('A'), one('B')] };
  expect(await register(sent)).toMatchObject({ references: sent.references, version: 1 });
  const sorted = [one('A'), one('B')];
  expect(await register(sent, '/subjects/n/versions?normalize=true')).toMatchObject({ references: sorted });
  expect(await register({ schema, references: sorted }, '/subjects/n/versions?normalize=true')).toMatchObject(
    { version: 1 },
  );
});

it('the registry serves imported ids up to the largest id of a frame and assigns no larger id', async () => {
  const log = new TestLog();
  const id = 0xffff_ffff;
  const value = { id, format: 'AVRO', text: ORDER_1, references: [], deleted: false };
  log.records.push(
    encodeRecord({ kind: 'schema', subject: 's', version: 1, value }),
    encodeRecord({ kind: 'schema', subject: ':.c:s', version: 1, value: { ...value, id: 3_000_000_000 } }),
  );
  const other = await Conformance.start({}, { log });
  const get = async (path: string): Promise<unknown> => (await other.call('GET', path)).body;
  expect(await get(`/schemas/ids/${id}`)).toMatchObject({ schema: ORDER_1 });
  expect(await get(`/schemas/ids/${id}/versions`)).toEqual([{ subject: 's', version: 1 }]);
  expect(await get('/subjects/s/versions/1')).toMatchObject({ id });
  expect(await get('/contexts/.c/subjects/s/versions/1')).toMatchObject({ id: 3_000_000_000 });
  expect((await other.call('POST', '/subjects/t/versions', { body: { schema: ORDER_1 } })).body).toEqual({
    id,
  });
  expect((await other.call('POST', '/subjects/t/versions', { body: { schema: ORDER_2 } })).body).toEqual({
    error_code: 50001,
    message: expect.stringMatching(/ids of context \. are used up at 2147483647/),
  });
  expect(await get(`/schemas/ids/${id + 1}`)).toMatchObject({ error_code: 404 });
  await other.close();
});
