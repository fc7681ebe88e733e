import {
  BadRequestException,
  Body,
  Controller,
  Get,
  Inject,
  NotFoundException,
  Param,
  ParseUUIDPipe,
  Post,
  Req,
  UseInterceptors,
} from '@nestjs/common';
import { MillraceOutbox } from 'millrace/outbox/nestjs';
import { DataSource, type EntityManager } from 'typeorm';
import { Invoice, Order } from './entities.js';
import { idem } from './idempotency.js';

@Controller('orders')
export class OrdersController {
  constructor(
    @Inject(DataSource) private readonly dataSource: DataSource,
    @Inject(MillraceOutbox) private readonly outbox: MillraceOutbox<EntityManager>,
  ) {}

  // One transaction of TypeORM holds the idempotency key, the order and its event.
  @Post()
  @UseInterceptors(idem.nest())
  async create(@Req() request: object, @Body() body: Partial<Order>): Promise<Order> {
    const { customer, cents } = body;
    if (typeof customer !== 'string' || !Number.isInteger(cents) || Number(cents) <= 0) {
      throw new BadRequestException('give a customer, and cents above 0');
    }
    const { tx } = idem.of(request);
    const order = await tx.save(tx.create(Order, { customer, cents: Number(cents) }));
    const event = { aggregateId: order.id, eventType: 'order.placed.v1', payload: order };
    await this.outbox.append(tx, event);
    return order;
  }

  @Get(':id')
  async find(@Param('id', ParseUUIDPipe) id: string) {
    const order = await this.dataSource.manager.findOneBy(Order, { id });
    if (order === null) throw new NotFoundException();
    const invoice = await this.dataSource.manager.findOneBy(Invoice, { orderId: id });
    return { id, cents: order.cents, charge: invoice?.charge ?? null };
  }
}
