/** Database connections of `millrace orders`: one pool for general use, and a small one for the
 *  transactions that write orders. */
import { findMillraceError } from '../../core/errors.ts';
import type { SqlPool, TextDriver, TextPool } from '../../io/postgres/sql/port.ts';
import { withSettings } from '../../outbox/database/connection.ts';
import { BATCH_LOCK_MS, SIDE_CONNECTIONS } from '../../outbox/orders/write/writer.ts';
import type { CommandContext } from '../../shell/command.ts';
import { runsNative, sqlDriver } from '../../shell/drivers.ts';
import type { ORDERS_SETTINGS } from './settings.ts';

type Context = CommandContext<typeof ORDERS_SETTINGS>;

const CONNECT_TIMEOUT_MS = 5000;
/** Reads of orders, readiness, maintenance. */
const PLAIN_CONNECTIONS = 4;
/** Grace so that the server's own timeout fires first. */
const ANSWER_GRACE_MS = 1000;

async function connect(context: Context, connectionsMax: number, answerTimeoutMs?: number): Promise<SqlPool> {
  const { settings } = context;
  return (await sqlDriver(context)).connect({
    url: withSettings(settings.postgres, {
      schema: settings.schema,
      lockTimeoutMs: settings['inflight-wait'],
    }),
    connectionsMax,
    applicationName: 'millrace orders',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    ...(answerTimeoutMs === undefined ? {} : { answerTimeoutMs }),
  });
}

export async function openPlain(context: Context): Promise<SqlPool> {
  const answerTimeoutMs = context.settings.deadline + ANSWER_GRACE_MS;
  const pool = await connect(context, PLAIN_CONNECTIONS, answerTimeoutMs);
  context.onClose(() => pool.close());
  return pool;
}

/** Pool without an answer timeout, for long-running statements. */
export async function withPatientPool<T>(context: Context, work: (pool: SqlPool) => Promise<T>): Promise<T> {
  const pool = await connect(context, 1);
  try {
    return await work(pool);
  } finally {
    await pool.close();
  }
}

async function textDriver(context: Context, url: string): Promise<TextDriver> {
  const { sql } = context.settings;
  const { pgTextDriver } = await import('../../io/postgres/sql/pg-text.ts');
  const note = (driver: TextDriver, reason: string, level: 'info' | 'warn' = 'info'): TextDriver => {
    context.log[level]({ port: 'sql', driver: driver.name, reason }, 'driver chosen');
    return driver;
  };
  if (sql === 'pg') return note(pgTextDriver, 'asked for');
  const { pgNativeDriver, whyNotNative } = await import('../../io/postgres/sql/pg-native.ts');
  if (sql === 'native') return note(pgNativeDriver, 'asked for');
  if (!runsNative(context)) return note(pgTextDriver, 'native code is off');
  const obstacle = whyNotNative(url);
  if (obstacle === undefined) return note(pgNativeDriver, 'fastest');
  return note(pgTextDriver, `not pg-native: ${obstacle}`, obstacle.startsWith('libpq') ? 'warn' : 'info');
}

export async function openHot(context: Context, plain: SqlPool, lanes: number): Promise<TextPool> {
  const { settings, log } = context;
  const durable = await isDurable(plain);
  if (!durable) log.warn({}, 'the server has synchronous_commit off; orders are written with it on');
  const url = withSettings(settings.postgres, {
    schema: settings.schema,
    lockTimeoutMs: Math.min(BATCH_LOCK_MS, settings['inflight-wait']),
    // There are few statements, and their best plans do not depend on values: index lookups by key,
    // hash joins for a batch.
    more: {
      statement_timeout: String(Math.ceil(settings.deadline)),
      idle_in_transaction_session_timeout: String(Math.ceil(settings.deadline)),
      plan_cache_mode: 'force_generic_plan',
      enable_seqscan: 'off',
      enable_nestloop: 'off',
      enable_mergejoin: 'off',
      jit: 'off',
      ...(durable ? {} : { synchronous_commit: 'on' }),
    },
  });
  const driver = await textDriver(context, url);
  const pool = await driver.connect({
    url,
    connectionsMax: lanes + SIDE_CONNECTIONS,
    applicationName: 'millrace orders',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    answerTimeoutMs: settings.deadline + ANSWER_GRACE_MS,
  });
  context.onClose(() => pool.close());
  return pool;
}

/** True if the database answers and is not a read-only standby. */
export async function canWrite(pool: SqlPool): Promise<boolean> {
  const { rows } = await pool.query<{ value: string }>(
    `SELECT current_setting('transaction_read_only') AS value`,
  );
  return rows[0]?.value === 'off';
}

async function isDurable(pool: SqlPool): Promise<boolean> {
  const { rows } = await pool.query<{ value: string }>(
    `SELECT current_setting('synchronous_commit') AS value`,
  );
  return rows[0]?.value !== 'off';
}

/** Returns a function that wakes the relays of this host; a no-op if the server cannot be
 *  identified. */
export async function openWaker(context: Context, pool: SqlPool): Promise<() => void> {
  try {
    const { unixWake } = await import('../../io/wake/unix.ts');
    const { rows } = await pool.query<{ name: string }>('SELECT current_database()::text AS name');
    const waker = await unixWake.waker({
      systemIdentifier: await pool.systemIdentifier(),
      database: (rows[0] as { name: string }).name,
      table: `${context.settings.schema}.outbox`,
    });
    context.onClose(() => waker.close());
    return () => waker.wake();
  } catch (thrown) {
    const error = findMillraceError(thrown);
    context.log.warn({ error: error?.message ?? String(thrown) }, 'cannot wake relays; they poll');
    return () => {};
  }
}
