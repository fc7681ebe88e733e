/** Late events that can be queried: their encoding, the engine's own store of them, and GET /late.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EngineQueries } from '../../../src/engine/api/routes.ts';
import { engineRoutes } from '../../../src/engine/api/routes.ts';
import { engineError } from '../../../src/engine/errors.ts';
import { type KeyKind, type KeyPart, type KeyType, keyOfText } from '../../../src/engine/keys/type.ts';
import { FIRED_FAMILIES, FiredStore } from '../../../src/engine/output/fired/store.ts';
import {
  decodeLateEvents,
  isSameKey,
  type LateEvent,
  type LateKey,
  lateEventBytes,
  putLateEvent,
} from '../../../src/engine/output/late/events.ts';
import { LateEventStore, type LatePlace, type LateQuery } from '../../../src/engine/output/late/store.ts';
import type { HttpResponse } from '../../../src/io/http/port.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import { requestOf } from '../access/access-kit.ts';

/** Keys of one job: integers, or bytes. */
const integers = fc.record({
  accountId: fc.oneof(fc.bigInt({ min: 0n, max: 2n }), fc.constant(2n ** 64n - 1n)),
});
const texts = fc.record({
  accountId: fc.constant(0n),
  key: fc.oneof(
    fc.constantFrom('', 'a', 'ab', 'b').map((text) => new Uint8Array(Buffer.from(text))),
    fc.constantFrom(1, 8, 1023, 1024).map((length) => new Uint8Array(length).fill(7)),
  ),
});

const eventsBy = (keys: fc.Arbitrary<LateKey>): fc.Arbitrary<LateEvent> =>
  fc.tuple(places, keys).map(([place, key]) => ({ ...place, ...key }));

const places = fc.record({
  partition: fc.nat({ max: 2 }),
  offset: fc.bigInt({ min: 0n, max: 60n }),
  reason: fc.constantFrom('late' as const, 'late_after_idle' as const),
  eventTs: fc.integer({ min: -20, max: 20 }),
  value: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  watermarkMs: fc.integer({ min: 21, max: 40 }),
  timestampMs: fc.option(fc.bigInt({ min: 0n, max: 2n ** 52n }), { nil: undefined }),
});

/** Late elements of lists. */
const elements: fc.Arbitrary<LateEvent> = fc
  .tuple(eventsBy(integers), fc.nat(3))
  .map(([event, element]) => ({ ...event, element }));

const events = fc.oneof(eventsBy(integers), eventsBy(texts), elements);

const encoded = (some: readonly LateEvent[]): Uint8Array => {
  const bytes = new Uint8Array(some.reduce((sum, event) => sum + lateEventBytes(event), 0));
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (const event of some) {
    putLateEvent(view, bytes, at, event);
    at += lateEventBytes(event);
  }
  return bytes;
};

describe('encoded late events', () => {
  it('late events are decoded unchanged', () => {
    fc.assert(
      fc.property(fc.array(events, { minLength: 1, maxLength: 5 }), (some) => {
        expect(decodeLateEvents({ count: some.length, bytes: encoded(some) })).toEqual({ copies: some });
      }),
    );
  });

  it('damaged late events are refused, whatever the bytes are', () => {
    fc.assert(
      fc.property(
        fc.array(events, { minLength: 1, maxLength: 3 }),
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 3 }),
        fc.nat({ max: 4 }),
        fc.nat({ max: 20 }),
        (some, flips, count, cut) => {
          const whole = encoded(some);
          const bytes = whole.slice(0, whole.length - cut);
          for (const [at, by] of flips) if (bytes.length > 0) bytes[at % bytes.length] = by;
          const decoded = decodeLateEvents({ count, bytes });
          if ('fault' in decoded) expect(decoded.fault).toMatch(/late event/);
          else expect(decoded.copies.length).toBe(count);
        },
      ),
    );
  });
});

describe('store of late events', () => {
  const opened = async (kv: SimKv, keep: number): Promise<LateEventStore> =>
    new LateEventStore(
      await kv.open('fired', { budgetBytes: KV_BUDGET_MIN_BYTES, families: FIRED_FAMILIES }),
      keep,
    );
  const all: LateQuery = { from: -100, to: 100, key: undefined, limit: 10_000, after: undefined };
  const placeOf = ({ partition, offset, element }: LatePlace): string => `${partition}@${offset}.${element}`;

  async function pages(store: LateEventStore, query: LateQuery): Promise<readonly LateEvent[]> {
    const rows: LateEvent[] = [];
    let { after } = query;
    for (let page = 0; page < 1000; page++) {
      const found = await store.find({ ...query, after });
      expect(found.rows.length).toBeLessThanOrEqual(query.limit);
      rows.push(...found.rows);
      if (found.next === undefined) return rows;
      after = found.next;
    }
    throw new Error('the pages have no end');
  }

  it.each([
    ['integers', integers, eventsBy(integers)],
    ['bytes', texts, eventsBy(texts)],
    ['integers of elements', integers, elements],
  ] as const)(
    'the store has the newest events of each partition by keys that are %s, found by time and key in pages of any size',
    async (_what, keys: fc.Arbitrary<LateKey>, late: fc.Arbitrary<LateEvent>) => {
      const queries = fc.record({
        from: fc.integer({ min: -25, max: 25 }),
        to: fc.integer({ min: -25, max: 25 }),
        key: fc.option(keys, { nil: undefined }),
        limit: fc.integer({ min: 1, max: 7 }),
        after: fc.constant(undefined),
      });
      const keeps = fc.integer({ min: 1, max: 20 });
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.array(late, { minLength: 1, maxLength: 30 }), { maxLength: 6 }),
          keeps,
          queries,
          async (sends, keep, query) => {
            const kv = new SimKv();
            let store = await opened(kv, keep);
            const known = new Map<string, LateEvent>();
            for (const [i, send] of sends.entries()) {
              // A record has one content, however often it is sent.
              const some = send.map((event) => known.get(placeOf(event)) ?? event);
              for (const event of some) if (!known.has(placeOf(event))) known.set(placeOf(event), event);
              await store.send(some.map((event) => known.get(placeOf(event)) as LateEvent));
              if (i % 2 === 1) store = new LateEventStore(await reopened(kv, store), keep);
            }
            const found = await pages(store, all);
            for (const partition of [0, 1, 2]) {
              const own = found.filter((event) => event.partition === partition);
              const offsets = [...known.values()]
                .filter((event) => event.partition === partition)
                .sort((a, b) => Number(b.offset - a.offset) || (b.element ?? 0) - (a.element ?? 0));
              // The newest are there, and at most a quarter more than are kept.
              expect(own.slice(-keep).reverse()).toEqual(offsets.slice(0, keep));
              expect(own.length).toBeLessThanOrEqual(keep + Math.max(1, Math.ceil(keep / 4)) - 1);
            }
            const wanted = found.filter(
              (event) =>
                event.eventTs >= query.from &&
                event.eventTs < query.to &&
                (query.key === undefined || isSameKey(event, query.key)),
            );
            expect(await pages(store, query)).toEqual(wanted);
          },
        ),
      );
    },
  );

  /** Store of the same folder; the simulated store stays open. */
  const reopened = async (_: SimKv, store: LateEventStore) =>
    (store as unknown as { readonly store: ConstructorParameters<typeof LateEventStore>[0] }).store;

  it('a store of windows that adopts keys of another type loses the late events by keys of the old one', async () => {
    const kv = await new SimKv().open('fired', {
      ...{ budgetBytes: KV_BUDGET_MIN_BYTES, families: FIRED_FAMILIES },
    });
    const shape = { kind: 'windows', sizeMs: 10, slideMs: 10 } as const;
    const fired = await FiredStore.open(kv, { shape, role: 'beside' });
    const store = new LateEventStore(kv, 10);
    const text: KeyType = [{ name: 'k', kind: 'string' }];
    const base = { partition: 0, offset: 1n, reason: 'late', eventTs: 0, value: 0n, watermarkMs: 9 } as const;
    const late = { ...base, timestampMs: undefined, accountId: 0n, key: Uint8Array.of(65) };
    await fired.bind(text);
    await store.send([late]);
    await fired.bind(text);
    expect(await pages(store, all)).toEqual([late]);
    await fired.bind([{ name: 'k', kind: 'uuid' }]);
    expect(await pages(store, all)).toEqual([]);
  });

  it.each([100, 2500])(
    'a partition with many late events keeps %i of them and no more than a quarter beside, the newest ones',
    async (keep) => {
      const store = await opened(new SimKv(), keep);
      const base = { reason: 'late', accountId: 1n, eventTs: 0, value: 0n, watermarkMs: 9 } as const;
      for (let from = 0; from < 5000; from += 10)
        await store.send(
          Array.from({ length: 10 }, (_, i) => ({
            ...{ ...base, partition: 4, offset: BigInt(from + i), timestampMs: undefined },
          })),
        );
      const found = await pages(store, all);
      expect(found.length).toBeGreaterThanOrEqual(keep);
      expect(found.length).toBeLessThan(1.25 * keep + 10);
      expect(found.at(-1)?.offset).toBe(4999n);
    },
  );
});

describe('GET /late', () => {
  const event: LateEvent = {
    ...{ partition: 2, offset: 7n, reason: 'late', accountId: 2n ** 64n - 5n, eventTs: -3, value: -4n },
    ...{ watermarkMs: 12, timestampMs: undefined },
  };
  let asked: LateQuery | undefined;
  const engineOf = (over: Partial<EngineQueries> = {}): EngineQueries =>
    ({
      restored: true,
      hasSignedKeys: false,
      lateEvents: async (query: LateQuery) => {
        asked = query;
        return { rows: [event], next: query.after === undefined ? event : undefined };
      },
      ...over,
    }) as unknown as EngineQueries;
  async function ask(query: string, engine = engineOf()): Promise<HttpResponse> {
    const route = engineRoutes(() => engine, '1.2.3').find(({ path }) => path === '/late');
    const request = { ...requestOf({ path: '/late' }), query: new URLSearchParams(query), params: {} };
    return (await route?.handler(request)) as HttpResponse;
  }
  const bodyOf = ({ body }: HttpResponse): unknown => JSON.parse(String(body));

  it('the page has the events with reason and watermark, and links to the next page', async () => {
    const first = await ask('key=7&from=-10&to=1970-01-01T00:00:01Z&limit=5');
    expect(asked).toEqual({ from: -10, to: 1000, key: { accountId: 7n }, limit: 5, after: undefined });
    expect([first.status, bodyOf(first)]).toEqual([
      200,
      [
        {
          ...{ account_id: String(2n ** 64n - 5n), event_ts: '-3', value: '-4', reason: 'late' },
          ...{ watermark_ms: '12', partition: 2, offset: '7', timestamp_ms: null },
        },
      ],
    ]);
    const link = /^<\/late\?(.*)>; rel="next"$/.exec(first.headers?.['link'] ?? '')?.[1];
    const second = await ask(link ?? '');
    expect(asked).toMatchObject({ from: -10, key: { accountId: 7n }, after: { partition: 2, offset: 7n } });
    expect(second.headers?.['link']).toBeUndefined();
  });

  it('the element of a list is shown, and is a part of the place behind which a page begins', async () => {
    const rows = [{ ...event, element: 3 }];
    const engine = engineOf({
      lateEvents: async (query: LateQuery) => {
        asked = query;
        return { rows, next: rows[0] };
      },
    });
    const first = await ask('', engine);
    expect(bodyOf(first)).toMatchObject([{ partition: 2, offset: '7', element: 3 }]);
    await ask(/^<\/late\?(.*)>; rel="next"$/.exec(first.headers?.['link'] ?? '')?.[1] ?? '', engine);
    expect(asked?.after).toEqual({ partition: 2, offset: 7n, element: 3 });
  });

  it('a signed key is asked for and shown with its sign', async () => {
    const answer = await ask('key=-5', engineOf({ hasSignedKeys: true }));
    expect(asked?.key).toEqual({ accountId: 2n ** 64n - 5n });
    expect(bodyOf(answer)).toMatchObject([{ account_id: '-5' }]);
  });

  const ID = '00112233-4455-6677-8899-aabbccddeeff';
  const part = (name: string, kind: KeyKind): KeyPart => ({ name, kind });
  it.each([
    [[part('key', 'string')], 'ä,%2C "x"', 'ä,%2C "x"'],
    [[part('k', 'bytes')], '00FF', '00ff'],
    [[part('user.id', 'uuid')], ID.toUpperCase(), ID],
    [
      [part('country', 'string'), part('user.id', 'uuid'), part('n', 'i64')],
      `D%2CE,${ID},-3`,
      { country: 'D,E', id: ID, n: '-3' },
    ],
  ] as const)(
    'a key of the type %j is asked for and shown as windows show it',
    async (keyType, text, shown) => {
      const key = keyOfText(keyType, text) as Uint8Array;
      const late = { ...event, accountId: 0n, key };
      const lateEvents = async (query: LateQuery) => {
        asked = query;
        return { rows: [late], next: undefined };
      };
      const answer = await ask(
        new URLSearchParams({ key: text }).toString(),
        engineOf({ keyType, lateEvents }),
      );
      expect(asked?.key).toEqual({ accountId: 0n, key });
      const [row] = bodyOf(answer) as readonly [object];
      expect(row).toMatchObject({ key: shown, offset: '7' });
      expect(row).not.toHaveProperty('account_id');
      const refused = await ask('key=x,y', engineOf({ keyType: [part('k', 'uuid')], lateEvents }));
      expect([refused.status, bodyOf(refused)]).toMatchObject([400, { code: 'bad_account' }]);
    },
  );

  it.each([
    ['key=x', 'bad_account'],
    ['key=-1', 'bad_account'],
    ['from=yesterday', 'bad_range'],
    ['from=5&to=4', 'bad_range'],
    ['limit=0', 'bad_range'],
    ['limit=10001', 'bad_range'],
    ['cursor=1', 'bad_range'],
    ['cursor=1_-2', 'bad_range'],
    ['cursor=99999999999_2', 'bad_range'],
    ['cursor=1_9223372036854775807', 'bad_range'],
  ])('a query with %s is refused with the code %s', async (query, code) => {
    const answer = await ask(query);
    expect([answer.status, bodyOf(answer)]).toEqual([400, { code, error: expect.any(String) }]);
  });

  it('an engine that keeps no late events answers 404', async () => {
    const lateEvents = async (): Promise<never> => {
      throw engineError('late_not_kept', 'this engine keeps no late events');
    };
    const answer = await ask('', engineOf({ lateEvents }));
    expect([answer.status, bodyOf(answer)]).toMatchObject([404, { code: 'late_not_kept' }]);
  });
});
