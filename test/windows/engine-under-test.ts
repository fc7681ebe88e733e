/** What the proofs ask of an engine, and how they run it: a stream in batches, with checkpoints,
 *  crashes and restores at any number of shards, into a sink that keeps the last value of every
 *  key.
 *
 *  An engine takes part by an adapter that implements `EngineUnderTest`; every proof then covers
 *  it.
 */
import fc from 'fast-check';
import { countersText, differenceText, rowText } from '../../bench/peers/oracle/difference.ts';
import { digestOf } from '../../bench/peers/oracle/digest.ts';
import type { LogEntry, OracleRow, OracleRules, PartitionCounters } from '../../bench/peers/oracle/rules.ts';
import { type Oracle, oracleOf } from '../../bench/peers/oracle/windows.ts';
import type { Stream, StreamOptions } from './streams.ts';

/** A record of the log and its offset. */
export interface Placed {
  readonly entry: Extract<LogEntry, { readonly partition: number }>;
  readonly offset: number;
}

export interface JobUnderTest {
  readonly rules: OracleRules;
  /** At the start of the stream; those that were added come with `added` or from what was left. */
  readonly partitions: number;
  readonly shards: number;
  /** Rows of its largest batch. */
  readonly rowsMax?: number;
}

export interface EngineRun {
  /** One batch in arrival order, none of it a decision; the results that fired, in the order in
   *  which they did. */
  feed(batch: readonly Placed[]): Promise<readonly OracleRow[]>;
  /** The partition is idle before its next record. */
  idle(partition: number): Promise<readonly OracleRow[]>;
  /** One more partition. */
  added(): Promise<readonly OracleRow[]>;
  /** What the frontier has reached and has not left yet, where that may wait. */
  settle?(): Promise<readonly OracleRow[]>;
  /** The end of a bounded input. */
  drain(): Promise<readonly OracleRow[]>;
  counters(): readonly PartitionCounters[];
  /** Entries of the log, records and decisions, that its state holds: where a restored run goes on.
   */
  position(): number;
  checkpoint(): Promise<void>;
  /** The process is gone; gives what it leaves for `restore`, undefined where that is nothing. */
  kill(): Promise<unknown>;
}

export interface EngineUnderTest {
  readonly name: string;
  /** The streams it is asked for. */
  readonly computes: StreamOptions;
  start(job: JobUnderTest): Promise<EngineRun>;
  /** Another process takes up what a dead one left, its own shards notwithstanding. */
  restore(job: JobUnderTest, left: unknown): Promise<EngineRun>;
}

/** How a stream is run. */
export interface Course {
  /** Rows of each batch; the last one again and again. */
  readonly batchRows: readonly number[];
  /** Batches between checkpoints; 0: none. */
  readonly checkpointEvery: number;
  /** Batches that each life but the last is fed. */
  readonly lives: readonly number[];
  /** Of each life, in turn. */
  readonly shards: readonly number[];
  /** After a crash the broker hands out one partition after the other. */
  readonly regroups: boolean;
}

export const PLAIN: Course = { batchRows: [7], checkpointEvery: 0, lives: [], shards: [1], regroups: false };

export const courses: fc.Arbitrary<Course> = fc.record({
  batchRows: fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1, maxLength: 5 }),
  checkpointEvery: fc.integer({ min: 0, max: 4 }),
  lives: fc.array(fc.integer({ min: 0, max: 12 }), { maxLength: 4 }),
  shards: fc.array(fc.constantFrom(1, 2, 7), { minLength: 1, maxLength: 3 }),
  regroups: fc.boolean(),
});

export interface CourseResult {
  /** What the sink holds, every key once. */
  readonly rows: readonly OracleRow[];
  /** Those of the windows that were final before the input ended. */
  readonly finalRows: readonly OracleRow[];
  /** Everything that left the engine, in that order, repetitions after a crash included. */
  readonly emitted: readonly OracleRow[];
  /** Keys that were written again with another value. */
  readonly changed: readonly string[];
  readonly counters: readonly PartitionCounters[];
}

const isDecision = (entry: LogEntry): boolean => entry.kind === 'idle' || entry.kind === 'added';

/** The log from `at` on, one partition after the other, unless results depend on the order: where
 *  it was logged, and where a partition is idle, for what the others bring meanwhile decides what
 *  it may come back with. */
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

export async function runCourse(
  engine: EngineUnderTest,
  stream: Stream,
  course: Course,
): Promise<CourseResult> {
  const { rules } = stream;
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
  for (let life = 0; ; life++) {
    const shards = course.shards[life % course.shards.length] ?? 1;
    const job = { rules, partitions: stream.partitions, shards, rowsMax: Math.max(...course.batchRows) };
    const run = left === undefined ? await engine.start(job) : await engine.restore(job, left);
    let at = run.position();
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
      const batch: Placed[] = [];
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
    return { rows: [...sink.values()], finalRows, emitted, changed, counters };
  }
}

/** How a result parts from the oracle's; empty where they are equal, counters included. */
function partingFrom(oracle: Oracle, stream: Stream, result: CourseResult): string {
  return [
    differenceText(oracle.rows(), result.rows, stream),
    differenceText(oracle.rows(true), result.finalRows, stream),
    countersText(oracle.counters, result.counters),
    ...result.changed,
  ]
    .filter((line) => line !== '')
    .join('\n');
}

/** Runs the stream and says how the engine parts from the oracle. */
export async function proven(engine: EngineUnderTest, stream: Stream, course: Course): Promise<string> {
  const oracle = oracleOf(stream.rules, stream.partitions, stream.log);
  return partingFrom(oracle, stream, await runCourse(engine, stream, course));
}

export const resultDigest = (result: CourseResult): string => digestOf(result.rows, result.counters);
