/** Tables of payments, made by sql/: inbox and charges as spec/outbox.txt section 2 has them, and
 *  beside them what a batch did, written in the batch's own transaction, so that every statement
 *  about duplicates is a question to the database. */
export const PAYMENTS_TABLES = [
  'inbox',
  'inbox_floor',
  'charges',
  'payments_batches',
  'payments_suppressed',
  'payments_parked',
] as const;
