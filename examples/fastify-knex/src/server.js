// The HTTP server. One transaction of knex holds the idempotency key, the order and its event.
import createFastify from 'fastify';
import { Metrics, openMetricsPage } from 'millrace/drivers';
import { append, idempotency } from 'millrace/outbox';
import { knex, open } from './db.js';
import { tables } from './service.js';

const DAY_MS = 86_400_000;
const metrics = new Metrics();
const page = await openMetricsPage(metrics);
const fastify = createFastify({ logger: { level: 'warn' } });

const idem = idempotency({
  sql: { transaction: (work) => knex.transaction((trx) => work(trx, open(trx))) },
  // All keys belong to one tenant. With several, derive it from the caller's credentials.
  scope: () => 'shop',
  ttlMs: 7 * DAY_MS,
  retryWindowMs: DAY_MS,
  table: tables.idempotencyTable,
  metrics,
  onError: (error) => fastify.log.error(error),
});

const body = {
  type: 'object',
  required: ['customer', 'cents'],
  properties: { customer: { type: 'string' }, cents: { type: 'integer', minimum: 1 } },
};
fastify.post(
  '/orders',
  { schema: { body } },
  idem.fastify(async (request, reply, { tx: trx }) => {
    const { customer, cents } = request.body;
    const [order] = await trx('orders').insert({ customer, cents }).returning('*');
    await append(open(trx), tables.outboxTable, {
      aggregateId: order.id,
      eventType: 'order.placed.v1',
      payload: order,
    });
    return reply.code(201).header('location', `/orders/${order.id}`).send(order);
  }),
);
const params = { type: 'object', properties: { id: { type: 'string', format: 'uuid' } } };
fastify.get('/orders/:id', { schema: { params } }, async (request, reply) => {
  const found = await knex('orders')
    .leftJoin('invoices', 'invoices.order_id', 'orders.id')
    .where('orders.id', request.params.id)
    .first('orders.id', 'orders.cents', 'invoices.charge');
  return found ?? reply.code(404).send();
});
fastify.get('/metrics', async (_request, reply) => reply.type(page.contentType).send(await page.text()));
fastify.addHook('onClose', async () => {
  await idem.close();
  await knex.destroy();
});

await fastify.listen({ port: Number(process.env.PORT ?? 3000), host: '127.0.0.1' });
console.log('listening');
process.once('SIGTERM', () => fastify.close());
