// The work behind the server: publishes events, makes an invoice of each order, and charges it.
import { createServer } from 'node:http';
import { openDrivers, readBrokerConfig, registerMetrics } from 'millrace/drivers';
import { effect } from 'millrace/outbox';
import { register } from 'prom-client';
import { charge } from './charge.js';
import { db, open, pool } from './db.js';
import { invoices } from './schema.js';
import { openService, tables, topic } from './service.js';

const drivers = await openDrivers(readBrokerConfig({ env: process.env }));
await registerMetrics(drivers.metrics, register);
const service = await openService(drivers);

// Publishes the rows of the outbox.
await service.relay({ table: tables.outboxTable, topic });

// Applies each event once: the inbox row, the invoice and the effect commit together.
service.consume({
  ...tables,
  topic,
  transaction: (work) => db.transaction((tx) => work(open(tx), tx)),
  handle: async (tx, record) => {
    const { id: orderId, cents } = JSON.parse(Buffer.from(record.value).toString()).payload;
    await tx.insert(invoices).values({ orderId, cents });
    const input = { orderId, cents };
    const { msgId: messageId } = record;
    await effect(open(tx), tables.effectsTable, { name: 'charge', key: orderId, messageId, input });
  },
});

// Charges the invoices. Another worker takes over the calls of a killed one after leaseMs.
service.effects({ effectsTable: tables.effectsTable, leaseMs: 5000, handlers: { charge } });

const page = createServer(async (_req, res) => {
  res.setHeader('content-type', register.contentType).end(await register.metrics());
});
page.listen(Number(process.env.METRICS_PORT ?? 9100), '127.0.0.1', () => console.log('working'));

service.failure().catch((error) => {
  console.error(error);
  process.exit(1);
});
process.once('SIGTERM', async () => {
  page.close();
  await service.close();
  await pool.end();
});
