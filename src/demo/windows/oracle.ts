/** Runs the oracle, an independent program, and loads its output into tables next to the sink for
 *  comparison by SQL. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { coreError } from '../../core/errors.ts';
import type { SqlPool, SqlValue } from '../../io/postgres/sql/port.ts';
import { packageRoot } from '../../shell/package.ts';
import { LATENESS_MS, SKEW_MS } from './cases.ts';

const LAUNCHER = join(packageRoot(), 'bin', 'millrace');
const ORACLE = join(packageRoot(), 'dist', 'bench', 'peers', 'oracle', 'main.js');
const COLUMNS = [
  'account_id',
  'window_start',
  'window_end',
  'count',
  'sum',
  'min',
  'max',
  'last_update_ts',
  'overflow',
];
const COPY_ROWS = 50_000;

export interface OracleCounts {
  readonly rows: number;
  /** Counts by partition, as decimal text. */
  readonly consumed: readonly string[];
  readonly dropped_late: readonly string[];
  readonly invalid: readonly string[];
  /** Number of framed records by the schema id of their writer. */
  readonly writers?: Readonly<Record<string, number>>;
}

function start(args: readonly string[], stdin: 'ignore' | 'pipe', logPath: string): ChildProcess {
  const log = openSync(logPath, 'a');
  const child = spawn(process.execPath, args, { stdio: [stdin, 'pipe', log] });
  closeSync(log);
  return child;
}

async function codeOf(child: ChildProcess): Promise<number | null> {
  if (child.exitCode === null && child.signalCode === null) await once(child, 'close');
  return child.exitCode;
}

/** Maps account_id to an int8 bit for bit, as the sink stores it. */
function cells(line: string): readonly SqlValue[] {
  const [accountId, ...rest] = line.split(',');
  return [BigInt.asIntN(64, BigInt(accountId as string)), ...rest];
}

/** Copies the oracle's rows into a new table, if `table` is given, and returns its counts. */
async function load(
  pool: SqlPool,
  table: string | undefined,
  oracle: ChildProcess,
  logPath: string,
): Promise<OracleCounts> {
  if (table !== undefined)
    await pool.query(`CREATE UNLOGGED TABLE ${table} (account_id int8, window_start int8, window_end int8, count int8,
    sum int8, min int8, max int8, last_update_ts int8, overflow bool,
    PRIMARY KEY (account_id, window_start, window_end))`);
  let pending: (readonly SqlValue[])[] = [];
  const copy = async (): Promise<void> => {
    if (table !== undefined && pending.length > 0) await pool.copyIn(table, COLUMNS, pending);
    pending = [];
  };
  let last = '';
  for await (const line of createInterface({ input: oracle.stdout as NodeJS.ReadableStream })) {
    if (line.startsWith('{')) {
      last = line;
      continue;
    }
    pending.push(cells(line));
    if (pending.length >= COPY_ROWS) await copy();
  }
  await copy();
  const code = await codeOf(oracle);
  if (code !== 0 || last === '') {
    throw coreError('internal', `the oracle ended with ${code ?? oracle.signalCode}`, {
      next: `see ${logPath}`,
    });
  }
  if (table !== undefined) await pool.query(`ANALYZE ${table}`);
  return JSON.parse(last) as OracleCounts;
}

/** Loads the result for the topic in arrival order, which the oracle reads over its own connection.
 *  Without a table it only counts.
 *  @param flags windows, and the fields of framed records */
export function loadArrival(
  pool: SqlPool,
  table: string | undefined,
  brokers: string,
  topic: string,
  logPath: string,
  flags: readonly string[],
): Promise<OracleCounts> {
  const args = [
    ORACLE,
    'arrival',
    `-brokers=${brokers}`,
    `-topic=${topic}`,
    ...flags,
    `-skew=${SKEW_MS}`,
    `-lateness=${LATENESS_MS}`,
    `-rows=${table !== undefined}`,
  ];
  return load(pool, table, start(args, 'ignore', logPath), logPath);
}

/** Loads the result for the generator's events in true order, piped from the generator to the
 *  oracle. */
export async function loadTrueOrder(
  pool: SqlPool,
  table: string,
  genArgs: readonly string[],
  windows: readonly string[],
  logPath: string,
): Promise<OracleCounts> {
  const gen = start(
    [LAUNCHER, 'gen', ...genArgs, '-order=true', '-out=-', '-log-level=error'],
    'ignore',
    logPath,
  );
  const oracle = start([ORACLE, 'batch', ...windows], 'pipe', logPath);
  const input = oracle.stdin as NodeJS.WritableStream;
  // The exit code reports an oracle that ended early.
  input.on('error', () => gen.kill());
  gen.stdout?.pipe(input);
  const [counts, code] = await Promise.all([load(pool, table, oracle, logPath), codeOf(gen)]);
  if (code !== 0)
    throw coreError('internal', `the generator ended with ${code ?? gen.signalCode}`, {
      next: `see ${logPath}`,
    });
  return counts;
}
