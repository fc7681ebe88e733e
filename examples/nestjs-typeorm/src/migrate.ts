// Creates or upgrades all tables. Run it before each release.
import { openDrivers } from 'millrace/drivers';
import { dataSource } from './data-source.js';
import { openService, tables } from './service.js';

await dataSource.initialize();
await dataSource.runMigrations();
await dataSource.destroy();

const service = await openService(await openDrivers());
await service.migrate([], tables);
await service.close();
console.log('migrated');
