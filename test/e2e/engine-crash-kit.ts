/** Crash loop of the window engine: kills the real process again and again while events arrive. At
 *  the end it compares the sink and the HTTP answers with the oracle's reading of the topic.
 *
 *  A kill counts if the process had consumed events that none of its checkpoints held. Those events
 *  are replayed from the changelog or read again, and the results must not show it. The number of
 *  consumed events comes from the process itself: its metrics, its fault setting, or the changelog
 *  that the next process loads. It is therefore a lower bound. The number of checkpointed events is
 *  read from disk. */
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
import { type AcceptedEvent, type EventForm, linesOf, linesText } from './engine-crash-forms.ts';
import type { CrashReport, Kill } from './engine-crash-report.ts';

/** Job of the engine, and the rules that its results must follow. */
export interface CrashCase {
  readonly name: string;
  readonly rules: OracleRules;
  /** All flags that make the engine compute these rules. */
  readonly flags: readonly string[];
  /** Flags of the sink, for the engine and for the export. */
  readonly sink: readonly string[];
  /** Steps of -chaos, and kill-after. Two kills of three are at the step with the fewest kills so
   *  far, the rest at random moments. */
  readonly steps: readonly string[];
  readonly snapshotAfter?: string;
  /** Events of another form than the fixed layout. */
  readonly form?: EventForm;
  /** Set if results depend on the order of arrival: reads the order from the engine's changelog. */
  readonly order?: (stateDir: string) => Promise<readonly OrderEntry[]>;
}

export interface CrashEnvironment {
  readonly own: Launcher;
  readonly brokers: string;
  readonly kills: number;
  readonly seed: number;
}

const PARTITIONS = 3;
const EVENTS_PER_SECOND = 4000;
const DIES_WITHIN_MS = 180_000;
const RANDOM_MS_MAX = 200;
/** Share of the random kills that wait for a checkpoint of the same process. Other kills may
 *  precede the first checkpoint. */
const AFTER_CHECKPOINT = 0.75;
/** Limit of processes whose kill does not count, per required kill. */
const TRIES_PER_KILL = 4;
/** Maximum of the random number of events after which `kill-after` kills. */
const KILL_AFTER_MAX = 1500;
/** Small, so that a snapshot of the state is usually being written. */
const SNAPSHOT_AFTER = '16KiB';
/** A step kills at its first or second occurrence. */
const OCCURRENCE_MAX = 2;

/** Deterministic pseudo-random numbers, so that a seed identifies a run. The timing still depends
 *  on the machine. */
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

/** Returns the log entry of the engine's start, if it is written. */
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

/** @throws with the end of the log if the process ends or does not finish its restore */
async function restoredBy(one: Running): Promise<Restored> {
  const exit: { hasEnded?: boolean } = {};
  void one.ended.then(() => {
    exit.hasEnded = true;
  });
  const outcome = async (): Promise<Restored | 'ended' | undefined> =>
    restoredIn(one.logPath) ?? (exit.hasEnded === true ? 'ended' : undefined);
  const found = await until('the restore', outcome, DIES_WITHIN_MS).catch((late: Error) => late.message);
  if (typeof found === 'string')
    throw new Error(`the engine did not finish its restore (${found}): ${tailOf(one)}`);
  return found;
}

/** One run of the engine process. */
interface Life {
  readonly at: Pick<Kill, 'step' | 'at'>;
  /** Events that the process restored, and a lower bound of the events it had consumed at its
   *  end. */
  readonly restored: number;
  readonly consumed: number;
  readonly backMs: number;
  readonly restoreMs: number;
}

export class CrashLoop {
  private readonly env: CrashEnvironment;
  private readonly job: CrashCase;
  private readonly random: () => number;
  private readonly topic: string;
  private readonly stateDir: string;
  private lives = 0;
  /** Number of attempts to kill at each step. */
  private readonly tries = new Map<string, number>();
  /** Difference between the HTTP answers and the oracle; empty if they agree. */
  private answersDifference = '';
  /** Lines of the sink after the last run. */
  private lines: readonly string[] | undefined;

  constructor(env: CrashEnvironment, job: CrashCase) {
    this.env = env;
    this.job = job;
    this.random = randomOf(env.seed);
    const id = `${job.name.replace(/\W+/g, '-')}-${env.own.suffix}`;
    this.topic = `crash-${id}`;
    this.stateDir = join(env.own.dir, `state-${id}`);
  }

  async run(): Promise<CrashReport> {
    const gen = await this.generate();
    const kills: Kill[] = [];
    let uncounted = 0;
    /** The last life and its checkpoint. The next life shows how much the last one had consumed,
     *  and how long the recovery took. */
    let last: { readonly life: Life; readonly checkpointed: number } | undefined;
    for (;;) {
      const isPending = last !== undefined && last.life.consumed > last.checkpointed;
      const left = this.env.kills - kills.length - (isPending ? 1 : 0);
      // The next life decides whether the pending kill counts, with or without a checkpoint.
      const resumed =
        kills.some(({ checkpointed }) => checkpointed > 0) || (isPending && (last?.checkpointed ?? 0) > 0);
      // The same holds for the kills at random moments: at least one must count.
      const atRandom =
        kills.some(({ step }) => step === 'random') || (isPending && last?.life.at.step === 'random');
      const isEnough = left <= 0 && resumed && atRandom;
      const life = isEnough ? await this.askedLife(gen) : await this.killedLife(kills, left <= 1);
      // The process died before its restore finished: the next process restores the same state.
      if (life === undefined) uncounted++;
      else {
        if (last !== undefined) {
          const { checkpointed } = last;
          if (life.restored < checkpointed)
            throw new Error(
              `the engine restored ${life.restored} events, the previous checkpoint held ${checkpointed}`,
            );
          const past = Math.max(last.life.consumed, life.restored) - checkpointed;
          const { backMs, restoreMs } = life;
          if (past > 0) kills.push({ ...last.life.at, checkpointed, past, backMs, restoreMs });
          else uncounted++;
        }
        if (isEnough) break;
        const newest = await newestManifest(this.stateDir);
        last = { life, checkpointed: newest === undefined ? 0 : consumedOf(newest.recorded) };
      }
      if (uncounted > this.env.kills * TRIES_PER_KILL)
        throw new Error(
          `${uncounted} kills interrupted nothing, ${kills.length} did: see the logs in ${this.env.own.dir}`,
        );
    }
    await this.lastLife();
    return { kills, uncounted, ...(await this.judge()), answersDifference: this.answersDifference };
  }

  private args(more: readonly string[]): readonly string[] {
    const { brokers } = this.env;
    const { flags, sink } = this.job;
    return [
      `-brokers=${brokers}`,
      `-topic=${this.topic}`,
      `-state-dir=${this.stateDir}`,
      // Each life restores the state with another number of shards.
      `-shards=${1 + (this.lives % 3)}`,
      '-batch-rows=200',
      '-checkpoint-interval=80ms',
      `-snapshot-after=${this.job.snapshotAfter ?? SNAPSHOT_AFTER}`,
      // With idleness, the duration of the recovery would decide which partitions are idle.
      '-idle-timeout=0',
      ...(this.job.form?.engine ?? []),
      ...flags,
      ...sink,
      ...more,
    ];
  }

  /** Generates events, some of them late, in their order of arrival until it is stopped. */
  private async generate(): Promise<Running> {
    const { own, brokers, seed } = this.env;
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
      ...(this.job.form?.gen ?? []),
      `-out=kafka:${this.topic}`,
      `-brokers=${brokers}`,
      '-log-level=error',
    ]);
  }

  private start(what: string, more: readonly string[]): { one: Running; startedAt: number } {
    const startedAt = realClock.wallNowMs();
    const one = startEngine(this.env.own, this.args(more), `${this.job.name}-${this.lives}-${what}`);
    this.lives++;
    return { one, startedAt };
  }

  /** The last kill follows a checkpoint that holds events, so that each case resumes from one. */
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
    const times = 1 + Math.floor(this.random() * OCCURRENCE_MAX);
    const chaos = step === 'kill-after' ? `kill-after=${after}` : `${step}@${times}`;
    const { one, startedAt } = this.start(step, [`-chaos=${chaos}`]);
    const end: { code?: number | null; signal?: string | null } = {};
    void one.ended.then(({ code, signal }) => Object.assign(end, { code, signal }));
    let consumed = 0;
    const address = await one.address().catch(() => undefined);
    const dies = async (): Promise<boolean> => {
      // A chaos step does not tell the number of events, so poll it until the process dies.
      if (end.signal === undefined && step !== 'kill-after' && address !== undefined)
        consumed = Math.max(consumed, await consumedNow(address));
      return end.signal !== undefined;
    };
    await until('the end of the process', dies, DIES_WITHIN_MS).catch(() => {});
    if (end.signal !== 'SIGKILL')
      throw new Error(`the engine was not killed by -chaos=${chaos}: ${JSON.stringify(end)}, ${tailOf(one)}`);
    const restored = restoredIn(one.logPath);
    if (restored === undefined) return undefined;
    if (step === 'kill-after') consumed = restored.consumed + after;
    return lifeOf({ step, at: chaos }, restored, consumed, startedAt);
  }

  /** Runs after the generator has ended: reads the rest of the topic and checks the HTTP
   *  answers. */
  private async askedLife(gen: Running): Promise<Life> {
    await gen.drain();
    const { one, startedAt } = this.start('answers', []);
    const address = await one.address();
    const restored = await restoredBy(one);
    // If the order of arrival matters, the oracle cannot run before the engine has read every
    // record.
    const read = await until(
      'an oracle that has read the topic',
      () => this.oracle(this.job.rules, false),
      DIES_WITHIN_MS,
    );
    this.answersDifference = await answersText(address, read.oracle, this.job.form, read.accepted);
    await one.drain();
    return lifeOf({ step: 'end', at: 'end' }, restored, restored.consumed, startedAt);
  }

  /** Reads to the end of the topic and fires all open windows. */
  private async lastLife(): Promise<void> {
    const { one } = this.start('last', ['-bounded']);
    const { code } = await one.ended;
    if (code !== 0) throw new Error(`the last run failed: ${tailOf(one)}`);
  }

  /** Compares the sink and the counters with the oracle, by the rules of the case or by others. */
  async judge(
    rules: OracleRules = this.job.rules,
  ): Promise<Omit<CrashReport, 'kills' | 'uncounted' | 'answersDifference'>> {
    const { form } = this.job;
    this.lines ??= await this.exported();
    const rows = this.lines.map((line) => rowOfCsv(line, form));
    const { oracle, told, accepted } = await this.oracle(rules, false);
    const expected = [...oracle.rows()];
    const keys = new Set(rows.map((row) => `${row.accountId},${row.windowStart},${row.windowEnd}`));
    const newest = await newestManifest(this.stateDir);
    const recorded = (newest?.recorded.partitions ?? []) as readonly Recorded[];
    let difference = differenceText(expected, rows, told);
    // Only a failure needs the events themselves: reads the topic again and keeps them.
    if (difference !== '') difference = differenceText(expected, rows, (await this.oracle(rules, true)).told);
    else difference = linesText(linesOf(expected, form, accepted).values(), this.lines);
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
      difference: [difference, counts].filter((text) => text !== '').join('\n'),
    };
  }

  private async exported(): Promise<string[]> {
    const { code, stdout, stderr } = await runEngine(this.env.own, [
      'export',
      `-brokers=${this.env.brokers}`,
      `-state-dir=${this.stateDir}`,
      ...this.job.sink,
    ]);
    if (code !== 0) throw new Error(`engine export: ${stderr}`);
    return stdout.trim().split('\n').slice(1);
  }

  /** Reads the topic into an oracle over a separate connection.
   *  @param keep keeps all events for the description of a difference */
  private async oracle(rules: OracleRules, keep: boolean): Promise<TopicRead> {
    const { order, form } = this.job;
    const reader = await TopicReader.open(this.env.brokers, this.topic);
    const { partitions } = reader;
    const oracle = new Oracle(rules, partitions.length);
    const records: LogEntry[][] = partitions.map(() => []);
    const accepted: AcceptedEvent[] = [];
    const apply = (entry: LogEntry): void => {
      const isAccepted = oracle.apply(entry) === 'accepted';
      if (isAccepted && form?.moreOf !== undefined && entry.kind === 'event') accepted.push(entry);
    };
    for (const p of partitions) {
      const into = records[p] as LogEntry[];
      await reader.read(p, ({ value, timestamp }) => {
        const entry = form?.entryOf(p, value) ?? entryOf(p, value, timestamp);
        if (keep || order !== undefined) into.push(entry);
        if (order === undefined) apply(entry);
      });
    }
    reader.close();
    const log = order === undefined ? records.flat() : [...replay(await order(this.stateDir), records)];
    if (order !== undefined) for (const entry of log) apply(entry);
    return { oracle, accepted, told: keep ? { rules, partitions: partitions.length, log } : undefined };
  }
}

interface TopicRead {
  readonly oracle: Oracle;
  readonly told: ArrivalLog | undefined;
  /** Accepted events in the order of the log, if the form has further aggregates. */
  readonly accepted: readonly AcceptedEvent[];
}

/** Counters of a partition in the manifest. */
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

function rowOfCsv(line: string, form: EventForm | undefined): OracleRow {
  const cells = line.split(',');
  const [key = '', windowStart, windowEnd, count, sum, min, max] = cells;
  const [lastUpdateTs, overflow] = cells.slice(-2);
  const cell = (text: string | undefined): bigint => BigInt(text ?? 'a missing cell');
  return {
    accountId: form === undefined ? cell(key) : form.accountOf(key),
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
