/** What the `-migrate` of a command applies. */
export { migrationsOf } from '../../outbox/migration-files.ts';
