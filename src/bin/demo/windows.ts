/** The windows slice: events in delayed order through Kafka into tumbling windows, the engine killed on the way.
 *
 *  Run 1 keeps every delay within skew + lateness; run 2 has stragglers. The engine reads while the generator writes.
 *  The generator is held (SIGSTOP) at a part of the stream until the engine has been killed: the topic itself then
 *  bounds what the dead process can have consumed.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { TopicReader } from '../../../bench/peers/oracle/kafka.ts';
import { coreError } from '../../core/errors.ts';
import { pgDriver } from '../../io/sql/pg.ts';
import type { SqlPool } from '../../io/sql/port.ts';
import type { Slice, SliceContext, SliceProcess } from './fact.ts';
import { ready } from './ready.ts';
import {
  consumedOf,
  judgeLate,
  judgeOnTime,
  type Kill,
  newestManifest,
  type RunRecord,
  sum,
} from './windows-judge.ts';
import { loadArrival, loadTrueOrder } from './windows-oracle.ts';

const RULES = { sizeMs: 20_000, skewMs: 5_000, latenessMs: 10_000 };
const PARTITIONS = 4;
/** Events of each run at scale 1. */
const ON_TIME_EVENTS = 2_000_000;
const LATE_EVENTS = 1_000_000;
const PAST_CHECKPOINT = 100_000;
/** Part of the stream that the topic holds until there is a checkpoint, and until the engine has been killed. */
const HOLD_FIRST = 0.5;
const HOLD_LAST = 0.7;
/** Long enough that the engine gets well past a checkpoint before the next: the twins are slower, and the full demo
 *  asks for more events past it. */
const checkpointMs = (scale: number): number =>
  1200 + (process.env['MILLRACE_NATIVE'] === 'off' ? 2800 * Math.min(1, scale) : 0);
const KILL_FROM = 0.22;
const POLL_MS = 10;
/** Least time that the generator takes, so that there is a middle to kill in at any scale. */
const GENERATE_S = 4;
/** How long a run may wait for its kill, or for a process to end, before the slice gives up. */
const WAIT_MS = 240_000;

/** How long an engine may take to be ready. */

export interface WindowsRun {
  readonly onTime: RunRecord;
  readonly late: RunRecord;
}

interface Plan {
  readonly name: string;
  readonly id: string;
  readonly events: number;
  readonly stragglers: boolean;
}

function connect(context: SliceContext): Promise<SqlPool> {
  return pgDriver.connect({
    url: context.stack.postgres,
    connectionsMax: 4,
    applicationName: 'millrace demo',
    connectTimeoutMs: 5000,
  });
}

const genArgs = (context: SliceContext, plan: Plan): readonly string[] => [
  '-kind=events',
  `-seed=${context.seed}`,
  `-count=${plan.events}`,
  '-accounts=50000',
  '-zipf=1.1',
  // 400 s of event time in run 1, whatever the scale, so that windows fire all along.
  `-per-ms=${plan.events / 400_000}`,
];

const delayArgs = (plan: Plan): readonly string[] =>
  plan.stragglers
    ? ['-typical-max=3s', '-tail=0.02', '-tail-max=1m', '-stragglers=0.001', '-straggler-max=2h']
    : ['-typical-max=3s', '-tail=0.05', '-tail-max=15s', '-stragglers=0'];

async function succeed(what: string, child: SliceProcess): Promise<void> {
  const { code, signal } = await child.ended;
  if (code !== 0)
    throw coreError('internal', `${what} ended with ${code ?? signal}`, { next: `see ${child.logPath}` });
}

/** engine_events_total as /metrics shows it; 0 before it answers. */
async function consumedNow(address: string): Promise<number> {
  try {
    const text = await (await fetch(`http://${address}/metrics`)).text();
    return Number(/^engine_events_total (\S+)$/m.exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

async function heldIn(reader: TopicReader): Promise<number> {
  const ends: number[] = [];
  for (const partition of reader.partitions) ends.push(Number(await reader.end(partition)));
  return sum(ends);
}

interface Hunt {
  readonly plan: Plan;
  readonly stateDir: string;
  readonly reader: TopicReader;
  readonly gen: SliceProcess;
  readonly engine: SliceProcess;
  readonly startEngine: () => SliceProcess;
  readonly pastCheckpoint: number;
}

/** Kills the engine once it is far enough past a checkpoint; the generator goes on afterwards. */
async function killInTheMiddle(hunt: Hunt): Promise<Kill> {
  const { plan, gen } = hunt;
  const tap = new Tap(gen);
  try {
    for (let engine = hunt.engine; ; engine = hunt.startEngine()) {
      const kill = await killOnce(hunt, engine, tap);
      // A checkpoint may have completed between the last look and the kill; then there is another try if there is room.
      const proven = kill.consumed - kill.checkpointed >= hunt.pastCheckpoint;
      if (proven || kill.held >= HOLD_LAST * plan.events) return kill;
    }
  } finally {
    tap.open();
  }
}

/** The generator as a tap: SIGSTOP and SIGCONT, each sent once. */
class Tap {
  private readonly gen: SliceProcess;
  private isClosed = false;

  constructor(gen: SliceProcess) {
    this.gen = gen;
  }
  close(): void {
    if (!this.isClosed) this.gen.kill('SIGSTOP');
    this.isClosed = true;
  }
  open(): void {
    if (this.isClosed) this.gen.kill('SIGCONT');
    this.isClosed = false;
  }
}

async function killOnce(hunt: Hunt, engine: SliceProcess, tap: Tap): Promise<Kill> {
  const { plan, stateDir, reader, pastCheckpoint } = hunt;
  const address = await engine.address();
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const held = await heldIn(reader);
    const consumed = await consumedNow(address);
    const newest = await newestManifest(stateDir);
    const checkpointed = newest === undefined ? 0 : consumedOf(newest.recorded);
    if (held >= (checkpointed > 0 ? HOLD_LAST : HOLD_FIRST) * plan.events) tap.close();
    else tap.open();
    if (
      consumed >= KILL_FROM * plan.events &&
      checkpointed > 0 &&
      consumed - checkpointed >= pastCheckpoint
    ) {
      // Closed first, so that the topic's ends after the kill still bound what was consumed before it.
      tap.close();
      engine.kill('SIGKILL');
      const { signal } = await engine.ended;
      const left = await newestManifest(stateDir);
      return {
        consumed,
        held: await heldIn(reader),
        checkpointed: left === undefined ? 0 : consumedOf(left.recorded),
        signal,
      };
    }
    const stuck =
      held >= HOLD_LAST * plan.events && consumed >= held && consumed - checkpointed < pastCheckpoint;
    if (stuck || Date.now() > deadline) {
      throw coreError('timeout', `${plan.name}: no moment to kill the engine came`, {
        next: `see ${engine.logPath}`,
      });
    }
    await sleep(POLL_MS);
  }
}

/** What every engine of a run is started with. */
function engineArgs(
  context: SliceContext,
  run: Pick<RunRecord, 'topic' | 'stateDir' | 'sinkTable'>,
): readonly string[] {
  return [
    'engine',
    `-brokers=${context.stack.brokers}`,
    `-topic=${run.topic}`,
    '-window=tumbling',
    `-size=${RULES.sizeMs}ms`,
    `-allowed-skew=${RULES.skewMs}ms`,
    `-allowed-lateness=${RULES.latenessMs}ms`,
    '-state=mem',
    '-shards=2',
    `-state-dir=${run.stateDir}`,
    `-checkpoint-interval=${checkpointMs(context.scale)}ms`,
    `-sink=postgres:${context.stack.postgres}`,
    `-sink-table=${run.sinkTable}`,
    '-migrate',
  ];
}

async function runOne(context: SliceContext, pool: SqlPool, plan: Plan): Promise<RunRecord> {
  const { stack } = context;
  const started = Date.now();
  const say = (line: string): void =>
    context.say(`${plan.name}: ${line} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  const topic = `events-${plan.id}`;
  const sinkTable = `windows_${plan.id}`;
  const stateDir = join(context.dir, `engine-${plan.id}`);
  const pastCheckpoint = Math.round(PAST_CHECKPOINT * Math.min(1, context.scale));
  await succeed(
    'topic create',
    context.spawn('topic', [
      'topic',
      'create',
      `-brokers=${stack.brokers}`,
      `-topic=${topic}`,
      `-partitions=${PARTITIONS}`,
    ]),
  );
  const startEngine = (name: string, ...more: readonly string[]): SliceProcess =>
    context.spawn(`engine-${plan.id}-${name}`, [
      ...engineArgs(context, { topic, stateDir, sinkTable }),
      ...more,
    ]);
  // The engine reads before there is anything to read, so that its first checkpoint does not wait for its start.
  const engine = startEngine('killed');
  await ready('engine', engine);
  const gen = context.spawn(`gen-${plan.id}`, [
    'gen',
    ...genArgs(context, plan),
    ...delayArgs(plan),
    '-order=delayed',
    `-out=kafka:${topic}`,
    `-brokers=${stack.brokers}`,
    `-partitions=${PARTITIONS}`,
    '-compression=none',
    `-rate=${Math.ceil(plan.events / GENERATE_S)}`,
  ]);
  say(`generating ${plan.events.toLocaleString('en-US')} events in delayed order`);
  const reader = await TopicReader.open(stack.brokers, topic);
  let kill: Kill;
  try {
    kill = await killInTheMiddle({
      plan,
      stateDir,
      reader,
      gen,
      pastCheckpoint,
      engine,
      startEngine: () => startEngine('killed'),
    });
  } finally {
    reader.close();
  }
  say(`engine killed at ${kill.consumed.toLocaleString('en-US')} events`);
  await succeed('gen', gen);
  await succeed('engine', startEngine('restarted', '-bounded'));
  say('engine restarted from its checkpoint and done');
  const logPath = (what: string): string => join(context.dir, `oracle-${plan.id}-${what}.log`);
  const arrivalTable = `arrival_${plan.id}`;
  const trueTable = `truth_${plan.id}`;
  const [arrival] = await Promise.all([
    loadArrival(pool, arrivalTable, stack.brokers, topic, RULES, logPath('arrival')),
    loadTrueOrder(pool, trueTable, genArgs(context, plan), RULES.sizeMs, logPath('truth')),
  ]);
  say('the oracle has read the topic and the true order');
  return {
    name: plan.name,
    topic,
    events: plan.events,
    pastCheckpoint,
    stateDir,
    sinkTable,
    arrivalTable,
    arrival,
    trueTable,
    kill,
  };
}

export const windowsSlice: Slice<WindowsRun> = {
  name: 'windows',
  async run(context) {
    const pool = await connect(context);
    const id = randomBytes(4).toString('hex');
    const events = (full: number): number => Math.max(10_000, Math.round(full * context.scale));
    try {
      const onTime = await runOne(context, pool, {
        name: 'run 1',
        id: `1_${id}`,
        events: events(ON_TIME_EVENTS),
        stragglers: false,
      });
      const late = await runOne(context, pool, {
        name: 'run 2',
        id: `2_${id}`,
        events: events(LATE_EVENTS),
        stragglers: true,
      });
      return { onTime, late };
    } finally {
      await pool.close();
    }
  },
  async judge(context, run) {
    const pool = await connect(context);
    try {
      return [...(await judgeOnTime(pool, run.onTime)), ...(await judgeLate(pool, run.late))];
    } finally {
      await pool.close();
    }
  },
  services: (context, run) => [{ name: 'engine', args: engineArgs(context, run.onTime) }],
};
