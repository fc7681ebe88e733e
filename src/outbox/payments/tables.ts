/** Tables of payments, created by sql/. inbox and charges are as in spec/outbox.txt section 2. The
 *  others record the outcome of each batch in the batch's own transaction, so that SQL answers
 *  every question about duplicates. */
export const PAYMENTS_TABLES = [
  'inbox',
  'inbox_floor',
  'charges',
  'payments_batches',
  'payments_suppressed',
  'payments_parked',
] as const;
