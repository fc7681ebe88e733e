/** Avro schemas of Order: six versions, one that breaks every reader, and one refused candidate for
 *  each class of change. src/gen/order-versions.ts names the change of each version. */
import type { OrderCandidate, OrderVersion } from '../order.ts';

const itemOf = (qty: string): string => `{
        "type": "record",
        "name": "Item",
        "fields": [
          { "name": "sku", "type": "string" },
          { "name": "qty", "type": "${qty}" },
          { "name": "price_cents", "type": "long" }
        ]
      }`;

const head = `{
  "type": "record",
  "name": "Order",
  "namespace": "shop.orders",
  "fields": [
    { "name": "order_id", "type": "string" },
    { "name": "account_id", "type": "long" },
    { "name": "status", "type": { "type": "enum", "name": "OrderStatus", "symbols": ["PLACED", "PAID", "SHIPPED"] } },`;

/** Parts of the schema that differ between versions. */
interface Parts {
  readonly qty?: 'int' | 'long' | 'string';
  /** Field that holds the sales channel; empty: none. */
  readonly channel?: string;
  readonly customer?: string;
}

const customerRef = `
    { "name": "customer_ref", "type": "string" },`;
const customer = `
    { "name": "customer", "type": "string", "aliases": ["customer_ref"] },`;
const channelNamed = (name: string): string => `
    { "name": "${name}", "type": "string" },`;

const middle = (parts: Parts = {}): string => `
    { "name": "currency", "type": "string" },
    { "name": "ts", "type": "long" },
    {
      "name": "items",
      "type": { "type": "array", "items": ${itemOf(parts.qty ?? 'int')} }
    },${parts.channel ?? channelNamed('channel')}${parts.customer ?? customerRef}
    { "name": "ship_to", "type": "string" },`;

const amount = `
    { "name": "amount_cents", "type": "long" },`;
const note = `
    { "name": "note", "type": "string", "default": "" },`;
const trace = `
    { "name": "trace_id", "type": "string" }`;
const discount = `
    { "name": "discount_cents", "type": "long", "default": 0 },
    { "name": "coupon", "type": ["null", "string"], "default": null }`;
const gift = `
    { "name": "gift", "type": "boolean", "default": false },
    { "name": "instructions", "type": "string", "default": "" }`;
const region = `
    { "name": "region", "type": "string" }`;
const end = `
  ]
}
`;

/** Fields of version 3, with the parts that later versions change. */
const third = (parts: Parts = {}): string => `${head + amount + middle(parts) + trace},${discount},${gift}`;
/** Fields of version 6. */
const sixth = (parts: Parts = {}): string => `${third({ customer, qty: 'long', ...parts })},${region}`;

export const ORDER_AVRO: Readonly<Record<OrderVersion, string>> = {
  1: head + amount + middle() + note + trace + end,
  2: `${head + amount + middle() + note + trace},${discount}${end}`,
  3: third() + end,
  4: third({ customer }) + end,
  5: third({ customer, qty: 'long' }) + end,
  6: sixth() + end,
};

/** Version 3 that is incompatible with 1 and 2 in both directions: amount_cents changes its type,
 *  and region has no default. */
export const ORDER_AVRO_BREAKING = `${head}
    { "name": "amount_cents", "type": "string" },${middle()}${note}${trace},${discount},
    { "name": "region", "type": "string" }${end}`;

/** Undefined: the format has no such change. */
export const ORDER_AVRO_CANDIDATES: Readonly<Record<OrderCandidate, string | undefined>> = {
  'add-optional': `${sixth()},
    { "name": "loyalty", "type": ["null", "string"], "default": null }${end}`,
  'add-optional-no-default': `${sixth()},
    { "name": "loyalty", "type": ["null", "string"] }${end}`,
  'add-required': `${sixth()},
    { "name": "tax_cents", "type": "long" }${end}`,
  remove: sixth({ channel: '' }) + end,
  rename: sixth({ channel: channelNamed('sales_channel') }) + end,
  'retype-int-long': third({ customer, qty: 'long' }) + end,
  'retype-int-string': third({ customer, qty: 'string' }) + end,
  'reuse-number': undefined,
};
