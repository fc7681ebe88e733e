// The HTTP server. One transaction of drizzle holds the idempotency key, the order and its event.
import { eq } from 'drizzle-orm';
import express from 'express';
import { Metrics, registerMetrics } from 'millrace/drivers';
import { append, idempotency } from 'millrace/outbox';
import { register } from 'prom-client';
import { db, open, pool } from './db.js';
import { invoices, orders } from './schema.js';
import { tables } from './service.js';

const DAY_MS = 86_400_000;
const metrics = new Metrics();
await registerMetrics(metrics, register);

const idem = idempotency({
  sql: { transaction: (work) => db.transaction((tx) => work(tx, open(tx))) },
  // All keys belong to one tenant. With several, derive it from the caller's credentials.
  scope: () => 'shop',
  ttlMs: 7 * DAY_MS,
  retryWindowMs: DAY_MS,
  table: tables.idempotencyTable,
  metrics,
  onError: (error) => console.error(error),
});

const app = express();
app.post(
  '/orders',
  express.json(),
  idem.express(async (req, res, { tx }) => {
    const { customer, cents } = req.body ?? {};
    if (typeof customer !== 'string' || !Number.isInteger(cents) || cents <= 0) {
      return res.status(400).json({ error: 'give a customer, and cents above 0' });
    }
    const [order] = await tx.insert(orders).values({ customer, cents }).returning();
    await append(open(tx), tables.outboxTable, {
      aggregateId: order.id,
      eventType: 'order.placed.v1',
      payload: order,
    });
    return res.status(201).location(`/orders/${order.id}`).json(order);
  }),
);
app.get('/orders/:id', async (req, res) => {
  const [found] = await db
    .select({ id: orders.id, cents: orders.cents, charge: invoices.charge })
    .from(orders)
    .leftJoin(invoices, eq(invoices.orderId, orders.id))
    .where(eq(orders.id, req.params.id));
  if (found === undefined) return res.sendStatus(404);
  return res.json(found);
});
app.get('/metrics', async (_req, res) => {
  res.type(register.contentType).send(await register.metrics());
});

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => console.log('listening'));
process.once('SIGTERM', () => {
  server.close(async () => {
    await idem.close();
    await pool.end();
  });
});
