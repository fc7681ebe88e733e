/** Test kit of the inbox: a schema with an inbox, sessions that pause between statements, and ids
 *  with any time and version. */
import { randomBytes, randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll } from 'vitest';
import type { SqlPool, SqlSession } from '../../src/io/postgres/sql/port.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { inboxNames } from '../../src/outbox/inbox/names.ts';
import { makePartitions } from '../../src/outbox/inbox/retention/partitions.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { connectPool } from '../fixtures/database.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';

export const HOUR_MS = 3_600_000;
/** Start of an hour, so that partitions begin at the times that the tests use. */
export const T0 = Date.UTC(2026, 5, 1);

/** Returns a UUID with this time in its first 48 bits and random bits elsewhere. */
export function idAt(ms: number, version: string = '7'): string {
  const hex = Math.floor(ms).toString(16).padStart(12, '0');
  const tail = randomBytes(10).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-${version}${tail.slice(0, 3)}-a${tail.slice(4, 7)}-${tail.slice(7, 19)}`;
}

export const v4 = (): string => randomUUID();

export interface InboxWorld {
  readonly url: string;
  readonly schema: string;
  readonly pool: SqlPool;
  /** Returns a connected client of the pg package, as a service uses it. */
  client(): Promise<pg.Client>;
}

/** Creates a schema with an inbox of this name and partitions for `hours` from T0 on. */
export async function inboxWorld(hours = 0, table = 'inbox'): Promise<InboxWorld> {
  const { postgres } = await sharedStack();
  const schema = `inbox_${randomBytes(5).toString('hex')}`;
  const url = withSettings(postgres, { schema });
  const pool = await connectPool(url, { connections: 6, name: schema });
  const clients: pg.Client[] = [];
  afterAll(async () => {
    for (const client of clients) await client.end();
    await pool.query(`DROP SCHEMA ${schema} CASCADE`);
    await pool.close();
  });
  await pool.query(`CREATE SCHEMA ${schema}`);
  await pool.query(inboxTableSql(table));
  if (hours > 0) {
    await makePartitions(pool, inboxNames(table), {
      fromMs: T0,
      toMs: T0 + hours * HOUR_MS,
      widthMs: HOUR_MS,
    });
  }
  return {
    url,
    schema,
    pool,
    client: async () => {
      const client = new pg.Client({ connectionString: url, application_name: schema });
      clients.push(client);
      await client.connect();
      return client;
    },
  };
}

/** Wraps a session: each query first awaits `gate`, which gets the number and the text of the
 *  statement. */
export function gated(session: SqlSession, gate: (step: number, text: string) => Promise<void>): SqlSession {
  let step = 0;
  return {
    async query(text, params) {
      await gate(step++, text);
      return session.query(text, params);
    },
    copyIn: (table, columns, rows) => session.copyIn(table, columns, rows),
  };
}

/** Waits until `isDone` returns true, or until a backend of this schema waits for a lock. */
export const settledOrBlocked = (world: InboxWorld, isDone: () => boolean): Promise<'settled' | 'blocked'> =>
  until('the end of the work, or a backend that waits for a lock', async () => {
    if (isDone()) return 'settled';
    const { rows } = await world.pool.query<{ n: bigint }>(
      `SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`,
      [world.schema],
    );
    return (rows[0]?.n ?? 0n) > 0n && 'blocked';
  });
