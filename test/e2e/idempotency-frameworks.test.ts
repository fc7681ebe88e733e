/** Promises of an idempotent endpoint, each on every framework and a real database. */
import { beforeAll, describe, expect, it } from 'vitest';
import {
  FRAMEWORKS,
  newKey,
  openShop,
  pay,
  post,
  type Shop,
  type Started,
  startShop,
} from './idempotency-kit.ts';

const problem = (code: string): string => `urn:millrace:problem:${code}`;

describe.each(FRAMEWORKS)('an idempotent endpoint of %s', (framework) => {
  let shop: Shop;
  let at: Started;

  beforeAll(async () => {
    shop = await openShop();
    at = await startShop(framework, shop);
  });

  it('a repeated request gets status, listed headers and bytes of the first answer, and pays once', async () => {
    const key = newKey();
    const first = await post(at.url, key, { cents: 5 });
    expect([first.status, first.headers.get('idempotency-replayed')]).toEqual([201, 'false']);
    expect(first.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
    expect(first.headers.get('idempotent-replayed')).toBeNull();
    const again = await post(at.url, key, { cents: 5 });
    expect([again.status, again.text]).toEqual([201, first.text]);
    expect(again.text).toMatch(/^\{"z": 1, "id":"\d+","ü":"€"\}$/);
    for (const name of ['content-type', 'location'])
      expect(again.headers.get(name), name).toBe(first.headers.get(name));
    expect(again.headers.get('location')).toMatch(/^\/payments\/\d+$/);
    expect([again.headers.getSetCookie(), again.headers.get('x-internal')]).toEqual([[], null]);
    expect([again.headers.get('idempotency-replayed'), again.headers.get('idempotent-replayed')]).toEqual([
      'true',
      'true',
    ]);
    expect(await shop.payments(key)).toBe(1);
  });

  it('64 concurrent callers of one key get the same bytes, and the handler pays once', async () => {
    const key = newKey();
    const all = await Promise.all(Array.from({ length: 64 }, () => post(at.url, key, { cents: 5 })));
    expect(new Set(all.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(all[0]?.status).toBe(201);
    expect(all.filter(({ headers }) => headers.get('idempotency-replayed') === 'false')).toHaveLength(1);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a handler that throws leaves neither payment nor record, its framework answers, and a retry executes', async () => {
    const key = newKey();
    const failed = await post(at.url, key, { cents: 5, fault: 'throws' });
    expect(failed.status).toBe(500);
    if (framework === 'express') expect(failed.text).toBe('by express');
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
    expect((await post(at.url, key, { cents: 5 })).status).toBe(201);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a server error is sent, not stored, and its transaction is rolled back', async () => {
    const key = newKey();
    const refused = await post(at.url, key, { cents: 5, fault: 'refuses' });
    expect([refused.status, refused.headers.get('location') !== null]).toEqual([503, true]);
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
    expect((await post(at.url, key, { cents: 6 })).status).toBe(201);
  });

  it('a missing or malformed key is a problem document with status 400, and nothing is executed', async () => {
    for (const key of [undefined, '', 'two words', 'x'.repeat(256), '"open', 'a, b']) {
      const refused = await post(at.url, key, { cents: 1 });
      expect([key, refused.status]).toEqual([key, 400]);
      expect(refused.headers.get('content-type')).toBe('application/problem+json');
      expect(refused.problem()).toMatchObject({
        type: problem('bad-idempotency-key'),
        status: 400,
        instance: '/payments',
      });
    }
    const longest = '~'.repeat(255);
    expect((await post(at.url, longest, { cents: 1 })).status).toBe(201);
    expect(await shop.payments(longest)).toBe(1);
  });

  it('another body under the same key is refused with 409 and changes nothing', async () => {
    const key = newKey();
    const first = await post(at.url, key, { cents: 5 });
    const other = await post(at.url, key, { cents: 6 });
    expect([other.status, other.headers.get('content-type')]).toEqual([409, 'application/problem+json']);
    expect(other.problem()).toMatchObject({ type: problem('idempotency-key-reuse'), idempotency_key: key });
    expect((await post(at.url, key, { cents: 5 })).text).toBe(first.text);
    expect(await shop.payments(key)).toBe(1);
  });

  it('the same key of two tenants is two keys, and neither replays the answer of the other', async () => {
    const key = newKey();
    const [one, two] = await Promise.all([
      post(at.url, key, { cents: 5 }, { 'x-tenant': 'one' }),
      post(at.url, key, { cents: 6 }, { 'x-tenant': 'two' }),
    ]);
    expect([one.status, two.status]).toEqual([201, 201]);
    expect(one.text).not.toBe(two.text);
    expect((await shop.records(key)).map(({ scope }) => scope)).toEqual(['one', 'two']);
  });

  it('an answer above the limit of stored bytes is refused, and its transaction is rolled back', async () => {
    const key = newKey();
    const large = await post(at.url, key, { cents: 5, fault: 'large' });
    expect(large.status).toBe(500);
    expect(large.problem()).toMatchObject({ type: problem('answer-too-large') });
    expect(large.headers.getSetCookie()).toEqual([]);
    expect([await shop.payments(key), await shop.records(key)]).toEqual([0, []]);
  });

  it('a commit that the database refuses is answered with 500, and nothing is stored', async () => {
    await shop.pool.query('DELETE FROM payments');
    await shop.pool.query('ALTER TABLE payments ADD UNIQUE (cents) DEFERRABLE INITIALLY DEFERRED');
    const failing = await startShop(framework, shop, {}, async (tx, key, body) => {
      await pay(tx, key, body);
      return pay(tx, key, body);
    });
    const key = newKey();
    const refused = await post(failing.url, key, { cents: 77 });
    expect([refused.status, await shop.payments(key), await shop.records(key)]).toEqual([500, 0, []]);
    await shop.pool.query('ALTER TABLE payments DROP CONSTRAINT payments_cents_key');
  });
});
