/** Schema, topic, slot and publication of a chaos run. */
import { sleep, type Timers } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { BrokerDriver } from '../../io/kafka/port.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { RunNames } from './pipeline.ts';

const DROPS_MAX = 50;
const DROP_PAUSE_MS = 100;
/** Tables whose rows would belong to another run. */
const TABLES = ['orders', 'idempotency_keys', 'outbox', 'inbox', 'charges'];

/** @throws bad_value where a table has rows: the reconciler would count them */
export async function requireEmptyTables(pool: SqlPool, schema: string): Promise<void> {
  for (const table of TABLES) {
    const { rows } = await pool.query<{ found: boolean }>('SELECT to_regclass($1) IS NOT NULL AS found', [
      `${schema}.${table}`,
    ]);
    if (rows[0]?.found !== true) continue;
    const { rows: some } = await pool.query(`SELECT FROM ${schema}.${table} LIMIT 1`);
    if (some.length > 0)
      throw coreError('bad_value', `the table ${schema}.${table} has rows`, {
        next: 'give a new -schema, or leave it out',
      });
  }
}

export interface RemoveOptions {
  readonly names: RunNames;
  readonly pool: SqlPool;
  readonly driver: BrokerDriver;
  readonly brokers: string;
  readonly clock: Timers;
  /** False: the schema and the topic stay for an inspection. */
  readonly removesData: boolean;
}

/** Removes what a run created on servers of the user. The slot never stays: it would hold the
 *  log of the server. */
export async function removeTraces(options: RemoveOptions): Promise<void> {
  const { names, pool, driver, brokers, removesData } = options;
  await dropSlot(options);
  await pool.query(`DROP PUBLICATION IF EXISTS ${names.publication}`);
  if (!removesData) return;
  await pool.query(`DROP SCHEMA IF EXISTS ${names.schema} CASCADE`);
  const admin = await driver.admin({ brokers, clientId: 'millrace-chaos' });
  try {
    await admin.deleteTopics([names.topic]);
  } finally {
    await admin.close();
  }
}

/** The server notices the end of a killed relay late, so its session is ended. */
async function dropSlot({ names, pool, clock }: RemoveOptions): Promise<void> {
  for (let attempt = 0; attempt < DROPS_MAX; attempt++) {
    await pool.query(
      'SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active',
      [names.slot],
    );
    await pool
      .query(
        'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active',
        [names.slot],
      )
      .catch(() => undefined);
    const { rows } = await pool.query('SELECT FROM pg_replication_slots WHERE slot_name = $1', [names.slot]);
    if (rows.length === 0) return;
    await sleep(clock, DROP_PAUSE_MS);
  }
  throw coreError('unreachable', `the replication slot ${names.slot} could not be dropped`, {
    next: `SELECT pg_drop_replication_slot('${names.slot}')`,
  });
}
