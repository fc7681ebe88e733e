/** Fields of the schema versions of Order, and the order that a reader of one version sees from a
 *  writer of another version. */
import { coreError } from '../core/errors.ts';
import type { LogicalOrder, OrderVersion } from './order.ts';
import { ORDER_AVRO, ORDER_AVRO_BREAKING } from './schemas/order-avro.ts';
import { ORDER_PROTOBUF, ORDER_PROTOBUF_BREAKING } from './schemas/order-protobuf.ts';

export type OrderField = keyof LogicalOrder;
export type OrderFormat = 'avro' | 'protobuf';

export const ORDER_VERSIONS: readonly OrderVersion[] = [1, 2, 3];

const BASE = [
  'order_id',
  'account_id',
  'status',
  'amount_cents',
  'currency',
  'ts',
  'items',
  'channel',
  'customer_ref',
  'ship_to',
] as const satisfies readonly OrderField[];

export const ORDER_FIELDS: Readonly<Record<OrderVersion, readonly OrderField[]>> = {
  1: [...BASE, 'note', 'trace_id'],
  2: [...BASE, 'note', 'trace_id', 'discount_cents', 'coupon'],
  3: [...BASE, 'trace_id', 'discount_cents', 'coupon', 'gift'],
};

/** Defaults of fields that the writer did not know; the same in both formats. */
const READER_DEFAULTS: Partial<LogicalOrder> = { note: '', discount_cents: 0n, coupon: null, gift: false };

export function orderVersionOf(version: number): OrderVersion {
  const known = ORDER_VERSIONS.find((one) => one === version);
  if (known === undefined) {
    throw coreError('bad_value', `Order has no schema version ${version}`, {
      next: `choose from ${ORDER_VERSIONS.join(', ')}`,
    });
  }
  return known;
}

/** Returns the order with the fields of the writer's version only. */
export function orderAsWritten(order: LogicalOrder, writer: OrderVersion): Partial<LogicalOrder> {
  return Object.fromEntries(ORDER_FIELDS[writer].map((field) => [field, order[field]]));
}

/** Returns the order that a reader of one version must see from a writer of another version. */
export function orderAsRead(
  order: LogicalOrder,
  writer: OrderVersion,
  reader: OrderVersion,
): Partial<LogicalOrder> {
  const written = ORDER_FIELDS[writer];
  return Object.fromEntries(
    ORDER_FIELDS[reader].map((field) => [
      field,
      written.includes(field) ? order[field] : READER_DEFAULTS[field],
    ]),
  );
}

/** Returns the schema text of a version; `breaking` is a version 3 that must be refused. */
export function orderSchema(version: OrderVersion | 'breaking', format: OrderFormat): string {
  if (version === 'breaking') return format === 'avro' ? ORDER_AVRO_BREAKING : ORDER_PROTOBUF_BREAKING;
  return (format === 'avro' ? ORDER_AVRO : ORDER_PROTOBUF)[version];
}
