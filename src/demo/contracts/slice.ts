/** The contracts slice: a registry, four flows of framed orders whose readers use another version
 *  than the writers, and unreadable records among them.
 *
 *  The registry is killed and restarted on its files before anything is produced, so that the flows
 *  use ids that were on disk. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { coreError } from '../../core/errors.ts';
import type { RecordInput } from '../../core/layout/record-batch.ts';
import { orderSchema } from '../../gen/order-versions.ts';
import type { QuarantineReason } from '../../serde/errors.ts';
import { quarantineTopicOf } from '../../serde/quarantine.ts';
import { ready } from '../../shell/children/ready.ts';
import type { StartedCommand } from '../../shell/children/started-command.ts';
import { succeed } from '../ended.ts';
import type { Slice, SliceContext } from '../fact.ts';
import { upgradeFleet } from './fleet.ts';
import { judgeContracts } from './judge.ts';
import { metricsOf, metricTotal } from './metrics.ts';
import {
  ask,
  type BadRecord,
  type ContractsRun,
  type DemoAnswer,
  type FleetRun,
  type FlowPlan,
  type FlowRun,
  formatName,
  ORIGIN,
  type Refusal,
  subjectOf,
  UPGRADE,
} from './model.ts';
import { redriveFleet, redriveThroughKill } from './redrive.ts';
import { append, createTopics } from './topic.ts';

/** Orders of each flow at scale 1. */
const FLOW_ORDERS = 30_000;
const PARTITIONS = 4;
/** Copies of each kind of bad record, half before the orders and half after them. */
const BAD_COPIES = 4;
/** An id that the registry of this demo never assigns. */
const UNKNOWN_ID = 0x7fff_ff01;
const POLL_MS = 100;
const CONSUME_MS_MAX = 120_000;
const VERSIONS = [1, 2] as const;
const FORMATS = ['avro', 'protobuf'] as const;

function requireOk(what: string, answer: DemoAnswer): Record<string, unknown> {
  if (answer.status !== 200)
    throw coreError(
      'internal',
      `${what}: the registry answers ${answer.status} ${JSON.stringify(answer.body)}`,
    );
  return answer.body as Record<string, unknown>;
}

interface Registered {
  readonly registry: string;
  readonly ids: Record<string, number[]>;
  readonly refusals: Refusal[];
}

const registryArgs = (context: SliceContext): readonly string[] => [
  'registry',
  `-store=file:${join(context.dir, 'registry')}`,
  '-listen=127.0.0.1:0',
];

async function startRegistry(
  context: SliceContext,
): Promise<{ readonly child: StartedCommand; readonly url: string }> {
  const child = context.spawn('registry', registryArgs(context));
  return { child, url: `http://${await ready('registry', child)}` };
}

async function register(context: SliceContext): Promise<Registered> {
  const first = await startRegistry(context);
  const ids: Record<string, number[]> = {};
  const refusals: Refusal[] = [];
  for (const format of FORMATS) {
    const subject = subjectOf(format);
    const schemaType = formatName(format);
    requireOk('level', await ask(first.url, 'PUT', `/config/${subject}`, { compatibility: 'FULL' }));
    ids[subject] = [];
    for (const version of VERSIONS) {
      const body = { schema: orderSchema(version, format), schemaType };
      const answer = requireOk(
        `${subject} version ${version}`,
        await ask(first.url, 'POST', `/subjects/${subject}/versions`, body),
      );
      ids[subject].push(answer['id'] as number);
    }
    const breaking = { schema: orderSchema('breaking', format), schemaType };
    const refused = await ask(first.url, 'POST', `/subjects/${subject}/versions`, breaking);
    refusals.push({
      format,
      status: refused.status,
      message: String((refused.body as Record<string, unknown>)['message'] ?? ''),
    });
  }
  first.child.kill('SIGKILL');
  await first.child.ended;
  const second = await startRegistry(context);
  return { registry: second.url, ids, refusals };
}

/** Unreadable records, spread over the partitions. */
function badRecords(
  context: SliceContext,
  flow: FlowPlan,
  writerId: number,
  round: number,
): Array<RecordInput & { readonly reason: QuarantineReason }> {
  const id = (value: number): Buffer => {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return bytes;
  };
  const zero = Buffer.from([0]);
  const noise = randomBytes(64);
  noise[0] = 0xa5;
  const kinds: ReadonlyArray<readonly [QuarantineReason, Buffer]> = [
    ['truncated_frame', Buffer.from([0, 0, 0])],
    [
      'unknown_schema_id',
      Buffer.concat([zero, id(UNKNOWN_ID), zero, Buffer.from('an order without a schema')]),
    ],
    ['bad_magic', noise],
    // A valid header, followed by bytes that the schema cannot have written.
    ['malformed_payload', Buffer.concat([zero, id(writerId), zero, Buffer.alloc(40, 0xff)])],
  ];
  return kinds.flatMap(([reason, value], kind) =>
    Array.from({ length: BAD_COPIES / 2 }, (_, copy) => ({
      reason,
      partition: (kind + copy + round + context.seed) % PARTITIONS,
      key: Buffer.from(`bad-${flow.name}-${round}-${kind}-${copy}`),
      value,
      headers: [['origin', Buffer.from(ORIGIN)]] as const,
    })),
  );
}

async function inject(
  context: SliceContext,
  flow: FlowPlan,
  writerId: number,
  round: number,
): Promise<BadRecord[]> {
  const records = badRecords(context, flow, writerId, round);
  const places = await append(context.stack.brokers, flow.topic, records);
  return records.map((record, i) => ({
    partition: record.partition as number,
    offset: String(places[i]?.offset),
    reason: record.reason,
    keyHex: Buffer.from(record.key ?? []).toString('hex'),
    valueHex: Buffer.from(record.value ?? []).toString('hex'),
  }));
}

function plansOf(context: SliceContext): FlowPlan[] {
  const run = randomBytes(4).toString('hex');
  const orders = Math.max(100, Math.round(FLOW_ORDERS * context.scale));
  return FORMATS.flatMap((format) =>
    (
      [
        [1, 2],
        [2, 1],
      ] as const
    ).map(([writer, reader], direction) => {
      const name = `${format}-${writer}-to-${reader}`;
      const topic = `millrace-demo-orders-${run}-${name}`;
      return {
        name,
        format,
        writer,
        reader,
        topic,
        quarantine: quarantineTopicOf(topic),
        seed: context.seed * 10 + direction,
        orders,
        decodedPath: join(context.dir, `decoded-${name}.jsonl`),
      };
    }),
  );
}

function countedErrors(metrics: string): Record<string, number> {
  const counted: Record<string, number> = {};
  for (const match of metrics.matchAll(
    /^deserialize_errors_total\{[^}]*reason="([a-z_]+)"[^}]*\} (\S+)$/gm,
  )) {
    counted[match[1] as string] = Number(match[2]);
  }
  return counted;
}

async function consumed(
  flow: FlowPlan,
  consumer: StartedCommand,
  address: string,
  records: number,
): Promise<string> {
  const deadline = Date.now() + CONSUME_MS_MAX;
  for (;;) {
    const metrics = await metricsOf(address);
    if (metricTotal(metrics, 'consumed_records_total') >= records) return metrics;
    if (Date.now() > deadline) {
      throw coreError(
        'timeout',
        `${flow.name}: ${metricTotal(metrics, 'consumed_records_total')} of ${records} records were consumed`,
        { next: `see ${consumer.logPath}` },
      );
    }
    await sleep(POLL_MS);
  }
}

async function runFlow(context: SliceContext, flow: FlowPlan, registered: Registered): Promise<FlowRun> {
  const subject = subjectOf(flow.format);
  const shared = [
    `-brokers=${context.stack.brokers}`,
    `-registry=${registered.registry}`,
    `-format=${flow.format}`,
    `-subject=${subject}`,
    `-topic=${flow.topic}`,
    '-create-topics=false',
  ];
  const writerId = registered.ids[subject]?.[flow.writer - 1] as number;
  const bad = await inject(context, flow, writerId, 0);
  const consumer = context.spawn(`consumer-${flow.name}`, [
    'consumer',
    ...shared,
    `-reader-version=${flow.reader}`,
    `-out=file:${flow.decodedPath}`,
  ]);
  const schema = join(context.dir, 'schemas', `order-${flow.format}-${flow.writer}`);
  const producer = context.spawn(`producer-${flow.name}`, [
    'producer',
    ...shared,
    `-schema=${schema}`,
    `-count=${flow.orders}`,
    `-seed=${flow.seed}`,
    '-json',
  ]);
  const address = await consumer.address();
  await succeed(`producer ${flow.name}`, producer);
  bad.push(...(await inject(context, flow, writerId, 1)));
  const metrics = await consumed(flow, consumer, address, flow.orders + bad.length);
  consumer.kill('SIGTERM');
  await succeed(`consumer ${flow.name}`, consumer);
  return { ...flow, writerId, bad, counted: countedErrors(metrics) };
}

async function run(context: SliceContext): Promise<ContractsRun> {
  mkdirSync(join(context.dir, 'schemas'), { recursive: true });
  for (const format of FORMATS) {
    for (const version of VERSIONS)
      writeFileSync(join(context.dir, 'schemas', `order-${format}-${version}`), orderSchema(version, format));
  }
  context.say(
    'contracts: Order v1 and v2 to the registry in two formats, a breaking v3 refused, the registry killed and restarted',
  );
  const registered = await register(context);
  const plans = plansOf(context);
  await createTopics(
    context.stack.brokers,
    plans.flatMap(({ topic, quarantine }) => [
      { topic, partitions: PARTITIONS },
      { topic: quarantine, partitions: 1 },
    ]),
  );
  const flows: FlowRun[] = [];
  const startMs = Date.now();
  // Two at a time: a writer and a reader of both formats saturate two cores.
  for (let i = 0; i < 2; i++) {
    const pair = plans.filter((_, index) => index % 2 === i);
    context.say(
      `contracts: ${pair.map((flow) => `${flow.orders} orders ${flow.format} v${flow.writer} to v${flow.reader}`).join(', ')}, with bad records among them`,
    );
    flows.push(...(await Promise.all(pair.map((flow) => runFlow(context, flow, registered)))));
  }
  const seconds = (Date.now() - startMs) / 1000;
  const orders = flows.reduce((sum, flow) => sum + flow.orders, 0);
  const live = await runLive(context, registered.registry);
  return { ...registered, flows, producedPerSecond: Math.round(orders / seconds), ...live };
}

/** Upgrades two live fleets, one in the wrong order, and empties the quarantines. */
async function runLive(
  context: SliceContext,
  registry: string,
): Promise<Pick<ContractsRun, 'wrongOrder' | 'rescue' | 'rightOrder' | 'redrive'>> {
  context.say(
    `contracts: live fleets from Order v${UPGRADE.from} to v${UPGRADE.to}, in the wrong and in the right order, and a redrive that is killed`,
  );
  const id = randomBytes(4).toString('hex');
  const fleet = (name: string, order: 'any' | 'producers-first', seed: number): Promise<FleetRun> => {
    const topic = `millrace-demo-rollout-${id}-${name}`;
    return upgradeFleet(context, { name, order, topic, registry, seed: context.seed * 10 + seed });
  };
  const [wrong, rightOrder, redrive] = await Promise.all([
    fleet('wrong-order', 'producers-first', 3).then(async (wrongOrder) => ({
      wrongOrder,
      rescue: await redriveFleet(context, registry, wrongOrder),
    })),
    fleet('right-order', 'any', 4),
    redriveThroughKill(context, registry, `millrace-demo-redrive-${id}`),
  ]);
  return { ...wrong, rightOrder, redrive };
}

export const contractsSlice: Slice<ContractsRun> = {
  name: 'contracts',
  run,
  judge: (context, done) => judgeContracts(context, done),
  services: (context) => [{ name: 'registry', args: registryArgs(context) }],
};
