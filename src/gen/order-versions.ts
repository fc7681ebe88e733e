/** Fields of the schema versions of Order, the candidates that change them, and the order that a
 *  reader of one version sees from a writer of another version.
 *
 *  | step    | change                                    | Avro     | Protobuf |
 *  | ------- | ----------------------------------------- | -------- | -------- |
 *  | 1 to 2  | add optional discount_cents, coupon       | FULL     | FULL     |
 *  | 2 to 3  | remove note, add optional fields          | FULL     | FULL     |
 *  | 3 to 4  | rename customer_ref to customer (alias)   | BACKWARD | FULL     |
 *  | 4 to 5  | retype items.qty, int to long             | BACKWARD | FULL     |
 *  | 5 to 6  | add region, in Avro without a default     | FORWARD  | FULL     |
 */
import { coreError } from '../core/errors.ts';
import {
  type LogicalOrder,
  ORDER_CANDIDATES,
  type OrderCandidate,
  type OrderShape,
  type OrderVersion,
} from './order.ts';
import { ORDER_AVRO, ORDER_AVRO_BREAKING, ORDER_AVRO_CANDIDATES } from './schemas/order-avro.ts';
import {
  ORDER_PROTOBUF,
  ORDER_PROTOBUF_BREAKING,
  ORDER_PROTOBUF_CANDIDATES,
} from './schemas/order-protobuf.ts';

export type OrderField = keyof LogicalOrder;
export type OrderFormat = 'avro' | 'protobuf';

export const ORDER_VERSIONS: readonly OrderVersion[] = [1, 2, 3, 4, 5, 6];

const HEAD = [
  'order_id',
  'account_id',
  'status',
  'amount_cents',
  'currency',
  'ts',
  'items',
  'channel',
] as const satisfies readonly OrderField[];
const BASE = [...HEAD, 'customer_ref', 'ship_to'] as const;
const RENAMED = [...HEAD, 'customer', 'ship_to'] as const;
const LATER = ['trace_id', 'discount_cents', 'coupon', 'gift', 'instructions'] as const;
const SIXTH: readonly OrderField[] = [...RENAMED, ...LATER, 'region'];

export const ORDER_FIELDS: Readonly<Record<OrderVersion, readonly OrderField[]>> = {
  1: [...BASE, 'note', 'trace_id'],
  2: [...BASE, 'note', 'trace_id', 'discount_cents', 'coupon'],
  3: [...BASE, ...LATER],
  4: [...RENAMED, ...LATER],
  5: [...RENAMED, ...LATER],
  6: SIXTH,
};

/** Type of items.qty by schema; number where it is absent. */
type Quantity = 'number' | 'bigint' | 'string';

interface Candidate {
  /** Version that the candidate follows. */
  readonly base: OrderVersion;
  /** The change, in words. */
  readonly change: string;
  readonly fields: readonly OrderField[];
  readonly qty: Quantity;
}

const CANDIDATES: Readonly<Record<OrderCandidate, Candidate>> = {
  'add-optional': {
    base: 6,
    change: 'add an optional field with a default',
    fields: [...SIXTH, 'loyalty'],
    qty: 'bigint',
  },
  'add-optional-no-default': {
    base: 6,
    change: 'add a nullable field without a default',
    fields: [...SIXTH, 'loyalty'],
    qty: 'bigint',
  },
  'add-required': {
    base: 6,
    change: 'add a required field',
    fields: [...SIXTH, 'tax_cents'],
    qty: 'bigint',
  },
  remove: {
    base: 6,
    change: 'remove a field',
    fields: SIXTH.filter((field) => field !== 'channel'),
    qty: 'bigint',
  },
  rename: {
    base: 6,
    change: 'rename a field without an alias',
    fields: SIXTH.map((field) => (field === 'channel' ? 'sales_channel' : field)),
    qty: 'bigint',
  },
  'retype-int-long': {
    base: 4,
    change: 'retype a field, int to long',
    fields: ORDER_FIELDS[4],
    qty: 'bigint',
  },
  'retype-int-string': {
    base: 4,
    change: 'retype a field, int to string',
    fields: ORDER_FIELDS[4],
    qty: 'string',
  },
  'reuse-number': {
    base: 6,
    change: 'reuse the number of a removed field',
    fields: [...SIXTH, 'sales_channel'],
    qty: 'bigint',
  },
};

/** Defaults of fields that the writer did not know; the same in both formats. */
const READER_DEFAULTS: Partial<LogicalOrder> = {
  note: '',
  discount_cents: 0n,
  coupon: null,
  gift: false,
  instructions: '',
  loyalty: null,
  // Protobuf only: Avro refuses to read an order without one of these fields.
  region: '',
  channel: '',
  sales_channel: '',
};

/** First version whose quantity is a 64-bit number. */
const LONG_SINCE = 5;

const isCandidate = (shape: OrderShape): shape is OrderCandidate => typeof shape === 'string';
const fieldsOf = (shape: OrderShape): readonly OrderField[] =>
  isCandidate(shape) ? CANDIDATES[shape].fields : ORDER_FIELDS[shape];
const quantityOf = (shape: OrderShape): Quantity =>
  isCandidate(shape) ? CANDIDATES[shape].qty : shape >= LONG_SINCE ? 'bigint' : 'number';

/** Version that a candidate would follow, and its change in words. */
export function orderCandidate(name: OrderCandidate): {
  readonly base: OrderVersion;
  readonly change: string;
} {
  const { base, change } = CANDIDATES[name];
  return { base, change };
}

export function orderVersionOf(version: number): OrderVersion {
  const known = ORDER_VERSIONS.find((one) => one === version);
  if (known === undefined) {
    throw coreError('bad_value', `Order has no schema version ${version}`, {
      next: `choose from ${ORDER_VERSIONS.join(', ')}`,
    });
  }
  return known;
}

const SHAPES: readonly OrderShape[] = [...ORDER_VERSIONS, ...ORDER_CANDIDATES];

/** Returns each shape once, versions in ascending order before candidates. */
export const inOrder = (shapes: readonly OrderShape[]): readonly OrderShape[] =>
  SHAPES.filter((shape) => shapes.includes(shape));

/** Parses a version number or the name of a candidate. @throws bad_value */
export function orderShapeOf(text: string): OrderShape {
  const known = SHAPES.find((one) => String(one) === text);
  if (known === undefined) {
    throw coreError('bad_value', `Order has no schema version ${text}`, {
      next: `choose from ${SHAPES.join(', ')}`,
    });
  }
  return known;
}

/** Most versions and candidates of one list. */
const LISTED_MAX = 100;

/** Parses a list of versions, ranges of versions and candidates, such as `1,3,6` or `1-6`. An entry
 *  that occurs twice is written twice as often. @throws bad_value */
export function orderShapesOf(text: string): readonly OrderShape[] {
  const shapes = text.split(',').flatMap((entry): readonly OrderShape[] => {
    const [, first, last] = /^(\d{1,3})-(\d{1,3})$/.exec(entry) ?? [];
    if (first === undefined || last === undefined) return [orderShapeOf(entry)];
    if (Number(first) > Number(last))
      throw coreError('bad_value', `the range of schema versions ${entry} is empty`, {
        next: `give it as ${last}-${first}`,
      });
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) =>
      orderVersionOf(Number(first) + i),
    );
  });
  if (shapes.length > LISTED_MAX)
    throw coreError('bad_value', `${shapes.length} schema versions are more than ${LISTED_MAX}`, {
      next: 'list fewer of them',
    });
  return shapes;
}

const withQuantity = (items: LogicalOrder['items'], quantity: Quantity): unknown =>
  quantity === 'number'
    ? items
    : items.map((item) => ({ ...item, qty: quantity === 'bigint' ? BigInt(item.qty) : String(item.qty) }));

const fieldOf = (order: LogicalOrder, field: OrderField, shape: OrderShape): unknown =>
  field === 'items' ? withQuantity(order.items, quantityOf(shape)) : order[field];

/** Returns the order with the fields and types of the writer's version only. */
export function orderAsWritten(order: LogicalOrder, writer: 1 | 2 | 3 | 4): Partial<LogicalOrder>;
export function orderAsWritten(
  order: LogicalOrder,
  writer: OrderShape,
): Readonly<Partial<Record<OrderField, unknown>>>;
export function orderAsWritten(
  order: LogicalOrder,
  writer: OrderShape,
): Readonly<Partial<Record<OrderField, unknown>>> {
  const written: Partial<Record<OrderField, unknown>> = {};
  for (const field of fieldsOf(writer)) written[field] = order[field];
  const quantity = quantityOf(writer);
  if (quantity !== 'number') written.items = withQuantity(order.items, quantity);
  return written;
}

/** Names of one field before and after its rename. */
const RENAMES: Partial<Record<OrderField, OrderField>> = {
  customer: 'customer_ref',
  customer_ref: 'customer',
  channel: 'sales_channel',
  sales_channel: 'channel',
};

/** Returns the order that a reader of one schema must see from a writer of another schema, if the
 *  reader can read it (`canReadOrder` for two versions). */
export function orderAsRead(
  order: LogicalOrder,
  writer: OrderShape,
  reader: OrderShape,
): Readonly<Partial<Record<OrderField, unknown>>> {
  const written = fieldsOf(writer);
  const read = fieldsOf(reader);
  const isWritten = (field: OrderField): boolean => {
    if (written.includes(field)) return true;
    const renamed = RENAMES[field];
    // A schema with both names has two fields, not a renamed one.
    return renamed !== undefined && written.includes(renamed) && !read.includes(renamed);
  };
  return Object.fromEntries(
    read.map((field) => [field, isWritten(field) ? fieldOf(order, field, reader) : READER_DEFAULTS[field]]),
  );
}

/** First version that names the customer field `customer`. */
const RENAMED_SINCE = 4;
/** First version with the required region. */
const REGION_SINCE = 6;

/** True if a reader of one version reads every order of a writer of the other version. */
export function canReadOrder(format: OrderFormat, reader: OrderVersion, writer: OrderVersion): boolean {
  if (format === 'protobuf') return true;
  // An older reader has no alias for the new name and reads no long as an int; a newer reader has
  // no default for the region.
  if (reader < RENAMED_SINCE && writer >= RENAMED_SINCE) return false;
  if (reader < LONG_SINCE && writer >= LONG_SINCE) return false;
  return reader < REGION_SINCE || writer >= REGION_SINCE;
}

/** Returns the schema text of a version or candidate; `breaking` is a version 3 that must be
 *  refused.
 *  @throws bad_value for a candidate that the format has no form of */
export function orderSchema(shape: OrderShape | 'breaking', format: OrderFormat): string {
  if (shape === 'breaking') return format === 'avro' ? ORDER_AVRO_BREAKING : ORDER_PROTOBUF_BREAKING;
  if (!isCandidate(shape)) return (format === 'avro' ? ORDER_AVRO : ORDER_PROTOBUF)[shape];
  const text = (format === 'avro' ? ORDER_AVRO_CANDIDATES : ORDER_PROTOBUF_CANDIDATES)[shape];
  if (text === undefined) {
    throw coreError('bad_value', `the candidate ${shape} does not exist in ${format}`, {
      next: `choose from ${candidatesOf(format).join(', ')}`,
    });
  }
  return text;
}

/** Candidates that a format has. */
export function candidatesOf(format: OrderFormat): readonly OrderCandidate[] {
  const texts = format === 'avro' ? ORDER_AVRO_CANDIDATES : ORDER_PROTOBUF_CANDIDATES;
  return ORDER_CANDIDATES.filter((name) => texts[name] !== undefined);
}
