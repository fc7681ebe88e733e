/** Empties quarantines with `millrace consumer -redrive` after their cause was fixed: one that the
 *  wrong order of an upgrade filled, and one with records of an unknown schema id, whose redrive is
 *  killed in the middle. Both write back to the topic, and a consumer then reads what came back. */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import type { RecordInput } from '../../core/layout/record-batch.ts';
import { Payloads } from '../../formats/payloads.ts';
import { parseSchema } from '../../formats/schema.ts';
import { DEFAULT_ORDERS, OrderGenerator } from '../../gen/order.ts';
import { orderAsWritten, orderSchema } from '../../gen/order-versions.ts';
import { RECORD_ID_HEADER } from '../../registry/quarantine/record.ts';
import { writerCodec } from '../../serde/codec.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { succeed } from '../ended.ts';
import type { SliceContext } from '../fact.ts';
import { metricsOf, metricTotal } from './metrics.ts';
import { ask, type FleetRun, type KilledRedriveRun, ORIGIN, type RedriveRun, UPGRADE } from './model.ts';
import { append, createTopics, TopicReader } from './topic.ts';

const PARTITIONS = 4;
/** Records that the fix makes readable: enough for a kill in the middle at any scale. */
const FIXABLE = 1500;
/** Records that stay unreadable. */
const HOPELESS = 3;
/** Version of the records. */
const VERSION = 5;
/** Ids of another registry begin here, far above those of the demo's registry. */
const FOREIGN_IDS = 700_000;
/** Records of one transaction of the redrive that is killed: few, so that many follow. */
const KILLED_BATCH_ROWS = 20;
/** Records that are back when the redrive is killed. */
const KILL_AT = 300;
const FRAME_BYTES_MAX = 4096;
const POLL_MS = 10;
const KILL_MS_MAX = 120_000;
/** A busy machine can miss the moment of the kill; then the part starts over with a new topic. */
const TRIES_MAX = 3;

const consumerArgs = (context: SliceContext, registry: string, topic: string): readonly string[] => [
  'consumer',
  `-brokers=${context.stack.brokers}`,
  `-registry=${registry}`,
  `-topic=${topic}`,
];

async function reportOf(what: string, child: StartedCommand, code: number): Promise<RedriveRun['reported']> {
  const ended = await child.ended;
  if (ended.code !== code)
    throw coreError('internal', `${what} ended with ${ended.code ?? ended.signal}, not ${code}`, {
      next: `see ${child.logPath}`,
    });
  const { redriven, repeated, failed } = JSON.parse(child.stdout()) as RedriveRun['reported'];
  return { redriven, repeated, failed };
}

/** Redrives the records that the wrong order of an upgrade broke, now that the readers of the new
 *  version are ready, and lets the group of the fleet read them. */
export async function redriveFleet(
  context: SliceContext,
  registry: string,
  fleet: FleetRun,
): Promise<RedriveRun> {
  const { topic, quarantine, subject, group, seed } = fleet;
  const shared = [
    ...consumerArgs(context, registry, topic),
    `-subject=${subject}`,
    `-reader-version=${UPGRADE.to}`,
  ];
  const redrive = context.spawn('redrive-rollout', [...shared, '-redrive', '-json']);
  const reported = await reportOf('the redrive after the rollout', redrive, 0);
  const decodedPath = join(context.dir, 'redriven-rollout.jsonl');
  const reader = context.spawn('consumer-redriven-rollout', [
    ...shared,
    `-group=${group}`,
    `-out=file:${decodedPath}`,
    '-exit-at-end',
  ]);
  await succeed('the consumer after the rollout', reader);
  return {
    ...{ topic, quarantine, seed, decodedPath, reported },
    writer: UPGRADE.to,
    writerId: fleet.ids.to,
    reader: UPGRADE.to,
    reason: 'incompatible_schema',
  };
}

/** Schema that another registry knows under an id of its own. */
interface ForeignSchema {
  readonly id: number;
  readonly text: string;
}

/** Each turn has a schema of its own, because a registry keeps equal schemas under one id. */
function foreignSchema(turn: number): ForeignSchema {
  const schema = JSON.parse(orderSchema(VERSION, 'avro')) as Readonly<Record<string, unknown>>;
  const text = JSON.stringify({ ...schema, doc: `orders of another region, ${turn}` });
  return { id: FOREIGN_IDS + turn, text };
}

/** Orders framed with the id of another registry, and records that nothing can read. */
function records(schema: ForeignSchema, seed: number): readonly RecordInput[] {
  const { encode } = writerCodec(parseSchema('AVRO', schema.text));
  const generator = new OrderGenerator({ ...DEFAULT_ORDERS, seed: BigInt(seed) });
  const payloads = new Payloads(1, FRAME_BYTES_MAX);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(schema.id, 1);
  const headers = [['origin', Buffer.from(ORIGIN)]] as const;
  const orders = Array.from({ length: FIXABLE }, (_, index): RecordInput => {
    const order = generator.order(index);
    payloads.clear();
    encode(orderAsWritten(order, VERSION), payloads);
    return {
      partition: index % PARTITIONS,
      key: Buffer.from(order.order_id),
      value: Buffer.concat([head, payloads.bytes.subarray(0, payloads.used)]),
      headers,
    };
  });
  const garbage = Array.from({ length: HOPELESS }, (_, index): RecordInput => {
    const value = randomBytes(64);
    // No frame begins with this byte.
    value[0] = 0xa5;
    return { partition: index % PARTITIONS, key: Buffer.from(`garbage-${index}`), value, headers };
  });
  return [...orders, ...garbage];
}

/** Registers the schema under the id of the other registry. */
async function importSchema(registry: string, subject: string, schema: ForeignSchema): Promise<void> {
  const calls: ReadonlyArray<readonly [string, string, unknown]> = [
    ['PUT', `/mode/${subject}`, { mode: 'IMPORT' }],
    ['POST', `/subjects/${subject}/versions`, { schema: schema.text, id: schema.id, version: 1 }],
    ['PUT', `/mode/${subject}`, { mode: 'READWRITE' }],
  ];
  for (const [method, path, body] of calls) {
    const { status, body: answer } = await ask(registry, method, path, body);
    if (status !== 200)
      throw coreError('internal', `${method} ${path}: the registry answers ${JSON.stringify(answer)}`);
  }
}

/** Number of redriven records that readers of committed records see in a topic. */
async function countBack(brokers: string, topic: string): Promise<number> {
  const reader = await TopicReader.open(brokers);
  let back = 0;
  try {
    await reader.read([topic], (_topic, { headers }) => {
      if (headers().has(RECORD_ID_HEADER)) back++;
    });
  } finally {
    await reader.close();
  }
  return back;
}

/** Starts a redrive and kills it once it has written enough. Undefined: it had written everything
 *  before the kill. */
async function killRedrive(
  context: SliceContext,
  args: readonly string[],
  topic: string,
): Promise<KilledRedriveRun['killed'] | undefined> {
  const child = context.spawn('redrive-killed', [...args, `-batch-rows=${KILLED_BATCH_ROWS}`]);
  const address = await child.address();
  const deadline = Date.now() + KILL_MS_MAX;
  for (;;) {
    const page = await metricsOf(address).catch(() => undefined);
    // Without an answer, the redrive has ended.
    if (page === undefined || metricTotal(page, 'redriven_total') >= KILL_AT) break;
    if (Date.now() > deadline)
      throw coreError('timeout', 'the redrive wrote too little', { next: `see ${child.logPath}` });
    await sleep(POLL_MS);
  }
  child.kill('SIGKILL');
  const { signal } = await child.ended;
  const back = await countBack(context.stack.brokers, topic);
  return signal !== null && back < FIXABLE ? { signal, back } : undefined;
}

/** Quarantines records of an unknown id, imports their schema, kills the redrive in the middle and
 *  starts it again. */
export async function redriveThroughKill(
  context: SliceContext,
  registry: string,
  name: string,
): Promise<KilledRedriveRun> {
  for (let turn = 1; turn <= TRIES_MAX; turn++) {
    const done = await tryRedrive(context, registry, `${name}-${turn}`, foreignSchema(turn));
    if (done !== undefined) return done;
    context.say('contracts: the moment to kill the redrive was missed: starting over');
  }
  throw coreError('timeout', 'no moment to kill the redrive occurred', {
    next: 'try again on a less busy machine',
  });
}

async function tryRedrive(
  context: SliceContext,
  registry: string,
  topic: string,
  schema: ForeignSchema,
): Promise<KilledRedriveRun | undefined> {
  const { brokers } = context.stack;
  const quarantine = `${topic}.quarantine`;
  const seed = context.seed * 10 + 5;
  await createTopics(brokers, [
    { topic, partitions: PARTITIONS },
    { topic: quarantine, partitions: 1 },
  ]);
  await append(brokers, topic, records(schema, seed));
  const args = consumerArgs(context, registry, topic);
  const group = [...args, `-group=${topic}-readers`, '-exit-at-end'];
  await succeed('the consumer before the fix', context.spawn('consumer-unknown-id', group));
  await importSchema(registry, `${topic}-value`, schema);
  const killed = await killRedrive(context, [...args, '-redrive'], topic);
  if (killed === undefined) return undefined;
  const redrive = context.spawn('redrive-restarted', [...args, '-redrive', '-json']);
  // Exit code 1: some records still cannot be read.
  const reported = await reportOf('the redrive', redrive, 1);
  const decodedPath = join(context.dir, `redriven-${topic}.jsonl`);
  const reader = context.spawn('consumer-redriven', [...group, `-out=file:${decodedPath}`]);
  const list = context.spawn('quarantine-list', [...args, '-quarantine', '-list-max=0', '-json']);
  await succeed('the consumer after the redrive', reader);
  const listed = JSON.parse(await succeed('the list of the quarantine', list)) as KilledRedriveRun['listed'];
  return {
    ...{ topic, quarantine, seed, decodedPath, reported, killed },
    listed: { left: listed.left, redriven: listed.redriven },
    writer: VERSION,
    writerId: schema.id,
    reader: VERSION,
    reason: 'unknown_schema_id',
  };
}
