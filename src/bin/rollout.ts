/** `millrace rollout`: upgrades a live fleet of producers and consumers, instance by instance. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { coreError, EXIT } from '../core/errors.ts';
import { environmentName } from '../core/settings.ts';
import { Processes } from '../demo/processes.ts';
import { ready } from '../demo/ready.ts';
import type { Schema } from '../formats/schema.ts';
import type { OrderFormat } from '../gen/order-versions.ts';
import type { BatchConsumer } from '../io/kafka/port.ts';
import type { Level } from '../registry/compatibility/modes.ts';
import type { RolloutOutcome, Slot, UpgradeOrder } from '../registry/rollout/model.ts';
import { planRollout, type RolloutPlan } from '../registry/rollout/plan.ts';
import { rolloutPlot } from '../registry/rollout/plot.ts';
import { Rollout } from '../registry/rollout/run.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { brokerDriver } from '../shell/drivers.ts';
import { makeTopics } from '../shell/topics.ts';
import { registryClient } from './registry-clients/shared.ts';
import { processFleet } from './rollout/fleet.ts';
import { type RegisteredPair, registerPair, schemaOf } from './rollout/schemas.ts';
import { ROLLOUT_SETTINGS } from './rollout/settings.ts';

type Context = CommandContext<typeof ROLLOUT_SETTINGS>;

const ROLLOUT_EXIT = { refused: 4, failed: 5 } as const;
const END_GRACE_MS = 10_000;
/** Share of the rate that the lag of one group may reach between two steps, in seconds. */
const LAG_SECONDS = 10;
/** Kafka deletes records of a run that did not delete its topic. */
const RETENTION_MS = 3_600_000;
const REGISTRY_DEFAULT = 'http://127.0.0.1:8081';

/** The two schemas. Registered versions need -subject. */
async function schemasOf(context: Context): Promise<{ readonly from: Schema; readonly to: Schema }> {
  const { settings } = context;
  const find = async (flag: 'from-version' | 'to-version'): Promise<Schema> => {
    const text = settings[flag];
    if (settings.subject !== undefined && /^(\d+|latest)$/.test(text)) {
      const client = registryClient({ ...context, settings: { ...settings, registry: registryOf(context) } });
      return (await client.version(settings.subject, text)).schema;
    }
    return schemaOf(`-${flag}`, text, settings.format as OrderFormat);
  };
  return { from: await find('from-version'), to: await find('to-version') };
}

const registryOf = ({ settings }: Context): string => settings.registry ?? REGISTRY_DEFAULT;

function planText(plan: RolloutPlan): string {
  return [
    `order: ${plan.order ?? 'none is safe'}${plan.safe.length > 1 ? ' (any order is safe)' : ''}`,
    ...plan.why.map((line) => `  ${line}`),
    ...plan.steps.map((step, index) => `${index + 1}. ${step}`),
  ].join('\n');
}

function slotsOf({ settings }: Context, topic: string): readonly Slot[] {
  const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i + 1);
  return [
    ...numbers(settings.groups).flatMap((group) =>
      numbers(settings.consumers).map((index): Slot => {
        return { name: `consumer-g${group}-${index}`, role: 'consumer', group: `${topic}-g${group}` };
      }),
    ),
    ...numbers(settings.producers).map((index): Slot => ({ name: `producer-${index}`, role: 'producer' })),
  ];
}

/** Environment of the children; it holds the secrets, because other users can see arguments. */
function childEnvironment({ settings }: Context): Readonly<Record<string, string | undefined>> {
  const properties = Object.entries(settings['broker-property']).map(([name, value]) => `${name}=${value}`);
  return {
    ...process.env,
    ...(properties.length === 0 ? {} : { [environmentName('broker-property')]: properties.join('\n') }),
    ...(settings['registry-user'] === undefined
      ? {}
      : { [environmentName('registry-user')]: settings['registry-user'] }),
    ...(settings['registry-token-file'] === undefined
      ? {}
      : { [environmentName('registry-token-file')]: settings['registry-token-file'] }),
  };
}

/** Children of this run; they end with it. */
function startProcesses(context: Context): { readonly processes: Processes; readonly dir: string } {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-rollout-'));
  const processes = new Processes({ dir, stay: false, env: childEnvironment(context) });
  const killNow = (): void => processes.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await processes.end(END_GRACE_MS);
    process.removeListener('exit', killNow);
  });
  return { processes, dir };
}

/** Address of the given registry, or of one in memory that ends with this run. */
async function openRegistry(context: Context, processes: Processes): Promise<string> {
  const { registry } = context.settings;
  if (registry !== undefined) return registry;
  const args = ['registry', '-store=memory', '-listen=127.0.0.1:0', '-log-level=warn'];
  return `http://${await ready('registry', processes.spawn('registry', args))}`;
}

/** Creates the topic, and a client of each group that reads its committed offsets. */
async function openTopic(
  context: Context,
  brokers: string,
  topic: string,
  groups: readonly string[],
): Promise<ReadonlyMap<string, BatchConsumer>> {
  const { settings } = context;
  const driver = await brokerDriver(context);
  const base = { brokers, clientId: 'millrace-rollout', connectTimeoutMs: settings['connect-timeout'] };
  const admin = await driver.admin(base);
  context.onClose(() => admin.close());
  const config = { 'retention.ms': String(RETENTION_MS) };
  await makeTopics(context.log, admin, [{ topic, partitions: settings.partitions, config }]);
  context.onClose(() => admin.deleteTopics([topic, `${topic}.quarantine`]));
  const clients = new Map<string, BatchConsumer>();
  for (const group of groups) {
    const client = await driver.consumer({ ...base, group });
    context.onClose(() => client.close());
    clients.set(group, client);
  }
  return clients;
}

/** Runs the fleet under the gauges and lines of this command. */
function upgrade(
  context: Context,
  options: Pick<ConstructorParameters<typeof Rollout>[0], 'world' | 'slots' | 'order'>,
): Promise<RolloutOutcome> {
  const { settings, metrics, clock, drain } = context;
  const errors = metrics.gauge('rollout_errors', 'Records that the fleet could not read.');
  const lag = metrics.gauge('rollout_lag_records', 'Records that the groups have not read yet.');
  const rate = metrics.gauge('rollout_records_per_second', 'Rate of the fleet.', ['direction']);
  const instances = metrics.gauge('rollout_instances', 'Running instances by version.', ['role', 'version']);
  const lagMax = settings['lag-max'] || settings.rate * LAG_SECONDS * settings.groups;
  const phases = options.slots.length + 2;
  let shown = '';
  const progress = context.progress({ what: 'rollout', unit: 'records', note: () => shown });
  return new Rollout({
    ...options,
    clock,
    drain,
    rollback: settings.rollback === 'on',
    stepMs: settings.duration / phases,
    sampleMs: settings['sample-every'],
    lagMax,
    settleMs: settings['settle-timeout'],
    surge: settings.surge,
    onEntry: ({ atMs, text }) => context.say(`[${(atMs / 1000).toFixed(1).padStart(6)} s] ${text}`),
    onSample: (sample, slots) => {
      errors.set(sample.errors);
      lag.set(sample.lag);
      rate.set(sample.producedPerSecond, rate.series('produced'));
      rate.set(sample.consumedPerSecond, rate.series('consumed'));
      for (const role of ['consumer', 'producer'] as const)
        for (const side of ['old', 'new'] as const) {
          const count = slots.filter((one) => one.slot.role === role && one.side === side).length;
          instances.set(count, instances.series(role, side));
        }
      const isNew = slots.filter(({ side }) => side === 'new').length;
      shown = `lag ${sample.lag}, ${sample.errors} unreadable, ${isNew} of ${slots.length} instances new`;
      progress.set(sample.consumed);
    },
  })
    .run()
    .finally(() => progress.done());
}

function orderOf(context: Context, plan: RolloutPlan): UpgradeOrder {
  const { order } = context.settings;
  if (order !== 'any') return order as UpgradeOrder;
  if (plan.order === undefined)
    throw coreError('bad_value', 'no order of this upgrade is safe', {
      next: 'give -order to see what breaks, or -plan for the reasons',
    });
  return plan.order;
}

function report(
  context: Context,
  plan: RolloutPlan,
  order: UpgradeOrder,
  schemas: RegisteredPair,
  outcome: RolloutOutcome,
): number {
  const { settings } = context;
  const { verdict, reason, errors, produced, consumed, timeline, upgraded } = outcome;
  const title = `${settings.format} ${settings['from-version']} to ${settings['to-version']}, ${settings.mode}, ${order}`;
  if (settings.plot !== undefined && settings.plot !== '')
    writeFileSync(settings.plot, rolloutPlot(`${title}: ${verdict}`, outcome.samples, timeline));
  const lines = timeline.map(
    ({ atMs, kind, text }) => `${(atMs / 1000).toFixed(1).padStart(7)} s  ${kind.padEnd(8)}  ${text}`,
  );
  context.print(
    [
      ...lines,
      `${title}: ${verdict}${reason === undefined ? '' : ` (${reason})`}; ${produced} produced, ${consumed} consumed, ${errors} unreadable`,
    ].join('\n'),
    {
      verdict,
      reason: reason ?? null,
      order,
      mode: settings.mode,
      accepted: schemas.accepted,
      plan,
      produced,
      consumed,
      errors,
      upgraded,
      timeline,
    },
  );
  if (verdict === 'upgraded') return EXIT.done;
  return verdict === 'failed' || verdict === 'interrupted' ? ROLLOUT_EXIT.failed : EXIT.no;
}

async function run(context: Context): Promise<number> {
  const { settings, clock } = context;
  if (settings.subject !== undefined && !settings.plan)
    throw coreError('usage', '-subject needs -plan: a fleet registers its schemas on a subject of its own', {
      next: 'add -plan, or leave -subject out',
    });
  const { from, to } = await schemasOf(context);
  const plan = planRollout(from, to, settings.mode as Level);
  if (settings.plan) {
    const isSafe = plan.accepted && plan.safe.some((one) => ['any', one].includes(settings.order));
    context.print(planText(plan), plan);
    return isSafe ? EXIT.done : EXIT.no;
  }
  const { brokers } = settings;
  if (brokers === undefined)
    throw coreError('usage', 'a rollout needs -brokers', { next: 'give -brokers=host:port, or -plan' });
  if (!plan.accepted && settings.refused === 'stop') {
    context.print(planText(plan), { verdict: 'refused', plan });
    return ROLLOUT_EXIT.refused;
  }
  const order = orderOf(context, plan);
  const { processes, dir } = startProcesses(context);
  const registry = await openRegistry(context, processes);
  const client = registryClient({ ...context, settings: { ...settings, registry } });
  const topic = `millrace-rollout-${randomBytes(4).toString('hex')}`;
  const schemas = await registerPair(client, topic, settings.mode as Level, from, to);
  const slots = slotsOf(context, topic);
  const names = new Set(slots.flatMap(({ group }) => (group === undefined ? [] : [group])));
  const groups = await openTopic(context, brokers, topic, [...names]);
  const world = processFleet({
    processes,
    dir: join(dir, 'schemas'),
    clock,
    brokers,
    registry,
    format: settings.format as OrderFormat,
    topic,
    partitions: settings.partitions,
    schemas,
    rate: settings.rate / settings.producers,
    groups,
  });
  context.setReady();
  const outcome = await upgrade(context, { world, slots, order });
  if (outcome.verdict === 'failed') context.say(`the logs of the instances are in ${dir}`);
  else context.onClose(() => rmSync(dir, { recursive: true, force: true }));
  return report(context, plan, order, schemas, outcome);
}

export const command = defineCommand({
  name: 'rollout',
  summary: 'Upgrade a live fleet from one schema to another, instance by instance, and watch it.',
  description: `
Starts producers and consumers on the old schema under load, replaces one process after the other, and watches
unreadable records, lag and throughput. At the first unreadable record it returns to the old version.

  millrace rollout -plan -from-version=old.avsc -to-version=new.avsc -mode=FORWARD
  millrace rollout -brokers=localhost:9092 -from-version=3 -to-version=4 -order=consumers-first -plot=rollout.svg
  millrace rollout -brokers=localhost:9092 -from-version=3 -to-version=4 -order=producers-first`,
  settings: ROLLOUT_SETTINGS,
  exits: {
    [ROLLOUT_EXIT.refused]: 'the mode refuses the new schema',
    [ROLLOUT_EXIT.failed]: 'an instance failed, or the rollout was stopped before its end',
  },
  run,
});
