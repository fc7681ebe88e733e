import 'reflect-metadata';
import { DataSource } from 'typeorm';
import { Invoice, Order } from './entities.js';
import { Shop1767225600000 } from './migrations/shop-1767225600000.js';

export const dataSource = new DataSource({
  type: 'postgres',
  url: process.env['DATABASE_URL'],
  entities: [Order, Invoice],
  migrations: [Shop1767225600000],
});
