/** Parts that every mode of `millrace reconcile` needs: connections, pairs and the end of a run. */
import { readFile } from 'node:fs/promises';
import { sleep } from '../../core/clock.ts';
import { coreError } from '../../core/errors.ts';
import type { SqlDriver, SqlPool } from '../../io/postgres/sql/port.ts';
import { withSettings } from '../../outbox/database/connection.ts';
import { libraryPair, parsePairs } from '../../outbox/reconcile/pairs/config.ts';
import type { PairConfig } from '../../outbox/reconcile/pairs/pair.ts';
import { sqlDriver } from '../../shell/drivers.ts';
import type { Context } from './settings.ts';

const CONNECT_TIMEOUT_MS = 5000;
/** A comparison has a snapshot for each side. */
const CONNECTIONS = 2;
const PAIRS_BYTES_MAX = 1024 * 1024;

export interface Databases {
  /** Database of the intents. */
  readonly left: SqlPool;
  /** Database of the effects; the same pool, if there is one database. */
  readonly right: SqlPool;
}

export interface ConnectOptions {
  readonly paymentsSchema: string;
  /** Time after which an unanswered statement counts as lost, ms. */
  readonly answerTimeoutMs?: number;
}

/** Opens the pools, and closes them when the command ends. */
export async function connectDatabases(
  context: Context,
  { paymentsSchema, answerTimeoutMs }: ConnectOptions,
): Promise<Databases> {
  const { settings } = context;
  const driver = await sqlDriver(context);
  const open = async (url: string, schema: string, flag: string): Promise<SqlPool> => {
    const pool = await connect(driver, withSettings(url, { schema }), flag, answerTimeoutMs);
    context.onClose(() => pool.close());
    return pool;
  };
  const left = await open(settings.postgres, settings.schema, '-postgres');
  const other = settings['inbox-postgres'];
  const right = other === undefined ? left : await open(other, paymentsSchema, '-inbox-postgres');
  return { left, right };
}

const connect = (
  driver: SqlDriver,
  url: string,
  flag: string,
  answerTimeoutMs: number | undefined,
): Promise<SqlPool> =>
  driver.connect({
    url,
    flag,
    connectionsMax: CONNECTIONS,
    applicationName: 'millrace reconcile',
    connectTimeoutMs: CONNECT_TIMEOUT_MS,
    ...(answerTimeoutMs === undefined ? {} : { answerTimeoutMs }),
  });

/** Pairs that the flags configure; undefined: orders with payments. @throws bad_file */
export async function configuredPairs({ settings }: Context): Promise<readonly PairConfig[] | undefined> {
  const { pairs: path, 'outbox-table': outbox, 'inbox-table': inbox } = settings;
  if (outbox !== undefined && inbox !== undefined) return [libraryPair(outbox, inbox)];
  if (path === undefined) return undefined;
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    throw coreError('bad_file', `cannot read the pairs ${path}: ${(cause as Error).message}`, {
      next: 'give a JSON file of pairs',
      cause,
    });
  }
  if (Buffer.byteLength(text) > PAIRS_BYTES_MAX)
    throw coreError('bad_file', `the pairs ${path} have more than ${PAIRS_BYTES_MAX} bytes`, {
      next: 'give a JSON file of pairs',
    });
  return parsePairs(path, text);
}

/** A stopped comparison must not exit with 0, which would mean that the invariant holds. */
export function throwIfDrained({ drain }: Context): void {
  if (drain.aborted) throw coreError('unreachable', 'the comparison was stopped before it finished');
}

/** Waits for rows in flight. @throws unreachable if the command is stopped meanwhile */
export async function waitSettled(context: Context, ms: number): Promise<void> {
  context.log.info({ wait_ms: Math.ceil(ms) }, 'rows differ and may be in flight; they are compared again');
  await sleep(context.clock, ms, context.drain);
  throwIfDrained(context);
}
