// The work behind the server: publishes events, makes an invoice of each order, and charges it.
import 'reflect-metadata';
import { Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { MicroserviceOptions } from '@nestjs/microservices';
import { openDrivers, openMetricsPage, readBrokerConfig } from 'millrace/drivers';
import { typeormTransaction } from 'millrace/outbox/adapters';
import { MillraceTransport } from 'millrace/outbox/nestjs';
import type { EntityManager } from 'typeorm';
import { charge } from './charge.js';
import { dataSource } from './data-source.js';
import { InvoicesController } from './invoices.controller.js';
import { METRICS_PAGE, MetricsController } from './metrics.controller.js';
import { openService, tables, topic } from './service.js';

const drivers = await openDrivers(readBrokerConfig({ env: process.env }));
await dataSource.initialize();
const service = await openService(drivers);

// Publishes the rows of the outbox.
await service.relay({ table: tables.outboxTable, topic });

// Charges the invoices. Another worker takes over the calls of a killed one after leaseMs.
service.effects({ effectsTable: tables.effectsTable, leaseMs: 5000, handlers: { charge } });

// Calls the handlers of the topic. It closes the service at the end.
const strategy = new MillraceTransport<EntityManager>({
  service,
  consumers: [
    {
      ...tables,
      topic,
      transaction: (work) => dataSource.transaction((manager) => work(typeormTransaction(manager), manager)),
    },
  ],
});

@Module({
  controllers: [InvoicesController, MetricsController],
  providers: [{ provide: METRICS_PAGE, useFactory: () => openMetricsPage(drivers.metrics) }],
})
class WorkerModule implements OnApplicationShutdown {
  async onApplicationShutdown(): Promise<void> {
    await dataSource.destroy();
  }
}

const app = await NestFactory.create(WorkerModule, { logger: ['error', 'warn'] });
app.connectMicroservice<MicroserviceOptions>({ strategy });
app.enableShutdownHooks([], { useProcessExit: true });
await app.startAllMicroservices();
await app.listen(Number(process.env['METRICS_PORT'] ?? 9100), '127.0.0.1');
console.log('working');
