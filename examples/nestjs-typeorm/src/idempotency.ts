// Idempotent endpoints: the key's record commits with the transaction of the handler.
import { Metrics } from 'millrace/drivers';
import { idempotency, type OpenTransaction } from 'millrace/outbox';
import { typeormTransaction } from 'millrace/outbox/adapters';
import type { EntityManager } from 'typeorm';
import { dataSource } from './data-source.js';
import { tables } from './service.js';

const DAY_MS = 86_400_000;
export const metrics = new Metrics();

export const idem = idempotency({
  sql: {
    transaction: <T>(work: (tx: EntityManager, open?: OpenTransaction) => Promise<T>) =>
      dataSource.transaction((manager) => work(manager, typeormTransaction(manager))),
  },
  // All keys belong to one tenant. With several, derive it from the caller's credentials.
  scope: () => 'shop',
  ttlMs: 7 * DAY_MS,
  retryWindowMs: DAY_MS,
  table: tables.idempotencyTable,
  metrics,
  onError: (error) => console.error(error),
});
