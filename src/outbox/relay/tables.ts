/** Tables of the relay, created by the migrations in sql/. */
export const RELAY_TABLES = ['relay_members', 'relay_leases', 'relay_slots', 'relay_dead_letters'] as const;
