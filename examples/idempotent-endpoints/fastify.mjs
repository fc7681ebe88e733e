import fastify from 'fastify';
import { idem, pay, port, tenantOf } from './shop.mjs';

const app = fastify();
app.addHook('onRequest', async (request, reply) => {
  if (!tenantOf(request.headers.authorization)) return reply.code(401).send();
});
app.post(
  '/payments',
  idem.fastify(async (request, reply, { tx }) => {
    const payment = await pay(tx, request.body.cents);
    return reply.code(201).header('location', `/payments/${payment.id}`).send(payment);
  }),
);
await app.listen({ port: Number(port), host: '127.0.0.1' });
console.log('listening');
