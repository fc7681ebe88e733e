/** Decisions of payments without a server: parsing of events, injected copies, and the redelivery
 *  horizon. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MillraceError } from '../../../../src/core/errors.ts';
import { checkTtl } from '../../../../src/outbox/inbox/retention/horizon.ts';
import { orderCreatedPayload } from '../../../../src/outbox/orders/event.ts';
import { copyPlan, type Delivery, DuplicateInjector } from '../../../../src/outbox/payments/duplicates.ts';
import { readPaymentEvent, VALUE_BYTES_MAX } from '../../../../src/outbox/payments/event.ts';
import { toRecord } from '../../../../src/outbox/relay/pipeline/event.ts';

const MSG = '01890a5d-ac96-774b-bcce-b302099a8057';
const ORDER = '01890a5d-ac96-774b-bcce-b302099a8058';
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const read = (text: string) => readPaymentEvent(bytes(text));
const good = {
  msg_id: MSG,
  event_type: 'order.created.v1',
  payload: { order_id: ORDER, account_id: '1', amount_cents: '5', created_at: '2026-01-01T00:00:00.000Z' },
};
const withPayload = (change: object): string =>
  JSON.stringify({ ...good, payload: { ...good.payload, ...change } });
const why = (text: string): string => {
  const event = read(text);
  return event.kind === 'poison' ? event.why : `not poison but ${event.kind}`;
};

describe('payment event reader', () => {
  it('the event reader reads every order that orders writes and the relay publishes', () => {
    fc.assert(
      fc.property(
        fc.uuid(),
        fc.uuid(),
        fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
        fc.bigInt({ min: 1n, max: 2n ** 63n - 1n }),
        fc.date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true }),
        (msgId, orderId, accountId, amountCents, createdAt) => {
          const payload = orderCreatedPayload(orderId, { accountId, amountCents }, createdAt);
          const row = {
            id: 1n,
            aggregateId: orderId,
            msgId,
            eventType: 'order.created.v1',
            payload,
            createdAt,
          };
          expect(readPaymentEvent(toRecord(row, 'poll').value as Uint8Array)).toEqual({
            kind: 'order',
            msgId,
            orderId,
            amountCents,
            createdMs: createdAt.getTime(),
          });
        },
      ),
    );
  });

  it('the event reader ignores member order, blanks, escapes, upper case and unknown members', () => {
    const text = `{ "payload" : { "more": [1, {"order_id": "}"}], "amount_cents" : 9223372036854775807 ,
      "account_id":-3,"\\u006frder_id":"${ORDER.toUpperCase()}" , "note": "a \\"quoted\\" } brace, \\\\" },
      "x": {"msg_id": 1}, "event_type":"order.created.v1", "msg_id" : "${MSG.toUpperCase()}"}`;
    expect(read(text)).toEqual({
      kind: 'order',
      msgId: MSG,
      orderId: ORDER,
      amountCents: 9_223_372_036_854_775_807n,
      createdMs: undefined,
    });
  });

  it('the event reader skips unknown event types, whatever their payload', () => {
    for (const payload of [{}, null, 'text', { order_id: 1 }])
      expect(read(JSON.stringify({ ...good, event_type: 'order.cancelled.v1', payload }))).toEqual({
        kind: 'other',
        eventType: 'order.cancelled.v1',
      });
  });

  const refused: ReadonlyArray<readonly [text: string, reason: RegExp]> = [
    ['', /not JSON/],
    ['{"msg_id":', /not JSON/],
    [`${JSON.stringify(good)}x`, /not JSON/],
    [`\uFEFF${JSON.stringify(good)}`, /not JSON/],
    ['[]', /not an object/],
    ['null', /not an object/],
    ['{}', /msg_id/],
    [JSON.stringify({ ...good, msg_id: 7 }), /msg_id/],
    [JSON.stringify({ ...good, msg_id: `${MSG}0` }), /msg_id/],
    [JSON.stringify({ ...good, event_type: '' }), /event_type/],
    [JSON.stringify({ ...good, event_type: 'x'.repeat(201) }), /event_type/],
    [JSON.stringify({ ...good, payload: [good.payload] }), /payload is not an object/],
    [JSON.stringify({ msg_id: MSG, event_type: 'order.created.v1' }), /payload is not an object/],
    [JSON.stringify(good).replace('{', `{"msg_id":"${MSG}",`), /"msg_id" twice/],
    [
      withPayload({}).replace('"amount_cents"', '"\\u0061mount_cents":"6","amount_cents"'),
      /"amount_cents" twice/,
    ],
    [withPayload({ order_id: 'no' }), /order_id/],
    [withPayload({ order_id: null }), /order_id/],
    [withPayload({ account_id: 1.5 }), /account_id/],
    [withPayload({ account_id: '9223372036854775808' }), /account_id/],
    [withPayload({ amount_cents: '0' }), /above zero/],
    [withPayload({ amount_cents: -5 }), /above zero/],
    [withPayload({ amount_cents: '5 ' }), /amount_cents/],
    [withPayload({ amount_cents: '05' }), /amount_cents/],
    [withPayload({ amount_cents: true }), /amount_cents/],
    [withPayload({}).replace('"5"', '1e3'), /amount_cents/],
    [withPayload({ note: 'x'.repeat(VALUE_BYTES_MAX) }), /at most/],
  ];
  it.each(refused.map(([text, reason]) => [reason.source, text.slice(0, 120), text, reason] as const))(
    'the event reader gives the reason %s for the event %s',
    (_reason, _head, text, expected) => {
      expect(why(text)).toMatch(expected);
    },
  );

  it('the event reader refuses bytes that are not UTF-8, and a tombstone', () => {
    const broken = bytes(JSON.stringify(good));
    broken[20] = 0xff;
    expect(readPaymentEvent(broken)).toMatchObject({ kind: 'poison', why: expect.stringMatching(/UTF-8/) });
    expect(readPaymentEvent(null)).toMatchObject({ kind: 'poison' });
  });

  it('the event reader gives a reason that PostgreSQL can store for any bytes and any nesting', () => {
    expect(why('['.repeat(30_000) + ']'.repeat(30_000))).toMatch(/not an object|not JSON/);
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 200 }), fc.json().map(bytes)), (value) => {
        const event = readPaymentEvent(value);
        if (event.kind === 'poison') expect(event.why).not.toContain('\u0000');
      }),
    );
  });

  it('the event reader reads the same members as JSON.parse in any document', () => {
    const member = fc.record({ name: fc.string(), value: fc.jsonValue() });
    fc.assert(
      fc.property(fc.uniqueArray(member, { selector: (one) => one.name }), fc.nat(4), (members, indent) => {
        const extra = Object.fromEntries(members.map(({ name, value }) => [`x${name}`, value]));
        const text = JSON.stringify(
          { ...extra, ...good, payload: { ...extra, ...good.payload } },
          null,
          indent,
        );
        expect(read(text)).toMatchObject({ kind: 'order', msgId: MSG, orderId: ORDER, amountCents: 5n });
      }),
    );
  });
});

const delivery = (partition: number, offset: bigint): Delivery => ({
  topic: 't',
  partition,
  offset,
  key: bytes(`k${offset}`),
  value: bytes(`v${offset}`),
  event: { kind: 'other', eventType: 'x' },
  injected: false,
});

describe('injected copies', () => {
  const place = (one: Delivery): string => `${one.partition}/${one.offset}`;

  it('the injector copies about the given share of records, half of them for a later batch', () => {
    for (const rate of [0.05, 0.3, 1]) {
      const plans = Array.from({ length: 20_000 }, (_, i) => copyPlan(1, rate, i % 4, BigInt(i >> 2)));
      const copies = plans.filter((plan) => plan !== 'none').length;
      expect(copies / 20_000).toBeGreaterThan(rate * 0.9);
      expect(copies / 20_000).toBeLessThanOrEqual(Math.min(1, rate * 1.1));
      const later = plans.filter((plan) => plan === 'later_batch').length;
      expect(later / copies).toBeGreaterThan(0.4);
      expect(later / copies).toBeLessThan(0.6);
    }
    expect(copyPlan(1, 0, 0, 0n)).toBe('none');
  });

  it('the injected copies are the same for a seed at any batch size, and differ for another seed', () => {
    const copied = (seed: number, sizes: readonly number[]): string[] => {
      const injector = new DuplicateInjector(seed, 0.2);
      const copies: string[] = [];
      let at = 0;
      for (const size of sizes) {
        const batch = Array.from({ length: size }, (_, i) => delivery((at + i) % 3, BigInt(at + i)));
        at += size;
        for (const one of injector.inject(batch)) if (one.injected) copies.push(place(one));
      }
      for (const one of injector.rest()) copies.push(place(one));
      return copies.sort();
    };
    fc.assert(
      fc.property(
        fc.nat(),
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 1, max: 50 }),
        (seed, a, b) => {
          const whole = copied(seed, [300]);
          const sizes = (size: number): number[] => [
            ...Array.from({ length: Math.floor(300 / size) }, () => size),
            300 % size,
          ];
          expect(copied(seed, sizes(a))).toEqual(whole);
          expect(copied(seed, sizes(b))).toEqual(whole);
          expect(new Set(whole).size).toBe(whole.length);
        },
      ),
      { numRuns: 20 },
    );
    expect(copied(1, [300])).not.toEqual(copied(2, [300]));
  });

  it('a copy follows its record, and a later copy keeps its bytes when the batch is refilled', () => {
    const injector = new DuplicateInjector(3, 1);
    const first = Array.from({ length: 40 }, (_, i) => delivery(0, BigInt(i)));
    const out = injector.inject(first);
    out.forEach((one, i) => {
      if (one.injected) expect(place(out[i - 1] as Delivery)).toBe(place(one));
    });
    expect(out.length + injector.waitingCount).toBe(80);
    for (const { key, value } of first) {
      key?.fill(0);
      value?.fill(0);
    }
    const held = injector.inject([]);
    expect(held.length).toBe(80 - out.length);
    for (const one of held) expect(new TextDecoder().decode(one.value as Uint8Array)).toBe(`v${one.offset}`);
  });

  it('copies of revoked partitions are not delivered', () => {
    const injector = new DuplicateInjector(3, 1);
    injector.inject(Array.from({ length: 100 }, (_, i) => delivery(i % 2, BigInt(i))));
    injector.forget(new Set([1]));
    const rest = injector.rest();
    expect(rest.length).toBeGreaterThan(0);
    expect(rest.every((one) => one.partition === 0)).toBe(true);
  });
});

describe('redelivery horizon', () => {
  const HOUR = 3_600_000;
  const parts = {
    topicRetentionMs: 24 * HOUR,
    relayOutageMs: 12 * HOUR,
    consumerOutageMs: 6 * HOUR,
    clockSkewMs: 60_000,
  };
  const horizonMs = 42 * HOUR + 60_000;

  it('the redelivery horizon is the sum of its parts, the default TTL and the least accepted TTL', () => {
    expect(checkTtl(undefined, parts, false)).toMatchObject({ ttlMs: horizonMs, horizonMs, marginMs: 0 });
    expect(checkTtl(horizonMs, parts, false).marginMs).toBe(0);
    expect(checkTtl(horizonMs + 5, parts, false).marginMs).toBe(5);
  });

  it('a TTL below the horizon is refused with the arithmetic, unless it is overridden', () => {
    let thrown: unknown;
    try {
      checkTtl(horizonMs - 1, parts, false);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(MillraceError);
    const error = thrown as MillraceError;
    expect(error.code).toBe('ttl_below_horizon');
    expect(error.row.exit).toBe(2);
    expect(error.message).toContain(
      '1d topic retention + 12h relay outage + 6h consumer outage + 1m clock skew = 2521m',
    );
    expect(error.next).toContain('-dedup-ttl=2521m');
    expect(checkTtl(horizonMs - 1, parts, true).marginMs).toBe(-1);
  });
});
