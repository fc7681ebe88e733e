/** Avro schemas of Order by version, and one that breaks every reader. Versions 1, 2 and 3 are
 *  mutually compatible in both directions. */

const item = `{
        "type": "record",
        "name": "Item",
        "fields": [
          { "name": "sku", "type": "string" },
          { "name": "qty", "type": "int" },
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

const middle = `
    { "name": "currency", "type": "string" },
    { "name": "ts", "type": "long" },
    {
      "name": "items",
      "type": { "type": "array", "items": ${item} }
    },
    { "name": "channel", "type": "string" },
    { "name": "customer_ref", "type": "string" },
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
    { "name": "gift", "type": "boolean", "default": false }`;
const end = `
  ]
}
`;

export const ORDER_AVRO: Readonly<Record<1 | 2 | 3, string>> = {
  1: head + amount + middle + note + trace + end,
  2: `${head + amount + middle + note + trace},${discount}${end}`,
  3: `${head + amount + middle + trace},${discount},${gift}${end}`,
};

/** Version 3 that is incompatible with 1 and 2 in both directions: amount_cents changes its type,
 *  and region has no default. */
export const ORDER_AVRO_BREAKING = `${head}
    { "name": "amount_cents", "type": "string" },${middle}${note}${trace},${discount},
    { "name": "region", "type": "string" }${end}`;
