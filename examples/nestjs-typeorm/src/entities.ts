// The service's own tables. `npm run migrate` creates those of Millrace beside them.
import { Column, Entity, Index, PrimaryGeneratedColumn } from 'typeorm';

@Entity('orders')
export class Order {
  @PrimaryGeneratedColumn('uuid')
  id!: string;

  @Column('text')
  customer!: string;

  @Column('integer')
  cents!: number;
}

@Entity('invoices')
export class Invoice {
  @PrimaryGeneratedColumn('increment', { type: 'bigint' })
  id!: string;

  @Index('invoices_order_id')
  @Column('uuid', { name: 'order_id' })
  orderId!: string;

  @Column('integer')
  cents!: number;

  /** Id of the payment at the provider; null until it is charged. */
  @Column('text', { nullable: true })
  charge!: string | null;
}
