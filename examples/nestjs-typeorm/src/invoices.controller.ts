import { Controller } from '@nestjs/common';
import { Ctx, EventPattern, Payload } from '@nestjs/microservices';
import { effect } from 'millrace/outbox';
import { typeormTransaction } from 'millrace/outbox/adapters';
import type { MillraceContext } from 'millrace/outbox/nestjs';
import type { EntityManager } from 'typeorm';
import { Invoice, type Order } from './entities.js';
import { tables, topic } from './service.js';

interface OrderPlaced {
  readonly payload: Order;
}

@Controller()
export class InvoicesController {
  // Runs once for each event: the inbox row, the invoice and the effect commit together.
  @EventPattern(topic)
  async placed(@Payload() event: OrderPlaced, @Ctx() context: MillraceContext<EntityManager>): Promise<void> {
    const { id: orderId, cents } = event.payload;
    const manager = context.getTransaction();
    await manager.insert(Invoice, { orderId, cents });
    await effect(typeormTransaction(manager), tables.effectsTable, {
      name: 'charge',
      key: orderId,
      messageId: context.getMessageId(),
      input: { orderId, cents },
    });
  }
}
