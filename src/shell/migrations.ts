/** Exports the migrations that `-migrate` of a command applies. */
export { migrationsOf } from '../outbox/database/migration-files.ts';
