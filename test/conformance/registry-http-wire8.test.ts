/** -wire=8: the newer bodies, as far as they differ from -wire=7. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { fastestDriver } from '../http-driver.ts';
import { realClock } from '../wait.ts';
import { Conformance, field, ORDER_1, ORDER_2, record } from './registry-http-kit.ts';

let api: Conformance;
const GUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const guid = expect.stringMatching(GUID);

beforeAll(async () => {
  api = await Conformance.start({ wire: 8 }, { driver: fastestDriver });
});
afterAll(() => api.close());

const body = async (method: string, path: string, sent?: unknown): Promise<unknown> => {
  const answer = await api.call(method, path, { body: sent });
  expect(answer.status, answer.text).toBe(200);
  return answer.body;
};

it('a registration is answered with the complete version, and so is a repeated registration', async () => {
  const before = realClock.wallNowMs();
  const first = await body('POST', '/subjects/orders/versions', { schema: ORDER_1 });
  expect(first).toEqual({
    id: 1,
    version: 1,
    guid,
    schemaType: 'AVRO',
    schema: ORDER_1,
    ts: expect.any(Number),
  });
  const { ts } = first as { ts: number };
  expect(ts).toBeGreaterThanOrEqual(before);
  expect(ts).toBeLessThanOrEqual(realClock.wallNowMs());
  expect(await body('POST', '/subjects/orders/versions', { schema: ORDER_1 })).toEqual(first);
});

it('versions and schemas carry a guid, which is the same for the same content anywhere', async () => {
  const metadata = { properties: { owner: 'team' } };
  const references = [{ name: 'Item', subject: 'item', version: 1 }];
  await body('POST', '/subjects/item/versions', { schema: record('Item', field('sku', 'string')) });
  const basket = { schema: record('Basket', field('item', 'Item')), references, metadata };
  const { id } = (await body('POST', '/subjects/basket/versions', basket)) as { id: number };
  const version = await body('GET', '/subjects/basket/versions/1');
  expect(version).toEqual({
    subject: 'basket',
    version: 1,
    id,
    guid,
    schemaType: 'AVRO',
    references,
    metadata,
    schema: basket.schema,
    ts: expect.any(Number),
  });
  const schema = await body('GET', `/schemas/ids/${id}`);
  expect(schema).toEqual({ guid, schemaType: 'AVRO', references, metadata, schema: basket.schema });
  expect(await body('GET', `/schemas/ids/${id}?subject=basket`)).toEqual({
    ...(schema as object),
    subject: 'basket',
    version: 1,
  });
  const own = (schema as { guid: string }).guid;
  expect(await body('GET', `/schemas/guids/${own}`)).toEqual(schema);
  await body('POST', '/contexts/.other/subjects/item/versions', {
    schema: record('Item', field('sku', 'string')),
  });
  const there = await body('POST', '/contexts/.other/subjects/basket/versions', basket);
  expect(there).toMatchObject({ id: 2, guid: own });
  expect(await body('GET', `/schemas/guids/${own}/ids`)).toEqual([
    { context: '.', id },
    { context: '.other', id: 2 },
  ]);
  expect(
    await body('GET', '/contexts/.other/subjects/basket/versions/1?referenceFormat=qualified'),
  ).toMatchObject({
    references: [{ name: 'Item', subject: ':.other:item', version: 1 }],
  });
  expect(await body('GET', '/contexts/.other/schemas/ids/2?referenceFormat=qualified')).toMatchObject({
    references: [{ subject: ':.other:item' }],
  });
});

it('a deleted version is marked as deleted', async () => {
  await body('POST', '/subjects/orders/versions', { schema: ORDER_2 });
  await body('DELETE', '/subjects/orders/versions/1');
  expect(await body('GET', '/subjects/orders/versions/1?deleted=true')).toMatchObject({
    version: 1,
    deleted: true,
  });
  expect(await body('GET', '/subjects/orders/versions/2')).not.toHaveProperty('deleted');
  expect(await body('GET', '/schemas?subjectPrefix=orders&deleted=true')).toMatchObject([
    { version: 1, deleted: true },
    { version: 2 },
  ]);
});
