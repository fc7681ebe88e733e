// Creates or upgrades all tables. Run it before each release.
import { openDrivers } from 'millrace/drivers';
import { knex } from './db.js';
import { openService, tables } from './service.js';

await knex.migrate.latest();
await knex.destroy();

const service = await openService(await openDrivers());
await service.migrate([], tables);
await service.close();
console.log('migrated');
