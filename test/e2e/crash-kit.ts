/** Kills of real processes under load that are known to have interrupted something: at a crash
 *  point, whose log line says how much was unfinished, or at a random moment, where the process is
 *  stopped first and the database is asked what it holds open. A kill that interrupted nothing does
 *  not count and is repeated. */
import { readFileSync } from 'node:fs';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import type { Running } from '../fixtures/process.ts';
import { pause, realClock, until } from '../wait.ts';

export interface Kill {
  readonly process: string;
  readonly point: string;
  /** What the death left undone, counted in the unit of `evidence`. */
  readonly unfinished: number;
  readonly evidence: string;
  /** When it was dead, seconds since this process started. */
  readonly atSeconds: number;
  /** Kills or looks that interrupted nothing before this one. */
  readonly repeated: number;
}

/** A process of the line, and what it leaves undone when it dies now. */
export interface Victim {
  readonly name: 'orders' | 'relay' | 'payments';
  /** @param more flags after those of the line
   *  @param name of its log */
  readonly start: (more: readonly string[], name?: string) => Running;
  /** Asked while the process stands still. */
  readonly unfinished: () => Promise<{ readonly unfinished: number; readonly evidence: string } | undefined>;
}

export const now = (): number => Math.round(realClock.monotonicMs() / 100) / 10;

/** Relay and payments die of rows, which come when orders is back. */
const DIES_WITHIN_MS = 180_000;
const ATTEMPTS_MAX = 400;
const REPEATS_MAX = 5;

/** The log line of a crash point. */
function crashLine(logPath: string): { readonly point: string; readonly unfinished: number } | undefined {
  for (const line of readFileSync(logPath, 'utf8').split('\n')) {
    if (!line.includes('"crash point reached"')) continue;
    const { point, unfinished } = JSON.parse(line) as { point: string; unfinished: number };
    return { point, unfinished };
  }
  return undefined;
}

/** Runs the process until it kills itself at the point. */
export async function killAtPoint(victim: Victim, point: string, after: number): Promise<Kill> {
  for (let repeated = 0; ; repeated++) {
    const name = `${victim.name}-${point}`;
    const one = victim.start([`-crash-point=${point}`, `-crash-after=${after}`], name);
    let over: { readonly code: number | null; readonly signal: string | null } | undefined;
    void one.ended.then((how) => {
      over = how;
    });
    const how = await until(`the death of ${name}`, async () => over, DIES_WITHIN_MS);
    const said = crashLine(one.logPath);
    if (how.signal !== 'SIGKILL' || said?.point !== point)
      throw new Error(`${name} ended by itself: ${one.log().slice(-2000)}`);
    if (said.unfinished > 0) {
      const evidence = `log line of the crash point ${point}`;
      return {
        process: victim.name,
        point,
        unfinished: said.unfinished,
        evidence,
        atSeconds: now(),
        repeated,
      };
    }
    if (repeated >= REPEATS_MAX) throw new Error(`${name} never interrupted anything`);
  }
}

/** Stops the process at random moments until it stands amid something, then kills it. */
export async function killAtRandom(victim: Victim, one: Running, random: () => number): Promise<Kill> {
  for (let repeated = 0; repeated < ATTEMPTS_MAX; repeated++) {
    await pause(20 + random() * 150);
    one.kill('SIGSTOP');
    const found = await victim.unfinished();
    if (found !== undefined) {
      await one.die();
      return { process: victim.name, point: 'random', atSeconds: now(), repeated, ...found };
    }
    one.kill('SIGCONT');
  }
  throw new Error(`${victim.name} was never amid anything`);
}

/** Transactions that the processes of this name hold open, with their locks for writing, of one
 *  table where it is given. */
export async function openTransactions(
  pool: SqlPool,
  applicationName: string,
  table?: string,
): Promise<{ readonly unfinished: number; readonly evidence: string } | undefined> {
  const { rows } = await pool.query<{ open: bigint; locks: bigint }>(
    `SELECT count(DISTINCT a.pid) AS open, count(l.pid) AS locks FROM pg_stat_activity a
     JOIN pg_locks l ON l.pid = a.pid AND l.mode = 'RowExclusiveLock' AND l.granted
     WHERE a.application_name LIKE $1 AND a.xact_start IS NOT NULL
       AND ($2::text IS NULL OR l.relation = to_regclass($2))`,
    [`${applicationName}%`, table ?? null],
  );
  const open = Number(rows[0]?.open);
  if (open === 0) return undefined;
  return { unfinished: open, evidence: `open transactions with ${rows[0]?.locks} locks for writing` };
}

export async function countOf(pool: SqlPool, sql: string): Promise<number> {
  const { rows } = await pool.query<{ n: bigint }>(`SELECT count(*) AS n FROM ${sql}`);
  return Number(rows[0]?.n);
}
