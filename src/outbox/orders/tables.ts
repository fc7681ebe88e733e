/** Tables of the orders service, made by sql/; spec/outbox.txt section 2. */
export const ORDERS_TABLES = ['orders', 'idempotency_keys', 'outbox'] as const;
