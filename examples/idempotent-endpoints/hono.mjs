import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { idempotency } from 'millrace/outbox';
import { DAY_MS, pay, pool, port, tenantOf } from './shop.mjs';

const idem = idempotency({ sql: pool, scope: (c) => c.get('tenant'), ttlMs: 7 * DAY_MS });

const app = new Hono();
app.use(async (c, next) => {
  const tenant = tenantOf(c.req.header('authorization'));
  if (tenant === undefined) return c.body(null, 401);
  c.set('tenant', tenant);
  return next();
});
app.post(
  '/payments',
  idem.hono(async (c, { tx }) => {
    const payment = await pay(tx, (await c.req.json()).cents);
    return c.json(payment, 201, { location: `/payments/${payment.id}` });
  }),
);
serve({ fetch: app.fetch, port: Number(port), hostname: '127.0.0.1' }, () => console.log('listening'));
