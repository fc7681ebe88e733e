/** Compares edge cases of the interface with the existing registries: unknown paths, ranges of
 *  Accept, charsets, texts of refusals, and bodies without a property. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Conformance, ORDER_1, ORDER_2, TYPE } from './registry-http-kit.ts';

let api: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
  await api.register('orders', ORDER_1);
  await api.register('orders', ORDER_2);
});
afterAll(() => api.close());

const NO_PATH = { error_code: 404, message: 'HTTP 404 Not Found' };
const unknownId = (id: number): object => ({ error_code: 40403, message: `Schema ${id} not found` });

describe('id in a path', () => {
  it.each<readonly [id: string, expected: object]>([
    ['abc', NO_PATH],
    ['1.5', NO_PATH],
    ['1e3', NO_PATH],
    ['0x1', NO_PATH],
    ['%201', NO_PATH],
    ['1%20', NO_PATH],
    ['9999999999', NO_PATH],
    ['99999999999999999999', NO_PATH],
    ['-9999999999', NO_PATH],
    ['0', unknownId(0)],
    ['-1', unknownId(-1)],
    ['2147483647', unknownId(2147483647)],
    ['4000', unknownId(4000)],
  ])('the id %s in a path is answered with 404', async (id, expected) => {
    for (const more of ['', '/schema', '/subjects', '/versions', '?subject=orders']) {
      const answer = await api.target('GET', `/schemas/ids/${id}${more}`);
      expect(answer.status).toBe(404);
      expect(answer.body).toEqual(expected);
    }
  });
  it.each(['1', '+1', '0001'])('the id %s in a path names the first schema', async (id) => {
    expect((await api.target('GET', `/schemas/ids/${id}`)).body).toMatchObject({ schema: ORDER_1 });
  });
});

describe('header Accept', () => {
  it.each([
    ['*/x', TYPE],
    ['*/json', TYPE],
    ['*/x;q=0.1', TYPE],
    ['text/html, */x', TYPE],
    ['*/x, application/json', TYPE],
    ['application/json;charset=utf-8', 'application/json'],
    ['application/json; charset=ISO-8859-1', 'application/json'],
    ['application/vnd.schemaregistry.v1+json; charset=utf-16', TYPE],
  ])('a request that accepts %s is answered in %s', async (accept, type) => {
    const answer = await api.call('GET', '/subjects', { headers: { accept } });
    expect(answer.status).toBe(200);
    expect(answer.type).toBe(type);
  });
  it.each(['text/html', 'application/xml', 'x/*'])(
    'a request that accepts only %s is refused with 406',
    async (accept) => {
      const answer = await api.call('GET', '/subjects', { headers: { accept } });
      expect(answer.body).toMatchObject({ error_code: 406 });
    },
  );
});

describe('body charset', () => {
  it.each([
    'utf-8',
    'UTF8',
    '"utf-8"',
    'us-ascii',
    'iso-8859-1',
    'ISO-8859-15',
    'windows-1252',
    'utf-16',
    'nonsense',
  ])('a body is read as UTF-8 although it declares charset %s', async (charset) => {
    const headers = { 'content-type': `application/json; charset=${charset}` };
    const schema = ORDER_1.replace('"fields"', '"doc":"größe","fields"');
    const first = await api.call('POST', '/subjects/charset/versions', { headers, body: { schema } });
    expect(first.status, first.text).toBe(200);
    expect((await api.call('GET', '/subjects/charset/versions/latest')).body).toMatchObject({ schema });
  });
  it('another parameter of the content type is ignored too', async () => {
    const headers = { 'content-type': `${TYPE}; version=1` };
    expect((await api.call('POST', '/subjects/orders', { headers, body: { schema: ORDER_1 } })).status).toBe(
      200,
    );
  });
});

it('refusals of a delete use the messages of the existing registries', async () => {
  const said = async (path: string): Promise<unknown> => (await api.call('DELETE', path)).body;
  await api.register('gone', ORDER_1);
  await api.register('gone', ORDER_2);
  const [subject, version] = ['/subjects/gone', '/subjects/gone/versions/1'];
  expect(await said(`${version}?permanent=true`)).toEqual({
    error_code: 40407,
    message: "Subject 'gone' Version 1 was not deleted first before being permanently deleted",
  });
  expect(await said(`${subject}?permanent=true`)).toEqual({
    error_code: 40405,
    message: "Subject 'gone' was not deleted first before being permanently deleted",
  });
  expect(await said(version)).toBe(1);
  expect(await said(version)).toEqual({
    error_code: 40406,
    message: "Subject 'gone' Version 1 was soft deleted.Set permanent=true to delete permanently",
  });
  expect(await said(subject)).toEqual([2]);
  expect(await said(subject)).toEqual({
    error_code: 40404,
    message: "Subject 'gone' was soft deleted.Set permanent=true to delete permanently",
  });
});

describe('body without a property', () => {
  const LATEST = { id: 2 };
  const EMPTY = { error_code: 42201, message: 'Empty schema' };
  it.each<readonly [method: string, path: string, body: object, expected: object]>([
    ['POST', '/subjects/orders/versions', {}, LATEST],
    ['POST', '/subjects/orders/versions', { schema: null }, LATEST],
    ['POST', '/subjects/orders/versions', { schema: '' }, LATEST],
    ['POST', '/subjects/orders/versions', { schema: '  ' }, LATEST],
    ['POST', '/subjects/orders/versions', { schemaType: 'JSON' }, LATEST],
    ['POST', '/subjects/nothing/versions', {}, EMPTY],
    ['POST', '/subjects/nothing/versions', { metadata: { properties: { a: 'b' } } }, EMPTY],
    ['POST', '/subjects/orders', {}, { error_code: 40403, message: 'Schema not found' }],
    ['POST', '/subjects/nothing', {}, { error_code: 40401, message: "Subject 'nothing' not found." }],
    ['POST', '/compatibility/subjects/orders/versions', {}, EMPTY],
    ['POST', '/compatibility/subjects/orders/versions/latest', { schema: '' }, EMPTY],
    ['PUT', '/config', {}, {}],
    ['PUT', '/config/orders', {}, {}],
    ['PUT', '/config/orders', { unknown: 1 }, {}],
    ['GET', '/config', {}, { compatibilityLevel: 'BACKWARD' }],
  ])(
    "a request without a property gets the existing registries' answer: %s %s %j",
    async (method, path, body, expected) => {
      const sent = method === 'GET' ? {} : { body };
      expect((await api.call(method, path, sent)).body).toEqual(expected);
    },
  );
  it('metadata alone creates a version with the text that the subject has', async () => {
    const metadata = { properties: { owner: 'team' } };
    await api.register('described', ORDER_1);
    await api.call('POST', '/subjects/described/versions', { body: { metadata } });
    expect((await api.call('GET', '/subjects/described/versions/2')).body).toMatchObject({
      schema: ORDER_1,
      metadata,
    });
  });
});
