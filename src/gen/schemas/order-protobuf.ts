/** Protobuf schemas of Order: six versions, one that breaks every reader, and one candidate for
 *  each class of change. Version 3 reserves the number of the field that it removes.
 *  src/gen/order-versions.ts names the change of each version. */
import type { OrderCandidate, OrderVersion } from '../order.ts';

const proto3 = `syntax = "proto3";

package shop.orders;
`;
/** Implicit presence, as in proto3; a field can still be required by its own feature. */
const edition = `edition = "2023";

package shop.orders;

option features.field_presence = IMPLICIT;
`;

const first = `
message Order {
  string order_id = 1;
  int64 account_id = 2;
  Status status = 3;`;
const head = proto3 + first;

/** Parts of the schema that differ between versions. */
interface Parts {
  readonly channel?: string;
  readonly customer?: string;
}

const middle = ({ channel, customer }: Parts = {}): string => `
  string currency = 5;
  int64 ts = 6;
  repeated Item items = 7;${
    channel ??
    `
  string channel = 8;`
  }
  string ${customer ?? 'customer_ref'} = 9;
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
  bool gift = 15;
  string instructions = 16;`;
const region = `
  string region = 17;`;
const endWith = (qty: 'int32' | 'int64' | 'string'): string => `

  enum Status {
    PLACED = 0;
    PAID = 1;
    SHIPPED = 2;
  }

  message Item {
    string sku = 1;
    ${qty} qty = 2;
    int64 price_cents = 3;
  }
}
`;
const end = endWith('int32');
const endLong = endWith('int64');

/** Fields of version 3, with the parts that later versions change. */
const third = (parts: Parts = {}, gone = noteGone): string =>
  amount + middle(parts) + gone + trace + discount + gift;
const customer = 'customer';
/** Rewrites fields of proto3 as fields of the edition. */
const asEdition = (fields: string): string =>
  fields
    .replace('optional string coupon = 14;', 'string coupon = 14 [features.field_presence = EXPLICIT];')
    .replace('reserved "note";', 'reserved note;');

/** Fields of version 6. */
const sixth = (parts: Parts = {}, gone = noteGone): string => third({ customer, ...parts }, gone) + region;

export const ORDER_PROTOBUF: Readonly<Record<OrderVersion, string>> = {
  1: head + amount + middle() + note + trace + end,
  2: head + amount + middle() + note + trace + discount + end,
  3: head + third() + end,
  4: head + third({ customer }) + end,
  5: head + third({ customer }) + endLong,
  6: head + sixth() + endLong,
};

/** Version 3 that reads old amounts as text: field number 4 changes to a type with another wire
 *  format. */
export const ORDER_PROTOBUF_BREAKING = `${head}
  string amount_cents = 4;${middle()}${note}${trace}${discount}${end}`;

/** Undefined: the format has no such change. A Protobuf field never has a default of its own here,
 *  so an optional field without one is the same change as an optional field. */
export const ORDER_PROTOBUF_CANDIDATES: Readonly<Record<OrderCandidate, string | undefined>> = {
  'add-optional': `${head + sixth()}
  optional string loyalty = 18;${endLong}`,
  'add-optional-no-default': undefined,
  // proto3 has no required field; an edition has.
  'add-required': `${edition + first + asEdition(sixth())}
  int64 tax_cents = 18 [features.field_presence = LEGACY_REQUIRED];${endLong}`,
  remove: `${head + sixth({ channel: '' })}
  reserved 8;
  reserved "channel";${endLong}`,
  rename:
    head +
    sixth({
      channel: `
  string sales_channel = 8;`,
    }) +
    endLong,
  'retype-int-long': head + third({ customer }) + endLong,
  'retype-int-string': head + third({ customer }) + endWith('string'),
  // A reader of version 1 or 2 takes the channel for a note: both are text.
  'reuse-number': `${head + sixth({}, '')}
  string sales_channel = 11;${endLong}`,
};
