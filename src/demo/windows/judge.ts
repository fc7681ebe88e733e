/** Judges the windows slice: the sink against the oracle's tables by SQL, the drops recorded in the
 *  engine's checkpoint against the oracle's count, and the crash against the files and the
 *  topic. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { Fact } from '../fact.ts';
import { ORDER_VERSIONS, type WindowCase } from './cases.ts';
import type { OracleCounts } from './oracle.ts';

/** State outside the engine at the moment of its SIGKILL. */
export interface Kill {
  /** Events consumed, from its last /metrics. */
  readonly consumed: number;
  /** Events in the topic right after the kill: an upper bound of what the engine consumed. */
  readonly held: number;
  /** Events before the newest checkpoint that the dead process left. */
  readonly checkpointed: number;
  /** Sorted runs of spilled state that this checkpoint refers to. */
  readonly pieces: number;
  /** Signal that ended the process. */
  readonly signal: string | null;
}

export interface RunRecord {
  readonly name: string;
  readonly input: WindowCase['input'];
  readonly topic: string;
  readonly events: number;
  /** True if an event may be in several windows. */
  readonly overlaps: boolean;
  /** Flags of the engine's state. */
  readonly state: readonly string[];
  /** Events required between checkpoint and kill. */
  readonly pastCheckpoint: number;
  readonly stateDir: string;
  readonly sinkTable: string;
  /** The oracle's result for the arrival log; undefined if it is not required. */
  readonly arrivalTable: string | undefined;
  readonly arrival: OracleCounts;
  /** Batch result of the true order; undefined if it is not required. */
  readonly trueTable: string | undefined;
  readonly kill: Kill;
}

interface RecordedCheckpoint {
  readonly partitions: readonly { readonly consumed: number; readonly dropped_late: number }[];
  /** `spill` if state is spilled to disk: id of the last sorted run, and the live sorted runs. */
  readonly state_snapshot_ptr?: {
    readonly spill?: { readonly last_id: number; readonly pieces: readonly unknown[] } | null;
  };
}

export const sum = (numbers: readonly (number | string)[]): number =>
  numbers.reduce<number>((total, one) => total + Number(one), 0);
const n = (value: number): string => value.toLocaleString('en-US');
const percent = (part: number, whole: number): string => `${((100 * part) / Math.max(1, whole)).toFixed(3)}%`;

/** Newest manifest in a state folder, parsed from its text without checking its checksum. */
export async function newestManifest(
  stateDir: string,
): Promise<{ readonly path: string; readonly recorded: RecordedCheckpoint } | undefined> {
  const names = (await readdir(stateDir).catch(() => []))
    .filter((name) => /^checkpoint-\d+\.manifest$/.test(name))
    .sort();
  const name = names.at(-1);
  if (name === undefined) return undefined;
  const path = join(stateDir, name);
  const text = await readFile(path, 'utf8').catch(() => '');
  const end = text.lastIndexOf('\ncrc32 ');
  return end < 0 ? undefined : { path, recorded: JSON.parse(text.slice(0, end)) as RecordedCheckpoint };
}

export const consumedOf = (recorded: RecordedCheckpoint): number =>
  sum(recorded.partitions.map((one) => one.consumed));

const spillOf = (recorded: RecordedCheckpoint | undefined) => recorded?.state_snapshot_ptr?.spill;
export const piecesOf = (recorded: RecordedCheckpoint | undefined): number =>
  spillOf(recorded)?.pieces.length ?? 0;
export const isOnDisk = (state: readonly string[]): boolean => state.includes('-state=disk');

const VALUES = ['count', 'sum', 'min', 'max', 'last_update_ts', 'overflow'];

interface Comparison {
  readonly rows: number;
  readonly expected: number;
  readonly missing: number;
  readonly extra: number;
  readonly different: number;
  /** Events accumulated in the sink's rows, and in the expected rows. */
  readonly events: number;
  readonly expectedEvents: number;
  /** Sum of the values in the sink's rows. */
  readonly revenue: string;
  /** Sum of the absolute differences in count. */
  readonly countError: number;
  /** Digests of all rows in order: of the sink and of the expected rows. */
  readonly digests: readonly [string, string];
}

/** MD5 of every row in the order (window_end, account_id), as text. */
async function digestOf(pool: SqlPool, table: string): Promise<string> {
  const columns = ['account_id', 'window_start', 'window_end', ...VALUES];
  const { rows } = await pool.query(
    `SELECT md5(coalesce(string_agg(concat_ws(',', ${columns.join(', ')}), E'\\n' ORDER BY window_end, account_id, window_start), '')) AS digest FROM ${table} AS t`,
  );
  return String(rows[0]?.['digest']);
}

/** Text of a FROM item: the rows of a sink with times in ms, as the oracle has them. */
async function withMs(pool: SqlPool, table: string): Promise<string> {
  const { rows } = await pool.query(
    `SELECT pg_typeof(window_start)::text AS type FROM (SELECT NULL) AS one LEFT JOIN ${table} ON true LIMIT 1`,
  );
  if (rows[0]?.['type'] === 'bigint') return table;
  const ms = (name: string): string => `round(extract(epoch FROM ${name}) * 1000)::int8 AS ${name}`;
  return `(SELECT account_id, ${['window_start', 'window_end', 'last_update_ts'].map(ms).join(', ')},
    count, sum, min, max, overflow FROM ${table})`;
}

/** Compares every row of the sink with every expected row. */
async function compare(pool: SqlPool, table: string, expected: string): Promise<Comparison> {
  const sink = await withMs(pool, table);
  const tuple = (prefix: string): string => VALUES.map((column) => `${prefix}.${column}`).join(', ');
  const { rows } =
    await pool.query(`SELECT count(s.account_id)::float8 AS rows, count(e.account_id)::float8 AS expected,
    (count(*) FILTER (WHERE s.account_id IS NULL))::float8 AS missing,
    (count(*) FILTER (WHERE e.account_id IS NULL))::float8 AS extra,
    (count(*) FILTER (WHERE s.account_id IS NOT NULL AND e.account_id IS NOT NULL
      AND (${tuple('s')}) IS DISTINCT FROM (${tuple('e')})))::float8 AS different,
    coalesce(sum(s.count), 0)::float8 AS "events", coalesce(sum(e.count), 0)::float8 AS "expectedEvents",
    coalesce(sum(s.sum), 0)::text AS revenue,
    coalesce(sum(abs(coalesce(s.count, 0) - coalesce(e.count, 0))), 0)::float8 AS "countError"
    FROM ${sink} s FULL JOIN ${expected} e USING (account_id, window_start, window_end)`);
  const [row] = rows;
  if (row === undefined) throw coreError('internal', 'a count of rows has no row');
  const digests = [await digestOf(pool, sink), await digestOf(pool, expected)] as const;
  return { ...(row as unknown as Omit<Comparison, 'digests'>), digests };
}

const isEqual = (c: Comparison): boolean =>
  c.expected > 0 && c.missing === 0 && c.extra === 0 && c.different === 0 && c.digests[0] === c.digests[1];
const short = (digest: string): string => digest.slice(0, 12);
const describe = (c: Comparison): string =>
  `${n(c.rows)} rows, ${n(c.expected)} expected: ${n(c.missing)} missing, ${n(c.extra)} too many, ${n(c.different)} different; digest ${short(c.digests[0])}, expected ${short(c.digests[1])}`;

/** True if the kill was in the middle, after a checkpoint and far enough from it. */
export const isTimely = ({
  kill,
  events,
  pastCheckpoint,
}: Pick<RunRecord, 'kill' | 'events' | 'pastCheckpoint'>): boolean =>
  kill.signal === 'SIGKILL' &&
  kill.consumed >= 0.2 * events &&
  kill.held <= 0.8 * events &&
  kill.checkpointed > 0 &&
  kill.consumed - kill.checkpointed >= pastCheckpoint;

export function killFact(run: RunRecord): Fact {
  const { kill, events } = run;
  const past = kill.consumed - kill.checkpointed;
  return {
    slice: 'windows',
    claim: `${run.name}: the engine was killed between 20% and 80%, after a checkpoint and at least ${n(run.pastCheckpoint)} events past it`,
    seen: `${kill.signal ?? 'no signal'} at ${n(kill.consumed)} of ${n(events)} consumed (the topic held ${n(kill.held)}), ${n(past)} past the checkpoint at ${n(kill.checkpointed)}`,
    holds: isTimely(run),
  };
}

async function spillFact(run: RunRecord): Promise<Fact> {
  const written = spillOf((await newestManifest(run.stateDir))?.recorded)?.last_id ?? 0;
  return {
    slice: 'windows',
    claim: `${run.name}: state was spilled to disk and restored from there (${run.state.join(' ')})`,
    seen: `${n(written)} sorted runs were written; the last checkpoint of the dead process refers to ${n(run.kill.pieces)}`,
    holds: written >= run.kill.pieces && run.kill.pieces > 0,
  };
}

async function recordedDrops(run: RunRecord): Promise<readonly number[]> {
  const newest = await newestManifest(run.stateDir);
  return newest?.recorded.partitions.map((one) => one.dropped_late) ?? [];
}

export async function judgeRun(pool: SqlPool, run: RunRecord): Promise<readonly Fact[]> {
  const { arrivalTable, trueTable } = run;
  const results =
    run.input === 'orders'
      ? await judgeRevenue(pool, run, arrivalTable as string)
      : arrivalTable === undefined
        ? await judgeOnTime(pool, run, trueTable as string)
        : await judgeLate(pool, run, arrivalTable);
  const cost =
    arrivalTable === undefined || trueTable === undefined ? [] : [await costFact(pool, run, trueTable)];
  const spilled = isOnDisk(run.state) ? [await spillFact(run)] : [];
  return [...results, ...cost, ...spilled, killFact(run)];
}

/** Delays within skew + lateness: no event may be dropped, and the result is the batch result. */
async function judgeOnTime(pool: SqlPool, run: RunRecord, trueTable: string): Promise<readonly Fact[]> {
  const comparison = await compare(pool, run.sinkTable, trueTable);
  return [
    {
      slice: 'windows',
      claim: `${run.name}: the sink equals the batch result of the true order, row for row`,
      seen: `${n(run.events)} events; ${describe(comparison)}`,
      holds: isEqual(comparison) && comparison.events === run.events,
    },
    await nothingDropped(run),
  ];
}

async function nothingDropped(run: RunRecord): Promise<Fact> {
  const drops = await recordedDrops(run);
  return {
    slice: 'windows',
    claim: `${run.name}: dropped_late = 0`,
    seen: `engine ${n(sum(drops))}, oracle ${n(sum(run.arrival.dropped_late))}`,
    holds: drops.length > 0 && sum(drops) === 0 && sum(run.arrival.dropped_late) === 0,
  };
}

/** Orders of several schema versions: an independent decoder reads the topic. */
async function judgeRevenue(pool: SqlPool, run: RunRecord, arrivalTable: string): Promise<readonly Fact[]> {
  const comparison = await compare(pool, run.sinkTable, arrivalTable);
  const { consumed, invalid, writers = {} } = run.arrival;
  const byVersion = Object.values(writers);
  return [
    {
      slice: 'windows',
      claim: `${run.name}: the sink equals an independent reading of the Order topic, row for row`,
      seen: `${n(run.events)} orders of ${byVersion.length} schema versions (${byVersion.map(n).join(', ')}), ${n(Number(comparison.revenue))} cents; ${describe(comparison)}`,
      holds:
        isEqual(comparison) &&
        comparison.events === run.events &&
        sum(consumed) === run.events &&
        sum(invalid) === 0 &&
        byVersion.length === ORDER_VERSIONS,
    },
    await nothingDropped(run),
  ];
}

/** With stragglers: result and drops follow from the rules applied to the arrival log. */
async function judgeLate(pool: SqlPool, run: RunRecord, arrivalTable: string): Promise<readonly Fact[]> {
  const arrival = await compare(pool, run.sinkTable, arrivalTable);
  const drops = await recordedDrops(run);
  const expected = run.arrival.dropped_late;
  const dropped = sum(expected);
  const isWhole = run.overlaps || arrival.events + dropped === run.events;
  return [
    {
      slice: 'windows',
      claim: `${run.name}: the sink equals an independent reading of the arrival log, row for row`,
      seen: `${n(run.events)} events; ${describe(arrival)}`,
      holds: isEqual(arrival) && sum(run.arrival.consumed) === run.events && isWhole,
    },
    {
      slice: 'windows',
      claim: `${run.name}: dropped_late equals the independent count, partition by partition`,
      seen: `engine ${drops.join('+')}, oracle ${expected.join('+')} = ${n(dropped)} (${percent(dropped, run.events)})`,
      holds:
        dropped > 0 &&
        drops.length === expected.length &&
        drops.every((one, p) => one === Number(expected[p])),
    },
  ];
}

/** Cost of lateness if an event is in one window only: each dropped event is missing exactly
 *  once. */
async function costFact(pool: SqlPool, run: RunRecord, trueTable: string): Promise<Fact> {
  const truth = await compare(pool, run.sinkTable, trueTable);
  const dropped = sum(run.arrival.dropped_late);
  return {
    slice: 'windows',
    claim: `${run.name}: the error against the true order is exactly the dropped events`,
    seen: `${n(truth.different + truth.missing)} of ${n(truth.expected)} results differ (${percent(truth.different + truth.missing, truth.expected)}), ${n(truth.countError)} of ${n(truth.expectedEvents)} events are missing in them (${percent(truth.countError, truth.expectedEvents)})`,
    holds: truth.extra === 0 && truth.countError === dropped && truth.expectedEvents === run.events,
  };
}
