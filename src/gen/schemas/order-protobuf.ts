/** Protobuf schemas of Order by version, and one that breaks every reader. Versions 1, 2 and 3 are
 *  mutually compatible in both directions; version 3 reserves the number of the field that it
 *  removes. */

const head = `syntax = "proto3";

package shop.orders;

message Order {
  string order_id = 1;
  int64 account_id = 2;
  Status status = 3;`;

const middle = `
  string currency = 5;
  int64 ts = 6;
  repeated Item items = 7;
  string channel = 8;
  string customer_ref = 9;
  string ship_to = 10;`;

const amount = `
  int64 amount_cents = 4;`;
const note = `
  string note = 11;`;
const noteGone = `
  reserved 11;
  reserved "note";`;
const trace = `
  string trace_id = 12;`;
const discount = `
  int64 discount_cents = 13;
  optional string coupon = 14;`;
const gift = `
  bool gift = 15;`;
const end = `

  enum Status {
    PLACED = 0;
    PAID = 1;
    SHIPPED = 2;
  }

  message Item {
    string sku = 1;
    int32 qty = 2;
    int64 price_cents = 3;
  }
}
`;

export const ORDER_PROTOBUF: Readonly<Record<1 | 2 | 3, string>> = {
  1: head + amount + middle + note + trace + end,
  2: head + amount + middle + note + trace + discount + end,
  3: head + amount + middle + noteGone + trace + discount + gift + end,
};

/** Version 3 that reads old amounts as text: field number 4 changes to a type with another wire
 *  format. */
export const ORDER_PROTOBUF_BREAKING = `${head}
  string amount_cents = 4;${middle}${note}${trace}${discount}${end}`;
