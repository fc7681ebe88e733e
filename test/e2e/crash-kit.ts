/** Kills real processes under load and records what each kill interrupted. A kill happens at a
 *  crash point, whose log line has the amount of unfinished work, or at a random moment. For a
 *  random kill the process is stopped first and its open work is read from the database. A kill
 *  that interrupted nothing does not count and is repeated. */
import { crashLineOf } from '../../src/chaos/crash-line.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import type { Running } from '../fixtures/process.ts';
import { pause, realClock, until } from '../wait.ts';

export interface Kill {
  readonly process: string;
  readonly point: string;
  /** Amount of work that the kill interrupted, in the unit of `evidence`. */
  readonly unfinished: number;
  readonly evidence: string;
  /** Time of death, in seconds since this process started. */
  readonly atSeconds: number;
  /** Number of preceding kills or checks that interrupted nothing. */
  readonly repeated: number;
}

/** Process that is killed, and the query for its unfinished work. */
export interface Victim {
  readonly name: 'orders' | 'relay' | 'payments';
  /** @param more flags after the default flags
   *  @param name name of the log file */
  readonly start: (more: readonly string[], name?: string) => Running;
  /** Returns the unfinished work; called while the process is stopped. */
  readonly unfinished: () => Promise<{ readonly unfinished: number; readonly evidence: string } | undefined>;
}

export const now = (): number => Math.round(realClock.monotonicMs() / 100) / 10;

/** Relay and payments reach their crash point only with rows, which arrive once orders is back. */
const DIES_WITHIN_MS = 180_000;
const ATTEMPTS_MAX = 400;
const REPEATS_MAX = 5;

/** Starts the process until it kills itself at the crash point with unfinished work. */
export async function killAtPoint(victim: Victim, point: string, after: number): Promise<Kill> {
  for (let repeated = 0; ; repeated++) {
    const name = `${victim.name}-${point}`;
    const one = victim.start([`-crash-point=${point}`, `-crash-after=${after}`], name);
    let exit: { readonly code: number | null; readonly signal: string | null } | undefined;
    void one.ended.then((how) => {
      exit = how;
    });
    const how = await until(`the death of ${name}`, async () => exit, DIES_WITHIN_MS);
    const crash = crashLineOf(one.log());
    if (how.signal !== 'SIGKILL' || crash?.point !== point)
      throw new Error(`${name} ended by itself: ${one.log().slice(-2000)}`);
    if (crash.unfinished > 0) {
      const evidence = `log line of the crash point ${point}`;
      return {
        process: victim.name,
        point,
        unfinished: crash.unfinished,
        evidence,
        atSeconds: now(),
        repeated,
      };
    }
    if (repeated >= REPEATS_MAX) throw new Error(`${name} interrupted no work`);
  }
}

/** Stops the process at random moments until it has unfinished work, then kills it. */
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
  throw new Error(`${victim.name} had no unfinished work at any of the random moments`);
}

/** Counts the open transactions of the processes with this name, and their row-exclusive locks (on
 *  `table` if given). */
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
