/** The crash loop of the window engine: the real process on a real broker, killed again and again
 *  while events arrive, and in the end its sink and its answers beside the oracle's reading of the
 *  topic.
 *
 *  A kill counts when the dead process had consumed events that no checkpoint of its own held:
 *  those are replayed from its changelog or read again, and nothing must show it. How far it had
 *  come is what it said itself (its metrics, the fault that it was told to die of, or the changelog
 *  that the next process takes up), so it is never too much; what was saved is what stands on disk.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type OrderEntry, replay } from '../../bench/peers/oracle/arrival-order.ts';
import { type ArrivalLog, countersText, differenceText } from '../../bench/peers/oracle/difference.ts';
import { TopicReader } from '../../bench/peers/oracle/kafka.ts';
import type { LogEntry, OracleRow, OracleRules, PartitionCounters } from '../../bench/peers/oracle/rules.ts';
import { entryOf, Oracle } from '../../bench/peers/oracle/windows.ts';
import { consumedOf, newestManifest } from '../../src/demo/windows/judge.ts';
import { consumedNow } from '../../src/demo/windows/kill.ts';
import { runEngine, startEngine } from '../fixtures/engine.ts';
import type { Launcher, Running } from '../fixtures/process.ts';
import { startTool } from '../fixtures/tool.ts';
import { pause, realClock, until } from '../wait.ts';
import { answersText } from './engine-crash-answers.ts';
import type { CrashReport, Kill } from './engine-crash-report.ts';

/** What is run, and what it must come to. */
export interface CrashCase {
  readonly name: string;
  readonly rules: OracleRules;
  /** Everything that makes the engine compute these rules. */
  readonly flags: readonly string[];
  /** The sink, for the engine and for the export alike. */
  readonly sink: readonly string[];
  /** Steps of -chaos, and kill-after: two kills of three are at the one that had the fewest, the
   *  rest at random moments. */
  readonly steps: readonly string[];
  readonly snapshotAfter?: string;
  /** Where results depend on the order of arrival: reads it from what the engine logged. */
  readonly order?: (stateDir: string) => Promise<readonly OrderEntry[]>;
}

export interface CrashWorld {
  readonly own: Launcher;
  readonly brokers: string;
  readonly kills: number;
  readonly seed: number;
}

const PARTITIONS = 3;
const EVENTS_PER_SECOND = 4000;
const DIES_WITHIN_MS = 180_000;
const RANDOM_MS_MAX = 200;
/** Share of the random kills that wait for a checkpoint of that life; the others may come before
 *  there is one. */
const AFTER_CHECKPOINT = 0.75;
/** Lives that may end without a kill that counts, for each that must. */
const TRIES_PER_KILL = 4;
/** Events after which `kill-after` kills, at most this many more than one. */
const KILL_AFTER_MAX = 1500;
/** Small, so that whole copies of the state are under way at any moment. */
const SNAPSHOT_AFTER = '16KiB';
/** A step kills the first time or the second. */
const TIMES_MAX = 2;

/** Deterministic, so that a seed names a run; the moments depend on the machine all the same. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

interface Restored {
  readonly atMs: number;
  readonly consumed: number;
  readonly restoreMs: number;
}

/** What the engine's log says of its start. */
function restoredIn(logPath: string): Restored | undefined {
  for (const line of readFileSync(logPath, 'utf8').split('\n')) {
    if (!line.includes('"restored from a checkpoint"') && !line.includes('"no checkpoint: starting'))
      continue;
    const { time, consumed, seconds } = JSON.parse(line) as {
      time: string;
      consumed: number;
      seconds: number;
    };
    return { atMs: Date.parse(time), consumed, restoreMs: seconds * 1000 };
  }
  return undefined;
}

/** @throws with its log when it ends, or does not come back */
async function restoredBy(one: Running): Promise<Restored> {
  const end: { isThere?: boolean } = {};
  void one.ended.then(() => {
    end.isThere = true;
  });
  const come = async (): Promise<Restored | 'ended' | undefined> =>
    restoredIn(one.logPath) ?? (end.isThere === true ? 'ended' : undefined);
  const found = await until('the restore', come, DIES_WITHIN_MS).catch((late: Error) => late.message);
  if (typeof found === 'string') throw new Error(`it did not come back (${found}): ${tailOf(one)}`);
  return found;
}

/** One life of the engine. */
interface Life {
  readonly at: Pick<Kill, 'step' | 'at'>;
  /** What it took up, and what it had consumed at its end, at least. */
  readonly restored: number;
  readonly consumed: number;
  readonly backMs: number;
  readonly restoreMs: number;
}

export class CrashLoop {
  private readonly world: CrashWorld;
  private readonly job: CrashCase;
  private readonly random: () => number;
  private readonly topic: string;
  private readonly stateDir: string;
  private lives = 0;
  /** Lives that were to die at each step. */
  private readonly tries = new Map<string, number>();
  /** How the answers of the life that was asked part from the oracle. */
  private asked = '';
  /** What the sink held in the end. */
  private rows: readonly OracleRow[] | undefined;

  constructor(world: CrashWorld, job: CrashCase) {
    this.world = world;
    this.job = job;
    this.random = randomOf(world.seed);
    const id = `${job.name.replace(/\W+/g, '-')}-${world.own.suffix}`;
    this.topic = `crash-${id}`;
    this.stateDir = join(world.own.dir, `state-${id}`);
  }

  async run(): Promise<CrashReport> {
    const gen = await this.generate();
    const kills: Kill[] = [];
    let uncounted = 0;
    /** The last life and its checkpoint; the next life shows how far it had come, and the recovery.
     */
    let last: { readonly life: Life; readonly checkpointed: number } | undefined;
    for (;;) {
      const isPending = last !== undefined && last.life.consumed > last.checkpointed;
      const left = this.world.kills - kills.length - (isPending ? 1 : 0);
      // The life before may count after all, and one that was to die behind a checkpoint may not.
      const resumed =
        kills.some(({ checkpointed }) => checkpointed > 0) || (isPending && (last?.checkpointed ?? 0) > 0);
      // So with those at random moments, of which there may have been one only.
      const atRandom =
        kills.some(({ step }) => step === 'random') || (isPending && last?.life.at.step === 'random');
      const isEnough = left <= 0 && resumed && atRandom;
      const life = isEnough ? await this.askedLife(gen) : await this.killedLife(kills, left <= 1);
      // It died before it was back: what it was to recover from still stands.
      if (life === undefined) uncounted++;
      else {
        if (last !== undefined) {
          const { checkpointed } = last;
          if (life.restored < checkpointed)
            throw new Error(`it took up ${life.restored} events, the checkpoint before held ${checkpointed}`);
          const past = Math.max(last.life.consumed, life.restored) - checkpointed;
          const { backMs, restoreMs } = life;
          if (past > 0) kills.push({ ...last.life.at, checkpointed, past, backMs, restoreMs });
          else uncounted++;
        }
        if (isEnough) break;
        const newest = await newestManifest(this.stateDir);
        last = { life, checkpointed: newest === undefined ? 0 : consumedOf(newest.recorded) };
      }
      if (uncounted > this.world.kills * TRIES_PER_KILL)
        throw new Error(
          `${uncounted} kills interrupted nothing, ${kills.length} did: see ${this.world.own.dir}`,
        );
    }
    await this.lastLife();
    return { kills, uncounted, ...(await this.judge()), asked: this.asked };
  }

  private args(more: readonly string[]): readonly string[] {
    const { brokers } = this.world;
    const { flags, sink } = this.job;
    return [
      `-brokers=${brokers}`,
      `-topic=${this.topic}`,
      `-state-dir=${this.stateDir}`,
      // State is taken up at another number of shards every time.
      `-shards=${1 + (this.lives % 3)}`,
      '-batch-rows=200',
      '-checkpoint-interval=80ms',
      `-snapshot-after=${this.job.snapshotAfter ?? SNAPSHOT_AFTER}`,
      // What is idle would be decided by how long a life takes to die.
      '-idle-timeout=0',
      ...flags,
      ...sink,
      ...more,
    ];
  }

  /** Writes events in the order in which they arrive, some of them late, until it is told to stop.
   */
  private async generate(): Promise<Running> {
    const { own, brokers, seed } = this.world;
    const made = await own.run([
      'topic',
      'create',
      `-brokers=${brokers}`,
      `-topic=${this.topic}`,
      `-partitions=${PARTITIONS}`,
    ]);
    if (made.code !== 0) throw new Error(`topic create: ${made.stderr}`);
    return startTool(own, 'gen', [
      '-kind=events',
      '-order=delayed',
      `-seed=${seed}`,
      '-count=0',
      `-rate=${EVENTS_PER_SECOND}`,
      '-per-ms=1',
      '-accounts=500',
      '-typical-max=1s',
      '-tail=0.05',
      '-tail-max=8s',
      '-stragglers=0.001',
      '-straggler-max=1h',
      `-out=kafka:${this.topic}`,
      `-brokers=${brokers}`,
      '-log-level=error',
    ]);
  }

  private start(what: string, more: readonly string[]): { one: Running; startedAt: number } {
    const startedAt = realClock.wallNowMs();
    const one = startEngine(this.world.own, this.args(more), `${this.job.name}-${this.lives}-${what}`);
    this.lives++;
    return { one, startedAt };
  }

  /** The last one dies behind a checkpoint that holds events, so that no run is without one to go
   *  on from. */
  private async killedLife(kills: readonly Kill[], isLast: boolean): Promise<Life | undefined> {
    if (isLast) return this.killedAtRandom('behind a checkpoint');
    const count = (step: string): number => kills.filter((kill) => kill.step === step).length;
    const [first] = [...this.job.steps].sort(
      (a, b) => count(a) - count(b) || (this.tries.get(a) ?? 0) - (this.tries.get(b) ?? 0),
    );
    if (first === undefined || this.lives % 3 === 0) return this.killedAtRandom();
    this.tries.set(first, (this.tries.get(first) ?? 0) + 1);
    return this.killedAtStep(first);
  }

  private async killedAtRandom(when: 'any time' | 'behind a checkpoint' = 'any time'): Promise<Life> {
    const before = (await newestManifest(this.stateDir))?.path;
    const { one, startedAt } = this.start('random', []);
    const address = await one.address();
    const restored = await restoredBy(one);
    if (when === 'behind a checkpoint' || this.random() < AFTER_CHECKPOINT) {
      const made = async (): Promise<true | undefined> => {
        const newest = await newestManifest(this.stateDir);
        if (newest === undefined || newest.path === before) return undefined;
        return when === 'any time' || consumedOf(newest.recorded) > 0 ? true : undefined;
      };
      await until('a checkpoint', made, DIES_WITHIN_MS);
    }
    await pause(this.random() * RANDOM_MS_MAX);
    const consumed = await consumedNow(address);
    await one.die();
    return lifeOf({ step: 'random', at: 'random' }, restored, consumed, startedAt);
  }

  private async killedAtStep(step: string): Promise<Life | undefined> {
    const after = 1 + Math.floor(this.random() * KILL_AFTER_MAX);
    const times = 1 + Math.floor(this.random() * TIMES_MAX);
    const chaos = step === 'kill-after' ? `kill-after=${after}` : `${step}@${times}`;
    const { one, startedAt } = this.start(step, [`-chaos=${chaos}`]);
    const end: { code?: number | null; signal?: string | null } = {};
    void one.ended.then(({ code, signal }) => Object.assign(end, { code, signal }));
    let consumed = 0;
    const address = await one.address().catch(() => undefined);
    const dies = async (): Promise<boolean> => {
      // A step says nothing of events, so they are asked for until it dies.
      if (end.signal === undefined && step !== 'kill-after' && address !== undefined)
        consumed = Math.max(consumed, await consumedNow(address));
      return end.signal !== undefined;
    };
    await until('the end of the process', dies, DIES_WITHIN_MS).catch(() => {});
    if (end.signal !== 'SIGKILL')
      throw new Error(`it did not die of -chaos=${chaos}: ${JSON.stringify(end)}, ${tailOf(one)}`);
    const restored = restoredIn(one.logPath);
    if (restored === undefined) return undefined;
    if (step === 'kill-after') consumed = restored.consumed + after;
    return lifeOf({ step, at: chaos }, restored, consumed, startedAt);
  }

  /** Once the generator has ended, reads what is left and is asked for all of it. */
  private async askedLife(gen: Running): Promise<Life> {
    await gen.drain();
    const { one, startedAt } = this.start('asked', []);
    const address = await one.address();
    const restored = await restoredBy(one);
    // Where the order counts, there is no oracle before the engine has met every record.
    const read = await until('the end', () => this.oracle(this.job.rules, false), DIES_WITHIN_MS);
    this.asked = await answersText(address, read.oracle);
    await one.drain();
    return lifeOf({ step: 'end', at: 'end' }, restored, restored.consumed, startedAt);
  }

  /** Fires everything that is open. */
  private async lastLife(): Promise<void> {
    const { one } = this.start('last', ['-bounded']);
    const { code } = await one.ended;
    if (code !== 0) throw new Error(`the last run failed: ${tailOf(one)}`);
  }

  /** The sink and the counts as they stand, by the rules of the case or by others. */
  async judge(
    rules: OracleRules = this.job.rules,
  ): Promise<Omit<CrashReport, 'kills' | 'uncounted' | 'asked'>> {
    this.rows ??= await this.exported();
    const { rows } = this;
    const { oracle, told } = await this.oracle(rules, false);
    const expected = [...oracle.rows()];
    const keys = new Set(rows.map((row) => `${row.accountId},${row.windowStart},${row.windowEnd}`));
    const newest = await newestManifest(this.stateDir);
    const recorded = (newest?.recorded.partitions ?? []) as readonly Recorded[];
    let parting = differenceText(expected, rows, told);
    // Read again with every event kept: only a failure needs to show them.
    if (parting !== '') parting = differenceText(expected, rows, (await this.oracle(rules, true)).told);
    const counts = countersText(
      oracle.counters,
      recorded.map(
        (one): PartitionCounters => ({
          consumed: BigInt(one.consumed),
          accepted: BigInt(one.accepted),
          droppedLate: BigInt(one.dropped_late),
          droppedAfterIdle: BigInt(one.dropped_after_idle),
          invalid: BigInt(one.invalid),
          futureClamped: BigInt(one.future_clamped),
        }),
      ),
    );
    const total = (of: readonly bigint[]): number => Number(of.reduce((a, b) => a + b, 0n));
    return {
      consumed: total(oracle.consumed),
      droppedLate: total(oracle.droppedLate),
      rows: rows.length,
      duplicates: rows.length - keys.size,
      parting: [parting, counts].filter((text) => text !== '').join('\n'),
    };
  }

  private async exported(): Promise<OracleRow[]> {
    const { code, stdout, stderr } = await runEngine(this.world.own, [
      'export',
      `-brokers=${this.world.brokers}`,
      ...this.job.sink,
    ]);
    if (code !== 0) throw new Error(`engine export: ${stderr}`);
    return stdout.trim().split('\n').slice(1).map(rowOfCsv);
  }

  /** The oracle's reading of the topic, over a connection of its own. */
  private async oracle(
    rules: OracleRules,
    keep: boolean,
  ): Promise<{ readonly oracle: Oracle; readonly told: ArrivalLog | undefined }> {
    const { order } = this.job;
    const reader = await TopicReader.open(this.world.brokers, this.topic);
    const { partitions } = reader;
    const oracle = new Oracle(rules, partitions.length);
    const records: LogEntry[][] = partitions.map(() => []);
    for (const p of partitions) {
      const into = records[p] as LogEntry[];
      await reader.read(p, ({ value, timestamp }) => {
        if (keep || order !== undefined) into.push(entryOf(p, value, timestamp));
        if (order === undefined) oracle.value(p, value, timestamp);
      });
    }
    reader.close();
    const log = order === undefined ? records.flat() : [...replay(await order(this.stateDir), records)];
    if (order !== undefined) for (const entry of log) oracle.apply(entry);
    return { oracle, told: keep ? { rules, partitions: partitions.length, log } : undefined };
  }
}

/** Counts of a partition as the manifest has them. */
interface Recorded {
  readonly consumed: number;
  readonly accepted: number;
  readonly dropped_late: number;
  readonly dropped_after_idle: number;
  readonly invalid: number;
  readonly future_clamped: number;
}

const lifeOf = (at: Life['at'], restored: Restored, consumed: number, startedAt: number): Life => ({
  at,
  restored: restored.consumed,
  consumed,
  backMs: restored.atMs - startedAt,
  restoreMs: restored.restoreMs,
});

const tailOf = (one: Running): string => one.log().slice(-2000);

function rowOfCsv(line: string): OracleRow {
  const [accountId, windowStart, windowEnd, count, sum, min, max, lastUpdateTs, overflow] = line.split(',');
  const cell = (text: string | undefined): bigint => BigInt(text ?? 'a missing cell');
  return {
    accountId: cell(accountId),
    windowStart: cell(windowStart),
    windowEnd: cell(windowEnd),
    count: cell(count),
    sum: cell(sum),
    min: cell(min),
    max: cell(max),
    lastUpdateTs: cell(lastUpdateTs),
    overflow: overflow === 'true',
  };
}
