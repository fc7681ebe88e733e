// Creates or upgrades all tables. Run it before each release.
import { fileURLToPath } from 'node:url';
import { migrate } from 'drizzle-orm/node-postgres/migrator';
import { openDrivers } from 'millrace/drivers';
import { db, pool } from './db.js';
import { openService, tables } from './service.js';

await migrate(db, { migrationsFolder: fileURLToPath(new URL('../drizzle', import.meta.url)) });
await pool.end();

const service = await openService(await openDrivers());
await service.migrate([], tables);
await service.close();
console.log('migrated');
