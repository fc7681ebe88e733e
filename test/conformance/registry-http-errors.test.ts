/** Every error_code of the interface with its status and message. Each answer is validated against
 *  the served description. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fastestDriver } from '../http-driver.ts';
import { matching, ROWS } from './registry-http-error-rows.ts';
import { Conformance, field, ORDER_1, ORDER_2, ORDER_BROKEN, record, TYPE } from './registry-http-kit.ts';

let api: Conformance;
let last: Conformance;
beforeAll(async () => {
  api = await Conformance.start();
  last = await Conformance.start({ wire: 8, pageMax: 3 }, { driver: fastestDriver });
  for (const one of [api, last]) {
    await one.register('orders', ORDER_1);
    await one.register('orders', ORDER_2);
    await one.register('deleted', ORDER_1);
    await one.call('DELETE', '/subjects/deleted');
    await one.register('partly', ORDER_1);
    await one.register('partly', ORDER_2);
    await one.call('DELETE', '/subjects/partly/versions/1');
    await one.register('item', record('Item', field('sku', 'string')));
    await one.register('basket', record('Basket', field('item', 'Item')), {
      references: [{ name: 'Item', subject: 'item', version: 1 }],
    });
    await one.call('PUT', '/mode/frozen', { body: { mode: 'READONLY' } });
  }
});
afterAll(async () => {
  await api.close();
  await last.close();
});

const statusOf = (number: number): number => (number > 999 ? Math.floor(number / 100) : number);

describe.each([
  ['generation 7, node:http', () => api],
  ['generation 8, uWebSockets.js', () => last],
] as const)('%s', (_name, server) => {
  it.each(ROWS)(
    'the registry answers with the listed error code for: %s',
    async (_what, method, path, body, number, message) => {
      const answer = await server().call(method, path, { body });
      expect(answer.body).toEqual({ error_code: number, message });
      expect(answer.status).toBe(statusOf(number));
      expect(answer.type).toBe(TYPE);
    },
  );
});

it('refused requests change nothing that is stored', async () => {
  for (const one of [api, last]) {
    expect((await one.call('GET', '/subjects?limit=3')).body).toEqual(['basket', 'item', 'orders']);
    expect((await one.call('GET', '/subjects/orders/versions')).body).toEqual([1, 2]);
  }
});

describe('differences between the wire generations', () => {
  it('an incompatible schema is answered with 409 or 40901', async () => {
    const call = { body: { schema: ORDER_BROKEN } };
    const old = await api.call('POST', '/subjects/orders/versions', call);
    expect([old.status, (old.body as { error_code: number }).error_code]).toEqual([409, 409]);
    const recent = await last.call('POST', '/subjects/orders/versions', call);
    expect([recent.status, (recent.body as { error_code: number }).error_code]).toEqual([409, 40901]);
    expect((recent.body as { message: string }).message).toBe((old.body as { message: string }).message);
  });

  it('another schema type in one subject is refused', async () => {
    const body = { schema: 'syntax = "proto3"; message M {}', schemaType: 'PROTOBUF' };
    expect((await api.call('POST', '/subjects/orders/versions', { body })).body).toEqual({
      error_code: 409,
      message: matching(/[Ii]ncompatible because of different schema type/),
    });
  });

  it('a list over the limit is refused with advice on how to page', async () => {
    expect((await last.call('GET', '/subjects')).body).toEqual({
      error_code: 400,
      message:
        'an answer of 4 items is over the limit -page-max=3; ask for it in pages with offset and limit',
    });
    expect((await last.call('GET', '/schemas?limit=4')).status).toBe(400);
    expect((await last.call('GET', '/subjects?offset=3&limit=3')).body).toEqual(['partly']);
  });
});

describe('content types', () => {
  it.each<readonly [accept: string, type: string | undefined]>([
    ['application/vnd.schemaregistry.v1+json', TYPE],
    ['application/vnd.schemaregistry+json', 'application/vnd.schemaregistry+json'],
    ['application/json', 'application/json'],
    ['application/json, application/vnd.schemaregistry.v1+json', TYPE],
    ['application/json;q=0.9, application/vnd.schemaregistry.v1+json;q=0.8', 'application/json'],
    ['application/vnd.schemaregistry.v1+json; q=0.9, application/json; q=0.5', TYPE],
    ['text/html, */*;q=0.1', TYPE],
    ['*/*', TYPE],
    ['application/*', TYPE],
    ['', TYPE],
    ['APPLICATION/JSON', 'application/json'],
    ['application/vnd.schemaregistry.v1+json;q=0, */*', 'application/vnd.schemaregistry+json'],
    ['application/json; charset=utf-8', 'application/json'],
    ['text/html', undefined],
    ['application/octet-stream', undefined],
    ['application/json;q=0', undefined],
    ['application/json;q=0.0, text/*', undefined],
  ])('the registry negotiates the header accept: %s', async (accept, type) => {
    const answer = await api.call('GET', '/subjects', { headers: { accept } });
    if (type === undefined)
      expect(answer.body).toEqual({ error_code: 406, message: 'HTTP 406 Not Acceptable' });
    else expect([answer.status, answer.type]).toEqual([200, type]);
  });

  it.each<readonly [type: string, isAccepted: boolean]>([
    ['application/json; charset=utf-8', true],
    ['application/vnd.schemaregistry+json', true],
    ['application/octet-stream', true],
    ['Application/JSON;charset="UTF-8"', true],
    ['text/plain', false],
    ['application/xml', false],
    ['application/x-www-form-urlencoded', false],
    ['application/json; charset=utf-16', true],
  ])('the registry handles the header content-type: %s', async (type, isAccepted) => {
    const answer = await api.call('POST', '/subjects/typed/versions', {
      body: { schema: ORDER_1 },
      headers: { 'content-type': type },
    });
    if (isAccepted) expect(answer.status).toBe(200);
    else expect(answer.body).toEqual({ error_code: 415, message: 'HTTP 415 Unsupported Media Type' });
  });

  it.each<readonly [coding: string, status: number]>([
    ['identity', 200],
    ['gzip', 415],
  ])('the registry handles the header content-encoding: %s', async (coding, status) => {
    const answer = await api.call('POST', '/subjects/coded/versions', {
      body: { schema: ORDER_1 },
      headers: { 'content-type': TYPE, 'content-encoding': coding },
    });
    expect(answer.status).toBe(status);
    if (status === 415)
      expect(answer.body).toMatchObject({
        error_code: 415,
        message: expect.stringMatching(/Content-Encoding/),
      });
  });
});
