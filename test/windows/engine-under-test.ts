/** Interface of an engine under test, and the runner of the proofs: it feeds a stream in batches,
 *  with checkpoints, crashes and restores at any number of shards, into a sink that keeps the last
 *  value of every key.
 *
 *  To have every proof cover an engine, write an adapter that implements `EngineUnderTest`. */
import fc from 'fast-check';
import { countersText, differenceText, rowText } from '../../bench/peers/oracle/difference.ts';
import { digestOf } from '../../bench/peers/oracle/digest.ts';
import type { LogEntry, OracleRow, OracleRules, PartitionCounters } from '../../bench/peers/oracle/rules.ts';
import { Oracle, oracleOf } from '../../bench/peers/oracle/windows.ts';
import type { Stream, StreamOptions } from './streams.ts';

/** Record of the log with its offset. */
export interface InputRecord {
  readonly entry: Extract<LogEntry, { readonly partition: number }>;
  readonly offset: number;
}

export interface JobUnderTest {
  readonly rules: OracleRules;
  /** Partitions at the start of the stream. `added` adds further ones; a restore finds them in the
   *  state that the dead process left. */
  readonly partitions: number;
  readonly shards: number;
  /** Rows of the largest batch. */
  readonly rowsMax?: number;
}

export interface EngineRun {
  /** Processes one batch of records in arrival order, without decisions.
   *  @returns the results that fired, in firing order */
  feed(batch: readonly InputRecord[]): Promise<readonly OracleRow[]>;
  /** Declares the partition idle until its next record. */
  idle(partition: number): Promise<readonly OracleRow[]>;
  /** Adds one partition. */
  added(): Promise<readonly OracleRow[]>;
  /** Returns results that the frontier has reached but that have not left yet; for engines that may
   *  delay them. */
  settle?(): Promise<readonly OracleRow[]>;
  /** Ends a bounded input: all open windows fire. */
  drain(): Promise<readonly OracleRow[]>;
  counters(): readonly PartitionCounters[];
  /** Number of log entries, records and decisions, that the state covers. A restored run resumes
   *  there. */
  position(): number;
  checkpoint(): Promise<void>;
  /** Kills the process.
   *  @returns what it leaves for `restore`; undefined if nothing */
  kill(): Promise<unknown>;
}

export interface EngineUnderTest {
  readonly name: string;
  /** Kinds of streams that the engine supports. */
  readonly computes: StreamOptions;
  start(job: JobUnderTest): Promise<EngineRun>;
  /** Starts another process on the state of a dead process. The number of shards may differ. */
  restore(job: JobUnderTest, left: unknown): Promise<EngineRun>;
}

/** Schedule of a run: batch sizes, checkpoints, crashes and shards. */
export interface Course {
  /** Rows of each batch; the last size repeats. */
  readonly batchRows: readonly number[];
  /** Batches between checkpoints; 0 means no checkpoints. */
  readonly checkpointEvery: number;
  /** Number of batches that each life but the last processes. */
  readonly lives: readonly number[];
  /** Shards of each life; the list repeats. */
  readonly shards: readonly number[];
  /** True if the broker delivers the partitions one after the other after a crash. */
  readonly regroups: boolean;
  /** Lateness of each life, ms, never less than that of the life before; the last repeats. Absent:
   *  that of the stream. */
  readonly latenessMs?: readonly bigint[];
}

export const PLAIN: Course = { batchRows: [7], checkpointEvery: 0, lives: [], shards: [1], regroups: false };

export const courses: fc.Arbitrary<Course> = fc.record({
  batchRows: fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 5 }),
  checkpointEvery: fc.integer({ min: 0, max: 4 }),
  lives: fc.array(fc.integer({ min: 0, max: 12 }), { maxLength: 4 }),
  shards: fc.array(fc.constantFrom(1, 2, 7), { minLength: 1, maxLength: 3 }),
  regroups: fc.boolean(),
});

/** A life that starts with another lateness than the life before. */
interface Raise {
  /** Number of entries of the log that the earlier lives processed. */
  readonly at: number;
  readonly latenessMs: bigint;
}

export interface CourseResult {
  /** Content of the sink: the last row of every key. */
  readonly rows: readonly OracleRow[];
  /** Rows of the windows that were final before the input ended. */
  readonly finalRows: readonly OracleRow[];
  /** Every row that left the engine, in order, including repetitions after a crash. */
  readonly emitted: readonly OracleRow[];
  /** Keys that were rewritten with another value. */
  readonly changed: readonly string[];
  readonly counters: readonly PartitionCounters[];
  /** The log in the order of arrival, which a crash may change. */
  readonly arrivals: readonly LogEntry[];
  readonly raises: readonly Raise[];
}

const isDecision = (entry: LogEntry): boolean => entry.kind === 'idle' || entry.kind === 'added';

/** Returns the log with its rest from `at` reordered: one partition after the other. Keeps the
 *  logged order where results depend on it: with a global watermark, with decisions in the rest, or
 *  with an idle partition. Records of other partitions decide which events are late when it
 *  returns. */
function regrouped(rules: OracleRules, log: readonly LogEntry[], at: number): readonly LogEntry[] {
  const rest = log.slice(at);
  const idle = new Set<number>();
  for (const entry of log.slice(0, at)) {
    if (entry.kind === 'idle') idle.add(entry.partition);
    if (entry.kind === 'event') idle.delete(entry.partition);
  }
  if (rules.watermark === 'global' || idle.size > 0 || rest.some(isDecision)) return rest;
  const partitionOf = (entry: LogEntry): number => (entry.kind === 'added' ? 0 : entry.partition);
  return rest.sort((a, b) => partitionOf(a) - partitionOf(b));
}

function latenessOf(rules: OracleRules, { latenessMs = [] }: Course, life: number): bigint {
  return latenessMs[Math.min(life, latenessMs.length - 1)] ?? rules.latenessMs;
}

export async function runCourse(
  engine: EngineUnderTest,
  stream: Stream,
  course: Course,
): Promise<CourseResult> {
  const emitted: OracleRow[] = [];
  const sink = new Map<string, OracleRow>();
  const changed: string[] = [];
  const write = (rows: readonly OracleRow[]): void => {
    for (const row of rows) {
      emitted.push(row);
      const key = `${row.accountId},${row.windowStart},${row.windowEnd}`;
      const before = sink.get(key);
      if (before !== undefined && rowText(before) !== rowText(row))
        changed.push(`${rowText(before)} became ${rowText(row)}`);
      sink.set(key, row);
    }
  };

  let log = [...stream.log];
  let left: unknown;
  const raises: Raise[] = [];
  for (let life = 0; ; life++) {
    const shards = course.shards[life % course.shards.length] ?? 1;
    const latenessMs = latenessOf(stream.rules, course, life);
    const rules = { ...stream.rules, latenessMs };
    const job = { rules, partitions: stream.partitions, shards, rowsMax: Math.max(...course.batchRows) };
    const run = left === undefined ? await engine.start(job) : await engine.restore(job, left);
    let at = run.position();
    if (course.latenessMs !== undefined) raises.push({ at, latenessMs });
    if (life > 0 && course.regroups) log = [...log.slice(0, at), ...regrouped(rules, log, at)];
    const next = new Map<number, number>();
    const offsetOf = (partition: number): number => {
      const offset = next.get(partition) ?? 0;
      next.set(partition, offset + 1);
      return offset;
    };
    for (const entry of log.slice(0, at)) {
      if (entry.kind === 'event' || entry.kind === 'broken') offsetOf(entry.partition);
    }

    let batches = 0;
    const batchesMax = course.lives[life] ?? Number.POSITIVE_INFINITY;
    while (at < log.length && batches < batchesMax) {
      const entry = log[at] as LogEntry;
      if (entry.kind === 'idle' || entry.kind === 'added') {
        at++;
        write(entry.kind === 'added' ? await run.added() : await run.idle(entry.partition));
        continue;
      }
      const rows = course.batchRows[Math.min(batches, course.batchRows.length - 1)] ?? 1;
      const batch: InputRecord[] = [];
      for (; at < log.length && batch.length < rows; at++) {
        const one = log[at] as LogEntry;
        if (one.kind === 'idle' || one.kind === 'added') break;
        batch.push({ entry: one, offset: offsetOf(one.partition) });
      }
      write(await run.feed(batch));
      batches++;
      if (course.checkpointEvery > 0 && batches % course.checkpointEvery === 0) await run.checkpoint();
    }
    if (life < course.lives.length) {
      left = await run.kill();
      continue;
    }
    write((await run.settle?.()) ?? []);
    const finalRows = [...sink.values()];
    write(await run.drain());
    const counters = run.counters();
    await run.kill();
    return { rows: [...sink.values()], finalRows, emitted, changed, counters, arrivals: log, raises };
  }
}

/** The oracle after the stream. It takes the order of arrival only from a run that raised the
 *  lateness, because the events before a raise then decide the verdicts after it. */
function oracleFor({ rules, partitions, log }: Stream, { arrivals, raises }: CourseResult): Oracle {
  if (raises.length === 0) return oracleOf(rules, partitions, log);
  const oracle = new Oracle(rules, partitions);
  for (let at = 0; at <= arrivals.length; at++) {
    for (const raise of raises)
      if (raise.at === at) oracle.retime({ skewMs: rules.skewMs, latenessMs: raise.latenessMs });
    const entry = arrivals[at];
    if (entry !== undefined) oracle.apply(entry);
  }
  return oracle;
}

/** Describes how a result differs from the oracle's, counters included; '' if they are equal. */
export function differencesFrom(stream: Stream, result: CourseResult): string {
  const oracle = oracleFor(stream, result);
  // The description of a difference knows one lateness only.
  const source = result.raises.length === 0 ? stream : undefined;
  return [
    differenceText(oracle.rows(), result.rows, source),
    differenceText(oracle.rows(true), result.finalRows, source),
    countersText(oracle.counters, result.counters),
    ...result.changed,
  ]
    .filter((line) => line !== '')
    .join('\n');
}

/** Runs the stream and describes how the engine differs from the oracle; '' if they are equal. */
export async function oracleDifference(
  engine: EngineUnderTest,
  stream: Stream,
  course: Course,
): Promise<string> {
  return differencesFrom(stream, await runCourse(engine, stream, course));
}

export const resultDigest = (result: CourseResult): string => digestOf(result.rows, result.counters);
