// A payment in three steps. After a crash, the next request with the key resumes after the last
// one.
import express from 'express';
import { idempotencySteps } from 'millrace/outbox';
import { DAY_MS, pay, pool, port, tenantOf } from './shop.mjs';

const idem = idempotencySteps({
  sql: pool,
  scope: (req) => tenantOf(req.headers.authorization),
  ttlMs: 7 * DAY_MS,
  leaseMs: 4000,
});
const provider = process.env.PROVIDER ?? 'http://127.0.0.1:9999';

const app = express();
app.use((req, res, next) => (tenantOf(req.headers.authorization) ? next() : res.sendStatus(401)));
app.post(
  '/payments',
  express.json(),
  idem.express(async (req, res, { step, call }) => {
    const payment = await step('pay', (tx) => pay(tx, req.body.cents));
    // No transaction is open here. A crash repeats the call with the same key.
    const receipt = await call('charge', async (stepKey) => {
      const headers = { 'idempotency-key': stepKey };
      const answer = await fetch(`${provider}/charges`, { method: 'POST', headers });
      if (!answer.ok) throw new Error(`the provider answered ${answer.status}`);
      return answer.text();
    });
    await step('confirm', async (tx) => {
      await tx.query('UPDATE payments SET receipt = $2 WHERE id = $1', [payment.id, receipt]);
    });
    res.status(201).json({ ...payment, receipt });
  }),
);
app.listen(port, '127.0.0.1', () => console.log('listening'));
