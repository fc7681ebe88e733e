// The HTTP server.
import 'reflect-metadata';
import { Module, type OnApplicationShutdown } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { openMetricsPage } from 'millrace/drivers';
import { typeormTransaction } from 'millrace/outbox/adapters';
import { MillraceModule } from 'millrace/outbox/nestjs';
import { DataSource } from 'typeorm';
import { dataSource } from './data-source.js';
import { idem, metrics } from './idempotency.js';
import { METRICS_PAGE, MetricsController } from './metrics.controller.js';
import { OrdersController } from './orders.controller.js';
import { tables } from './service.js';

@Module({
  imports: [MillraceModule.forRoot({ outboxTable: tables.outboxTable, adapt: typeormTransaction })],
  controllers: [OrdersController, MetricsController],
  providers: [
    { provide: DataSource, useFactory: () => dataSource.initialize() },
    { provide: METRICS_PAGE, useFactory: () => openMetricsPage(metrics) },
  ],
})
class ServerModule implements OnApplicationShutdown {
  async onApplicationShutdown(): Promise<void> {
    await idem.close();
    await dataSource.destroy();
  }
}

const app = await NestFactory.create(ServerModule, { logger: ['error', 'warn'] });
app.enableShutdownHooks([], { useProcessExit: true });
await app.listen(Number(process.env['PORT'] ?? 3000), '127.0.0.1');
console.log('listening');
