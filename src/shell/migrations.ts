/** What the `-migrate` of a command applies. */
export { migrationsOf } from '../outbox/database/migration-files.ts';
