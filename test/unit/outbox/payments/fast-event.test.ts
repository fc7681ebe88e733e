/** The fast path for our own events agrees with the full parser. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { orderCreatedPayload } from '../../../../src/outbox/orders/event.ts';
import { readPaymentEvent } from '../../../../src/outbox/payments/event.ts';
import { readEventFast } from '../../../../src/outbox/payments/fast-event.ts';
import { toRecord } from '../../../../src/outbox/relay/pipeline/event.ts';
import { runs } from '../../../tier.ts';

const INT64_MAX = 2n ** 63n - 1n;

function valueBytes(
  msgId: string,
  orderId: string,
  accountId: bigint,
  amountCents: bigint,
  at: Date,
): Buffer {
  const row = {
    id: 1n,
    aggregateId: orderId,
    msgId,
    eventType: 'order.created.v1',
    payload: orderCreatedPayload(orderId, { accountId, amountCents }, at),
    createdAt: at,
  };
  return Buffer.from(toRecord(row, 'poll').value as Uint8Array);
}

const fast = fc
  .tuple(
    fc.uuid(),
    fc.uuid(),
    fc.oneof(fc.bigInt({ min: -(2n ** 63n), max: INT64_MAX }), fc.constantFrom(-(2n ** 63n), INT64_MAX, 0n)),
    fc.oneof(fc.bigInt({ min: 1n, max: INT64_MAX }), fc.constantFrom(1n, INT64_MAX)),
    fc.date({ min: new Date(0), max: new Date('2100-01-01'), noInvalidDate: true }),
  )
  .map((parts) => valueBytes(...parts));

const whole = (value: Buffer) => readEventFast(value, 0, value.length);

describe('fast event parser', () => {
  it('the fast parser parses every event that orders writes and the relay publishes', () => {
    fc.assert(
      fc.property(fast, (value) => {
        const event = whole(value);
        expect(event?.kind).toBe('order');
        expect(event).toEqual(readPaymentEvent(value));
      }),
    );
  });

  it('the fast parser agrees with the full parser or defers to it, for any replaced bytes', () => {
    const pieces = fc.oneof(
      fc.string({ maxLength: 3 }),
      fc.constantFrom('"', '\\', '0', '-', '9', '00', '-1', 'A', '}', ',"msg_id":"', ' ', '\u00e9', '1e3'),
      fc.stringMatching(/^\d{1,3}$/),
    );
    let left = 0;
    let read = 0;
    fc.assert(
      fc.property(fast, fc.nat(400), fc.nat(3), pieces, (value, where, cut, piece) => {
        const at = where % value.length;
        const changed = Buffer.concat([
          value.subarray(0, at),
          Buffer.from(piece),
          value.subarray(Math.min(value.length, at + cut)),
        ]);
        const event = whole(changed);
        if (event === undefined) left++;
        else {
          read++;
          expect(event).toEqual(readPaymentEvent(changed));
        }
      }),
      { numRuns: runs(3000) },
    );
    // Digits replaced by digits keep the fast form.
    expect(left).toBeGreaterThan(100);
    expect(read).toBeGreaterThan(20);
  });

  it.each([
    ['9223372036854775807', true],
    ['9223372036854775808', false],
    ['9999999999999999999', false],
    ['10000000000000000000', false],
    ['0', false],
    ['05', false],
    ['-5', false],
    ['', false],
  ])('the fast parser handles an amount of %s: %s', (amount, taken) => {
    const id = '01890a5d-ac96-774b-bcce-b302099a8057';
    const text = valueBytes(id, id, 7n, 5n, new Date(0)).toString();
    const value = Buffer.from(text.replace('"amount_cents":"5"', `"amount_cents":"${amount}"`));
    expect(whole(value) !== undefined).toBe(taken);
    expect(readPaymentEvent(value).kind).toBe(taken ? 'order' : 'poison');
  });

  it('the fast parser reads nothing outside its value', () => {
    fc.assert(
      fc.property(fast, fast, fc.nat(300), (one, other, cut) => {
        const both = Buffer.concat([one, other]);
        expect(readEventFast(both, one.length, both.length)).toEqual(readPaymentEvent(other));
        expect(readEventFast(both, 0, one.length)).toEqual(readPaymentEvent(one));
        expect(readEventFast(both, 0, one.length - 1 - (cut % (one.length - 1)))).toBeUndefined();
        expect(readEventFast(both, 0, both.length)).toBeUndefined();
      }),
    );
  });
});
