import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { Invoice, Order } from './entities.js';
import { Shop1767225600000 } from './migrations/shop-1767225600000.js';

export const dataSource = new DataSource({
  type: 'postgres',
  url: process.env['DATABASE_URL'],
  // Ids come from gen_random_uuid() of PostgreSQL itself, without an extension.
  uuidExtension: 'pgcrypto',
  installExtensions: false,
  entities: [Order, Invoice],
  migrations: [Shop1767225600000],
});
