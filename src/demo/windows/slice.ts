/** The windows slice: events in delayed order through Kafka into windows of each kind, and orders
 *  of several schema versions into revenue by account and minute. The engine is killed while it
 *  reads what the generator writes. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { pgDriver } from '../../io/postgres/sql/pg.ts';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import { ready } from '../../shell/children/ready.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { succeed } from '../ended.ts';
import type { Fact, Slice, SliceContext } from '../fact.ts';
import {
  CASES,
  LATENESS_MS,
  ORDER_FIELDS,
  ORDER_VERSIONS,
  SKEW_MS,
  type WindowCase,
  windowFlags,
} from './cases.ts';
import { judgeRun, type RunRecord } from './judge.ts';
import { killInTheMiddle } from './kill.ts';
import { loadArrival, loadTrueOrder } from './oracle.ts';

const PARTITIONS = 4;
/** Checkpoint interval: long enough that the engine gets well past a checkpoint before the next.
 *  The TypeScript kernels are slower, and the full demo requires more events past the
 *  checkpoint. */
const checkpointMs = (scale: number): number =>
  1200 + (process.env['MILLRACE_NATIVE'] === 'off' ? 2800 * Math.min(1, scale) : 0);
/** Minimum generation time in s, so that there is a middle to kill in at any scale. */
const GENERATE_S = 4;
/** A busy machine can miss the moment of the kill; then the run restarts with a new topic. */
const TRIES_MAX = 3;

export interface WindowsRun {
  /** In the order of the cases. */
  readonly runs: readonly RunRecord[];
}

/** Case of one run of the demo. */
interface Plan extends WindowCase {
  /** Suffix of its topic, tables and folders. */
  readonly id: string;
  /** Address of the registry of the orders. */
  readonly registry: string;
}

const topicOf = (plan: Plan): string => `events-${plan.id}`;

function connect(context: SliceContext): Promise<SqlPool> {
  return pgDriver.connect({
    url: context.stack.postgres,
    connectionsMax: 4,
    applicationName: 'millrace demo',
    connectTimeoutMs: 60_000,
  });
}

const genArgs = (context: SliceContext, plan: Plan): readonly string[] => [
  `-kind=${plan.input}`,
  `-seed=${context.seed}`,
  `-count=${plan.events}`,
  ...plan.keys,
  ...(plan.input === 'orders'
    ? ['-format=avro', `-schema-version=1-${ORDER_VERSIONS}`, `-registry=${plan.registry}`]
    : // 400 s of event time at any scale, so that windows fire throughout.
      [`-per-ms=${plan.events / 400_000}`]),
];

/** Fields of an order, which the engine reads from any version. */
const orderFields = (registry: string): readonly string[] => [
  `-registry=${registry}`,
  `-key=${ORDER_FIELDS.key}`,
  `-time=${ORDER_FIELDS.time}:ms`,
  `-value=${ORDER_FIELDS.value}`,
];

/** Arguments shared by all engines of a case. */
function engineArgs(
  context: SliceContext,
  plan: WindowCase & { readonly registry?: string },
  run: Pick<RunRecord, 'topic' | 'stateDir' | 'sinkTable'>,
): readonly string[] {
  return [
    'engine',
    `-brokers=${context.stack.brokers}`,
    `-topic=${run.topic}`,
    // Other formats need a share of the memory for their quarantine.
    ...(plan.input === 'orders' ? orderFields(plan.registry as string) : ['-format=binary256']),
    ...windowFlags(plan, 'ms'),
    `-allowed-skew=${SKEW_MS}ms`,
    `-allowed-lateness=${LATENESS_MS}ms`,
    ...plan.state,
    '-shards=2',
    `-state-dir=${run.stateDir}`,
    `-checkpoint-interval=${checkpointMs(context.scale)}ms`,
    // The result must depend on the log alone, however long the generator is stopped.
    '-idle-timeout=0',
    `-sink=postgres:${context.stack.postgres}`,
    `-sink-table=${run.sinkTable}`,
    '-migrate',
  ];
}

async function runOne(context: SliceContext, pool: SqlPool, plan: Plan): Promise<RunRecord> {
  const started = Date.now();
  const say = (line: string): void =>
    context.say(`${plan.name}: ${line} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  for (let turn = 1; turn <= TRIES_MAX; turn++) {
    const run = await tryOne(context, pool, turn === 1 ? plan : { ...plan, id: `${plan.id}_${turn}` }, say);
    if (run !== undefined) return run;
    say('the moment of the kill was missed: starting over');
  }
  throw coreError('timeout', `${plan.name}: no moment to kill the engine occurred`, {
    next: 'try again on a less busy machine',
  });
}

/** Undefined if the engine was not killed at a valid moment. */
async function tryOne(
  context: SliceContext,
  pool: SqlPool,
  plan: Plan,
  say: (line: string) => void,
): Promise<RunRecord | undefined> {
  const { stack } = context;
  const topic = topicOf(plan);
  const sinkTable = `windows_${plan.id}`;
  const stateDir = join(context.dir, `engine-${plan.id}`);
  const pastCheckpoint = Math.round(plan.pastCheckpoint * Math.min(1, context.scale));
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
  const startEngine = (name: string, ...more: readonly string[]): StartedCommand =>
    context.spawn(`engine-${plan.id}-${name}`, [
      ...engineArgs(context, plan, { topic, stateDir, sinkTable }),
      ...more,
    ]);
  // The engine starts before there is anything to read, so that its startup does not delay its
  // first checkpoint.
  const engine = startEngine('killed');
  await ready('engine', engine);
  const gen = context.spawn(`gen-${plan.id}`, [
    'gen',
    ...genArgs(context, plan),
    ...plan.delays,
    `-out=kafka:${topic}`,
    `-brokers=${stack.brokers}`,
    `-partitions=${PARTITIONS}`,
    '-compression=none',
    `-rate=${Math.ceil(plan.events / GENERATE_S)}`,
  ]);
  say(`generating ${plan.events.toLocaleString('en-US')} ${plan.input}`);
  const kill = await killInTheMiddle({
    ...{ plan, stateDir, gen, engine, pastCheckpoint, topic },
    brokers: stack.brokers,
    startEngine: () => startEngine('killed'),
  });
  if (kill === undefined) {
    await succeed('gen', gen);
    return undefined;
  }
  say(`engine killed at ${kill.consumed.toLocaleString('en-US')} ${plan.input}`);
  await succeed('gen', gen);
  await succeed('engine', startEngine('restarted', '-bounded'));
  say('engine restarted from its checkpoint and done');
  const expected = await expectedRows(context, pool, plan);
  say('the oracle has read the events');
  const { name, input, events, overlaps, state } = plan;
  return {
    ...{ name, input, topic, events, overlaps, state, pastCheckpoint, stateDir, sinkTable, kill },
    ...expected,
  };
}

/** Lets the oracle compute the expected rows. */
async function expectedRows(
  context: SliceContext,
  pool: SqlPool,
  plan: Plan,
): Promise<Pick<RunRecord, 'arrivalTable' | 'arrival' | 'trueTable'>> {
  const logPath = (what: string): string => join(context.dir, `oracle-${plan.id}-${what}.log`);
  const isLate = plan.expects === 'arrival';
  const arrivalTable = isLate ? `arrival_${plan.id}` : undefined;
  const trueTable = !isLate || plan.hasTruth ? `truth_${plan.id}` : undefined;
  const topic = topicOf(plan);
  const [arrival] = await Promise.all([
    loadArrival(pool, arrivalTable, context.stack.brokers, topic, logPath('arrival'), [
      ...windowFlags(plan, ''),
      ...(plan.input === 'orders' ? framedFlags(plan.registry, topic) : []),
    ]),
    trueTable === undefined
      ? undefined
      : loadTrueOrder(pool, trueTable, genArgs(context, plan), windowFlags(plan, ''), logPath('truth')),
  ]);
  return { arrivalTable, arrival, trueTable };
}

/** Flags of the oracle for orders. */
const framedFlags = (registry: string, topic: string): readonly string[] => [
  `-registry=${registry}`,
  `-subject=${topic}-value`,
  ...Object.entries(ORDER_FIELDS).map(([role, field]) => `-${role}=${field}`),
];

export const windowsSlice: Slice<WindowsRun> = {
  name: 'windows',
  async run(context) {
    const pool = await connect(context);
    const id = randomBytes(4).toString('hex');
    const child = context.spawn('registry', ['registry', '-store=memory', '-listen=127.0.0.1:0']);
    const registry = `http://${await ready('registry', child)}`;
    try {
      const runs: RunRecord[] = [];
      for (const together of CASES) {
        const plans = together.map((one, at): Plan => {
          const events = Math.max(one.eventsMin, Math.round(one.events * context.scale));
          return { ...one, events, id: `${runs.length + at + 1}_${id}`, registry };
        });
        runs.push(...(await Promise.all(plans.map((plan) => runOne(context, pool, plan)))));
      }
      return { runs };
    } finally {
      await pool.close();
    }
  },
  async judge(context, { runs }) {
    const pool = await connect(context);
    try {
      const facts: Fact[] = [];
      for (const run of runs) facts.push(...(await judgeRun(pool, run)));
      return facts;
    } finally {
      await pool.close();
    }
  },
  services: (context, { runs }) => {
    const [first] = CASES.flat();
    const [run] = runs;
    return first === undefined || run === undefined
      ? []
      : [{ name: 'engine', args: engineArgs(context, first, run) }];
  },
};
