import express from 'express';
import { idem, pay, port, tenantOf } from './shop.mjs';

const app = express();
app.use((req, res, next) => (tenantOf(req.headers.authorization) ? next() : res.sendStatus(401)));
app.post(
  '/payments',
  express.json(),
  idem.express(async (req, res, { tx }) => {
    const payment = await pay(tx, req.body.cents);
    res.status(201).location(`/payments/${payment.id}`).json(payment);
  }),
);
app.listen(port, '127.0.0.1', () => console.log('listening'));
