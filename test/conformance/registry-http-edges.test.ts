/** Bodies, names and numbers at the limits of the accepted ranges. Each answer is validated against
 *  the served description. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { guidOf } from '../../src/formats/guid.ts';
import { Conformance, ORDER_1, ORDER_2 } from './registry-http-kit.ts';

let api: Conformance;
beforeEach(async () => {
  api = await Conformance.start({ version: '1.2.3' });
});
afterEach(() => api.close());

const versionsOf = (subject: string): string => `/subjects/${encodeURIComponent(subject)}/versions`;
const bodyOf = async (method: string, path: string, body?: unknown): Promise<unknown> =>
  (await api.call(method, path, { body })).body;

describe('edge values', () => {
  beforeEach(() => api.call('PUT', '/mode?force=true', { body: { mode: 'IMPORT' } }));

  it('ids end at 2^31-1, and no registration gets an id that cannot be read', async () => {
    const id = 2_147_483_647;
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, id })).toEqual({ id });
    expect(await bodyOf('GET', `/schemas/ids/${id}`)).toMatchObject({ schema: ORDER_1 });
    await api.call('PUT', '/mode', { body: { mode: 'READWRITE' } });
    expect(await bodyOf('POST', versionsOf('b'), { schema: ORDER_1 })).toEqual({ id });
    expect(await bodyOf('POST', versionsOf('b'), { schema: ORDER_2 })).toEqual({
      error_code: 50001,
      message: expect.stringMatching(/ids of context \. are used up at 2147483647/),
    });
  });

  it('the registry refuses id 0 and treats version 0 as the next version', async () => {
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, id: 0 })).toEqual({
      error_code: 400,
      message: expect.stringMatching(/^id is not a whole number from 1 to 2\^31-1/),
    });
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, version: -2 })).toEqual({
      error_code: 400,
      message: expect.stringMatching(/^version is not a whole number from 0 to 2\^31-1/),
    });
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, id: 7, version: 0 })).toEqual({ id: 7 });
    expect(await bodyOf('GET', versionsOf('a'))).toEqual([1]);
  });
});

it('a level that is set to null is removed, whatever else the body sets', async () => {
  for (const more of [{}, { normalize: true }]) {
    await api.call('PUT', '/config/s', { body: { compatibility: 'FULL' } });
    expect(await bodyOf('PUT', '/config/s', { compatibility: null, ...more })).toEqual(more);
    expect(await bodyOf('GET', '/config/s?defaultToGlobal=true')).toMatchObject({
      compatibilityLevel: 'BACKWARD',
      ...more,
    });
  }
});

it('an invalid or empty schema gets a verdict if verbose messages are requested', async () => {
  await bodyOf('POST', versionsOf('a'), { schema: ORDER_1 });
  const path = '/compatibility/subjects/a/versions/1?verbose=true';
  expect(await bodyOf('POST', path, { schema: '' })).toEqual({
    is_compatible: false,
    messages: ['Empty schema'],
  });
});

it('a request that names the default context lists only that context', async () => {
  await bodyOf('POST', versionsOf('x'), { schema: ORDER_1 });
  await bodyOf('POST', versionsOf(':.c1:s1'), { schema: ORDER_1 });
  expect(await bodyOf('GET', '/subjects?subjectPrefix=:.:')).toEqual(['x']);
  expect(await bodyOf('GET', '/subjects?subjectPrefix=:.c1:')).toEqual([':.c1:s1']);
  expect(await bodyOf('GET', '/subjects')).toEqual([':.c1:s1', 'x']);
});

it('the registry finds a guid in capital letters', async () => {
  await bodyOf('POST', versionsOf('a'), { schema: ORDER_1 });
  const guid = guidOf({ format: 'AVRO', text: ORDER_1, references: [] });
  expect(await bodyOf('GET', `/schemas/guids/${guid.toUpperCase()}/ids`)).toEqual([{ context: '.', id: 1 }]);
});
