import type { MigrationInterface, QueryRunner } from 'typeorm';

export class Shop1767225600000 implements MigrationInterface {
  async up(runner: QueryRunner): Promise<void> {
    await runner.query(`CREATE TABLE orders (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(), customer text NOT NULL, cents integer NOT NULL)`);
    await runner.query(`CREATE TABLE invoices (
      id bigserial PRIMARY KEY, order_id uuid NOT NULL, cents integer NOT NULL, charge text)`);
    await runner.query('CREATE INDEX invoices_order_id ON invoices (order_id)');
  }

  async down(runner: QueryRunner): Promise<void> {
    await runner.query('DROP TABLE invoices, orders');
  }
}
