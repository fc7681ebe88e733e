/** Pairs of tables of orders and payments. */
import { MESSAGE_CLASSES, type PairConfig } from './pairs/pair.ts';
import type { SideConfig } from './pairs/side.ts';

const ORDERS: SideConfig = { table: 'orders', id: 'order_id', time: 'created_at', value: 'amount_cents' };

export const ORDERS_TO_CHARGES: PairConfig = {
  name: 'orders_charges',
  left: ORDERS,
  right: { table: 'charges', id: 'order_id', time: 'created_at', value: 'amount_cents' },
  classes: {
    missing: {
      name: 'order_without_charge',
      meaning: 'an order that was not charged and whose record is not parked',
    },
    setAside: {
      name: 'order_parked',
      meaning: 'an order that was not charged because payments parked its record (millrace payments -parked)',
    },
    extra: { name: 'charge_without_order', meaning: 'a charge of an order that does not exist' },
    differs: { name: 'charge_amount_differs', meaning: 'a charge of another amount than its order' },
  },
  judgesLate: false,
};

export const OUTBOX_TO_INBOX: PairConfig = {
  name: 'outbox_inbox',
  left: { table: 'outbox', id: 'msg_id', time: 'created_at', order: 'id' },
  right: { table: 'inbox', id: 'msg_id', time: 'processed_at' },
  classes: {
    missing: MESSAGE_CLASSES.missing,
    extra: MESSAGE_CLASSES.extra,
  },
  judgesLate: true,
};

/** Messages that -watch compares: rows that are not published are a class too. */
export const WATCHED_OUTBOX_TO_INBOX: PairConfig = {
  ...OUTBOX_TO_INBOX,
  left: { ...OUTBOX_TO_INBOX.left, state: 'published_at' },
  classes: {
    ...OUTBOX_TO_INBOX.classes,
    pending: MESSAGE_CLASSES.pending,
  },
};

export const WATCHED_ORDERS_TO_CHARGES: PairConfig = {
  ...ORDERS_TO_CHARGES,
  classes: {
    ...ORDERS_TO_CHARGES.classes,
    rightTwice: { name: 'double_charge', meaning: 'an order that was charged more than once' },
  },
};

/** Keys have no index by order, so their rows are found by their time. */
export const KEYS_TO_ORDERS: PairConfig = {
  name: 'keys_orders',
  left: { table: 'idempotency_keys', id: 'order_id', time: 'created_at', order: 'created_at' },
  right: { table: 'orders', id: 'order_id', time: 'created_at' },
  classes: {
    missing: { name: 'lost_order', meaning: 'a key without an order, although its answer is stored' },
    extra: {
      name: 'ghost_order',
      meaning: 'an order without a key, though none is old enough to have expired',
    },
    leftTwice: { name: 'shared_order', meaning: 'one order for two keys' },
  },
  judgesLate: false,
};

/** Places the tables of a pair in schemas. Both names are plain (requirePlainSchema). */
export const inSchemas = (config: PairConfig, left: string, right: string): PairConfig => ({
  ...config,
  left: { ...config.left, table: `${left}.${config.left.table}` },
  right: { ...config.right, table: `${right}.${config.right.table}` },
});
