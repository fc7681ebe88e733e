/** Upgrades live fleets from one version of Order to the next with `millrace rollout`: one producer
 *  and one consumer, both of them Millrace's commands, on an existing topic, which stays for the
 *  judge. */
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { orderSchema } from '../../gen/order-versions.ts';
import { packageRoot } from '../../shell/package.ts';
import type { SliceContext } from '../fact.ts';
import { ask, type FleetRun, UPGRADE } from './model.ts';
import { createTopics } from './topic.ts';

const LAUNCHER = join(packageRoot(), 'bin', 'millrace');
const PARTITIONS = 2;
/** Records a second of the producer. */
const RATE = 300;
/** Time under load, spread over the four steps of an upgrade. */
const LOAD_MS = 2400;
/** Longest waits of a busy machine. */
const WAIT = '2m';

/** Exit codes with a verdict about the upgrade. */
const VERDICTS: readonly (number | null)[] = [0, 1];

export interface FleetPlan {
  readonly name: string;
  /** any: the order of the plan. */
  readonly order: 'any' | 'producers-first';
  readonly topic: string;
  readonly registry: string;
  readonly seed: number;
}

/** Registers the versions up to the new one under BACKWARD. Returns the ids of the two that the
 *  fleet uses. */
async function registerVersions(registry: string, subject: string): Promise<FleetRun['ids']> {
  const call = async (method: string, path: string, body: unknown): Promise<Record<string, unknown>> => {
    const answer = await ask(registry, method, path, body);
    if (answer.status === 200) return answer.body as Record<string, unknown>;
    throw coreError('internal', `${method} ${path}: the registry answers ${JSON.stringify(answer)}`);
  };
  await call('PUT', `/config/${subject}`, { compatibility: 'BACKWARD' });
  const ids: number[] = [];
  for (const version of [1, 2, UPGRADE.from, UPGRADE.to] as const) {
    const schema = orderSchema(version, 'avro');
    ids.push((await call('POST', `/subjects/${subject}/versions`, { schema }))['id'] as number);
  }
  const [from, to] = ids.slice(-2) as [number, number];
  return { from, to };
}

/** The instances take broker, topic, group, registry, subject and rate from the environment that
 *  the rollout gives them. */
function commandLines(plan: FleetPlan, folder: string): readonly string[] {
  const program = `'${process.execPath}' '${LAUNCHER}' {role} -format=avro -create-topics=false -log-level=warn`;
  const consumer = `${program} -reader-version={schema_version} '-out=file:${folder}/${plan.name}-{version}.jsonl'`;
  const producer = `${program} -schema={schema_file} -seed=${plan.seed}`;
  return [
    `-old-command=${consumer}`,
    `-new-command=${consumer}`,
    `-old-producer-command=${producer}`,
    `-new-producer-command=${producer}`,
  ];
}

interface Report {
  readonly verdict: string;
  readonly order: string;
  readonly errors: number;
}

/** Runs one upgrade to its verdict. @throws internal if the fleet could not run */
export async function upgradeFleet(context: SliceContext, plan: FleetPlan): Promise<FleetRun> {
  const { topic, registry } = plan;
  const { brokers } = context.stack;
  const subject = `${topic}-value`;
  const quarantine = `${topic}.quarantine`;
  const group = `${topic}-readers`;
  const ids = await registerVersions(registry, subject);
  await createTopics(brokers, [
    { topic, partitions: PARTITIONS },
    { topic: quarantine, partitions: 1 },
  ]);
  const rollout = context.spawn(`rollout-${plan.name}`, [
    'rollout',
    `-brokers=${brokers}`,
    `-registry=${registry}`,
    `-topic=${topic}`,
    `-subject=${subject}`,
    `-from-version=${UPGRADE.from}`,
    `-to-version=${UPGRADE.to}`,
    `-order=${plan.order}`,
    `-group-names=${group}`,
    '-consumers=1',
    '-producers=1',
    `-rate=${RATE}`,
    `-duration=${LOAD_MS}ms`,
    '-sample-every=200ms',
    `-settle-timeout=${WAIT}`,
    `-ready-timeout=${WAIT}`,
    '-log-level=warn',
    '-json',
    ...commandLines(plan, context.dir),
  ]);
  const { code, signal } = await rollout.ended;
  if (!VERDICTS.includes(code))
    throw coreError('internal', `the rollout ${plan.name} ended with ${code ?? signal}`, {
      next: `see ${rollout.logPath}`,
    });
  const { verdict, order, errors } = JSON.parse(rollout.stdout()) as Report;
  const decodedBy = (side: 'old' | 'new'): string => join(context.dir, `${plan.name}-${side}.jsonl`);
  return {
    ...{ topic, quarantine, group, subject, ids, seed: plan.seed, code, verdict, order, errors },
    decoded: { from: decodedBy('old'), to: decodedBy('new') },
  };
}
