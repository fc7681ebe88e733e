/** Tables of the orders service, created by sql/; spec/outbox.txt section 2. */
export const ORDERS_TABLES = ['orders', 'idempotency_keys', 'outbox'] as const;
