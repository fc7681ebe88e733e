/** Bodies, names and numbers at the edge of what is taken, each answer held to the served description. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Conformance, ORDER_1, ORDER_2 } from './registry-http-kit.ts';

let api: Conformance;
beforeEach(async () => {
  api = await Conformance.start({ version: '1.2.3' });
});
afterEach(() => api.close());

const versionsOf = (subject: string): string => `/subjects/${encodeURIComponent(subject)}/versions`;
const bodyOf = async (method: string, path: string, body?: unknown): Promise<unknown> =>
  (await api.call(method, path, { body })).body;

describe('ids', () => {
  beforeEach(() => api.call('PUT', '/mode?force=true', { body: { mode: 'IMPORT' } }));

  it('end at 2^31-1: no registration is given one that cannot be read', async () => {
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

  it('begin at 1: an id 0 is refused, a version 0 is the next one', async () => {
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, id: 0 })).toEqual({
      error_code: 400,
      message: expect.stringMatching(/^id is not a whole number from 1 to 2\^31-1/),
    });
    expect(await bodyOf('POST', versionsOf('a'), { schema: ORDER_1, id: 7, version: 0 })).toEqual({ id: 7 });
    expect(await bodyOf('GET', versionsOf('a'))).toEqual([1]);
  });
});
