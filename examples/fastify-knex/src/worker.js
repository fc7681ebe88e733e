// The work behind the server: publishes events, makes an invoice of each order, and charges it.
// The consumer is that of kafkajs; `once` makes its effect happen once.
import { createServer } from 'node:http';
import { Kafka, logLevel } from 'kafkajs';
import { openDrivers, openMetricsPage, readBrokerConfig } from 'millrace/drivers';
import { effect, once } from 'millrace/outbox';
import { charge } from './charge.js';
import { knex, open } from './db.js';
import { openService, tables, topic } from './service.js';

const drivers = await openDrivers(readBrokerConfig({ env: process.env }));
const service = await openService(drivers);

// Publishes the rows of the outbox.
await service.relay({ table: tables.outboxTable, topic });

// Charges the invoices. Another worker takes over the calls of a killed one after leaseMs.
service.effects({ effectsTable: tables.effectsTable, leaseMs: 5000, handlers: { charge } });

async function invoice(trx, messageId, { id: orderId, cents }) {
  await trx('invoices').insert({ order_id: orderId, cents });
  const input = { orderId, cents };
  await effect(open(trx), tables.effectsTable, { name: 'charge', key: orderId, messageId, input });
}

const brokers = process.env.KAFKA_BROKERS.split(',');
const kafka = new Kafka({ clientId: 'shop', brokers, logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: 'shop-invoices', sessionTimeout: 10_000 });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  // The offset is committed after this function, so a crash redelivers the record.
  async eachMessage({ message }) {
    const msgId = message.headers.ce_id.toString();
    const { payload } = JSON.parse(message.value.toString());
    // The inbox row, the invoice and the effect commit together.
    await knex.transaction((trx) => once(open(trx), msgId, () => invoice(trx, msgId, payload), tables.inbox));
  },
});

const metrics = await openMetricsPage(drivers.metrics);
const page = createServer(async (_req, res) => {
  res.setHeader('content-type', metrics.contentType).end(await metrics.text());
});
page.listen(Number(process.env.METRICS_PORT ?? 9100), '127.0.0.1', () => console.log('working'));

service.failure().catch((error) => {
  console.error(error);
  process.exit(1);
});
consumer.on(consumer.events.CRASH, ({ payload }) => {
  if (!payload.restart) process.exit(1);
});
process.once('SIGTERM', async () => {
  page.close();
  await consumer.disconnect();
  await service.close();
  await knex.destroy();
});
