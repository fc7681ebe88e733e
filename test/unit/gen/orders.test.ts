import avro from 'avsc';
import protobuf from 'protobufjs';
import { describe, expect, test } from 'vitest';
import {
  DEFAULT_ORDERS,
  logicalOrder,
  ORDER_STATUSES,
  OrderGenerator,
  type OrderShape,
  type OrderVersion,
} from '../../../src/gen/order.ts';
import {
  canReadOrder,
  ORDER_FIELDS,
  ORDER_VERSIONS,
  orderAsRead,
  orderAsWritten,
  orderSchema,
  orderShapeOf,
  orderShapesOf,
  orderVersionOf,
} from '../../../src/gen/order-versions.ts';

const longs = avro.types.LongType.__with({
  fromBuffer: (buffer: Buffer) => buffer.readBigInt64LE(),
  toBuffer: (value: bigint) => {
    const buffer = Buffer.alloc(8);
    buffer.writeBigInt64LE(value);
    return buffer;
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value: unknown) => typeof value === 'bigint',
  compare: (a: bigint, b: bigint) => (a < b ? -1 : a > b ? 1 : 0),
});
const avroType = (version: OrderShape | 'breaking') =>
  avro.Type.forSchema(JSON.parse(orderSchema(version, 'avro')), {
    registry: { long: longs },
    wrapUnions: false,
  });
const plain = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? `${v}n` : v)));

describe('logical order', () => {
  test('a logical order is a function of seed and number', () => {
    const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 9n });
    for (const index of [5, 0, 123_456, 5, 2 ** 40])
      expect(generator.order(index)).toEqual(logicalOrder(9n, index));
    expect(logicalOrder(9, 5)).not.toEqual(logicalOrder(10, 5));
    expect(logicalOrder(9, 5)).not.toEqual(logicalOrder(9, 6));
  });

  // Test vector; it changes only when the definition changes.
  test('a logical order has the published form', () => {
    expect(plain(logicalOrder(1n, 0))).toMatchInlineSnapshot(`
      {
        "account_id": "9007199254741015n",
        "amount_cents": "411947n",
        "channel": "kiosk",
        "coupon": null,
        "currency": "SEK",
        "customer": "customer-4604ffb9",
        "customer_ref": "customer-4604ffb9",
        "discount_cents": "15591n",
        "gift": true,
        "instructions": "Fragile: glass inside, this side up, do not stack. Call the number on file before you deliver, thank you! Call the number on file before you deliver, thank you!",
        "items": [
          {
            "price_cents": "26648n",
            "qty": 8,
            "sku": "sku-fabe740e-dedc-4f5e-b2e4-4d037dcf42ff",
          },
          {
            "price_cents": "31690n",
            "qty": 6,
            "sku": "sku-88935a70-dbd3-4ddf-aa7b-c8fdf4be8a36",
          },
          {
            "price_cents": "8623n",
            "qty": 1,
            "sku": "sku-d821ab1a-17d6-4b27-b193-9e211c4c72e3",
          },
        ],
        "loyalty": "silver",
        "note": "Gift wrapping in blue paper, no invoice in the parcel. Combine with the order of yesterday if that is possible. Ring twice; the bell on the ground floor is out of order.",
        "order_id": "9ff9863a-8f3e-42bf-863d-5dec388e8e41",
        "region": "us-east",
        "sales_channel": "kiosk",
        "ship_to": "Olivia Taylor, Calle Mayor 19, LS1 4DY Leeds, United Kingdom",
        "status": "PAID",
        "tax_cents": "82389n",
        "trace_id": "00-098800fdeb6b39ba68861002c734825f-97148a536c17249d-01",
        "ts": "1750000000000n",
      }
    `);
  });

  test('the logical orders contain every case that a codec must handle', () => {
    const orders = Array.from({ length: 3000 }, (_, i) => logicalOrder(3n, i));
    expect(new Set(orders.map((order) => order.order_id)).size).toBe(3000);
    expect(new Set(orders.map((order) => order.status))).toEqual(new Set(ORDER_STATUSES));
    expect(new Set(orders.map((order) => order.items.length))).toEqual(new Set([0, 1, 2, 3, 4, 5, 6]));
    expect(orders.every((order) => order.account_id > 2n ** 53n)).toBe(true);
    expect(
      orders.some((order) => order.coupon === null) && orders.some((order) => order.coupon !== null),
    ).toBe(true);
    expect(orders.some((order) => order.gift) && orders.some((order) => order.discount_cents > 0n)).toBe(
      true,
    );
    expect(
      orders.some((order) => order.ship_to.includes('ß')) &&
        orders.some((order) => order.note.includes('🚚')),
    ).toBe(true);
    expect(orders.every((order) => order.items.every((item) => item.sku.length === 40))).toBe(true);
    for (const order of orders) {
      expect(order.items.reduce((sum, item) => sum + BigInt(item.qty) * item.price_cents, 0n)).toBe(
        order.amount_cents,
      );
    }
  });

  test('the schema versions are mixed evenly and depend only on the number', () => {
    const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: 4n });
    const counts = new Map<number, number>();
    for (let i = 0; i < 6000; i++) {
      const version = generator.versionOf(i, [1, 2, 3]);
      counts.set(version, (counts.get(version) ?? 0) + 1);
    }
    for (const version of [1, 2, 3]) expect(Math.abs((counts.get(version) ?? 0) - 2000)).toBeLessThan(200);
  });
});

describe('orderShapesOf', () => {
  test('a list has versions, ranges and candidates, and an entry may repeat', () => {
    expect(orderShapesOf('3')).toEqual([3]);
    expect(orderShapesOf('1,3,6')).toEqual([1, 3, 6]);
    expect(orderShapesOf('1-6')).toEqual([1, 2, 3, 4, 5, 6]);
    expect(orderShapesOf('2-3,add-required,2')).toEqual([2, 3, 'add-required', 2]);
  });

  test.each([
    ['6-1', /the range of schema versions 6-1 is empty/],
    ['1-9', /no schema version 7/],
    ['1,,2', /no schema version /],
    ['0', /no schema version 0/],
    [Array.from({ length: 101 }, () => '1').join(), /101 schema versions are more than 100/],
  ])('the list %s is refused', (text, why) => {
    expect(() => orderShapesOf(text)).toThrow(why);
  });
});

describe('schema versions', () => {
  test.each(ORDER_VERSIONS)(
    'an order of version %i has at least twelve fields and about 512 bytes',
    (version) => {
      expect(ORDER_FIELDS[version].length).toBeGreaterThanOrEqual(12);
      const type = avroType(version);
      const sizes = Array.from(
        { length: 2000 },
        (_, i) => 5 + type.toBuffer(orderAsWritten(logicalOrder(1n, i), version)).length,
      );
      const mean = sizes.reduce((sum, size) => sum + size, 0) / sizes.length;
      expect(mean).toBeGreaterThan(502);
      expect(mean).toBeLessThan(532);
    },
  );

  test('every Avro reader sees the stated projection of every writer', () => {
    for (const writer of ORDER_VERSIONS) {
      for (const reader of ORDER_VERSIONS) {
        const [from, to] = [avroType(writer), avroType(reader)];
        if (!canReadOrder('avro', reader, writer)) {
          expect(() => to.createResolver(from)).toThrow();
          continue;
        }
        const resolver = to.createResolver(from);
        for (let i = 0; i < 40; i++) {
          const order = logicalOrder(2n, i);
          const bytes = from.toBuffer(orderAsWritten(order, writer));
          expect(plain(to.fromBuffer(bytes, resolver))).toEqual(plain(orderAsRead(order, writer, reader)));
        }
      }
    }
  });

  test('every Protobuf reader sees the stated projection of every writer', () => {
    const types = new Map(
      ORDER_VERSIONS.map((version) => [
        version,
        protobuf
          .parse(orderSchema(version, 'protobuf'), { keepCase: true })
          .root.lookupType('shop.orders.Order'),
      ]),
    );
    const type = (version: OrderVersion): protobuf.Type => types.get(version) as protobuf.Type;
    for (const writer of ORDER_VERSIONS) {
      for (const reader of ORDER_VERSIONS) {
        for (let i = 0; i < 40; i++) {
          const order = logicalOrder(2n, i);
          const written = JSON.parse(
            JSON.stringify(orderAsWritten(order, writer), (_, v) =>
              typeof v === 'bigint' ? String(v) : v === null ? undefined : v,
            ),
          );
          const bytes = type(writer).encode(type(writer).fromObject(written)).finish();
          const read = type(reader).toObject(type(reader).decode(bytes), {
            longs: String,
            enums: String,
            arrays: true,
            defaults: true,
          });
          const expected = orderAsRead(order, writer, reader);
          for (const field of ORDER_FIELDS[reader]) {
            const seen =
              field === 'coupon'
                ? Object.hasOwn(type(reader).decode(bytes), 'coupon')
                  ? read[field]
                  : null
                : read[field];
            expect(JSON.stringify(seen)).toEqual(
              JSON.stringify(expected[field], (_, v) => (typeof v === 'bigint' ? String(v) : v)),
            );
          }
        }
      }
    }
  });

  test('the breaking version cannot be read as version 2, nor version 2 as the breaking version', () => {
    expect(() => avroType(2).createResolver(avroType('breaking'))).toThrow();
    expect(() => avroType('breaking').createResolver(avroType(2))).toThrow();
    const breaking = protobuf
      .parse(orderSchema('breaking', 'protobuf'), { keepCase: true })
      .root.lookupType('shop.orders.Order');
    const v2 = protobuf
      .parse(orderSchema(2, 'protobuf'), { keepCase: true })
      .root.lookupType('shop.orders.Order');
    expect(breaking.fields['amount_cents']?.id).toBe(v2.fields['amount_cents']?.id);
    expect(breaking.fields['amount_cents']?.type).not.toBe(v2.fields['amount_cents']?.type);
  });

  test('an unknown version is refused with a list of the known ones', () => {
    expect(() => orderVersionOf(7)).toThrow('no schema version 7');
    expect(() => orderShapeOf('add-nothing')).toThrow('no schema version add-nothing');
    expect(() => orderSchema('reuse-number', 'avro')).toThrow('does not exist in avro');
  });
});
