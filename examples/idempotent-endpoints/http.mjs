import { createServer } from 'node:http';
import { idem, pay, port, tenantOf } from './shop.mjs';

const create = idem.http(async (_req, res, { tx, body }) => {
  const payment = await pay(tx, JSON.parse(body).cents);
  res.writeHead(201, { 'content-type': 'application/json', location: `/payments/${payment.id}` });
  res.end(JSON.stringify(payment));
});

const server = createServer((req, res) => {
  if (req.method === 'POST' && req.url === '/payments' && tenantOf(req.headers.authorization)) {
    return create(req, res);
  }
  res.writeHead(404).end();
});
server.listen(port, '127.0.0.1', () => console.log('listening'));
