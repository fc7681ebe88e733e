/** `millrace rollout`: upgrades a live fleet of producers and consumers, instance by instance. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { coreError, EXIT } from '../core/errors.ts';
import { environmentName } from '../core/settings.ts';
import type { Schema } from '../formats/schema.ts';
import type { OrderFormat } from '../gen/order-versions.ts';
import type { Level } from '../registry/compatibility/modes.ts';
import type { FleetSlot, RolloutOutcome, UpgradeOrder } from '../registry/rollout/model.ts';
import { planRollout, type RolloutPlan } from '../registry/rollout/plan.ts';
import { rolloutPlot } from '../registry/rollout/plot.ts';
import { Rollout } from '../registry/rollout/run.ts';
import type { RegistryClient } from '../serde/client.ts';
import { brokerEnvironment } from '../shell/broker-settings.ts';
import { Processes } from '../shell/children/processes.ts';
import { ready } from '../shell/children/ready.ts';
import { type CommandContext, defineCommand } from '../shell/command.ts';
import { registryClient, topicName } from './registry-clients/shared.ts';
import { isDrained } from './rollout/drained.ts';
import { startOf, userFlagsOf } from './rollout/fleets.ts';
import { levelOf, type RegisteredPair, registerPair, schemaOf, versionPair } from './rollout/schemas.ts';
import { ROLLOUT_SETTINGS } from './rollout/settings.ts';
import { openTopic } from './rollout/topic.ts';
import { watchRollout } from './rollout/watch.ts';

type Context = CommandContext<typeof ROLLOUT_SETTINGS>;
type RolloutOptions = ConstructorParameters<typeof Rollout>[0];

const ROLLOUT_EXIT = { refused: 4, failed: 5 } as const;
const END_GRACE_MS = 10_000;
/** Share of the rate that the lag of one group may reach between two steps, in seconds. */
const LAG_SECONDS = 10;
const REGISTRY_DEFAULT = 'http://127.0.0.1:8081';

/** The two schemas and the plan. */
interface Upgrade {
  readonly plan: RolloutPlan;
  readonly format: OrderFormat;
  readonly mode: Level;
  /** True: the schemas are versions of -subject, and nothing is registered. */
  readonly isRegistered: boolean;
  /** Returns the places of both schemas, after registering them on subjects of this run. */
  readonly pair: (registry: string, name: string) => Promise<RegisteredPair>;
}

const clientOf = (context: Context, registry: string): RegistryClient =>
  registryClient({ ...context, settings: { ...context.settings, registry } });

const isVersion = (text: string): boolean => /^(\d+|latest)$/.test(text);

/** Subject of registered versions; undefined: the schemas are versions of Order or files. */
const subjectOf = ({ settings }: Context): string | undefined =>
  settings.plan || settings['old-command'] !== undefined ? settings.subject : undefined;

async function upgradeOf(context: Context): Promise<Upgrade> {
  const { settings } = context;
  const [from, to] = [settings['from-version'], settings['to-version']];
  const subject = subjectOf(context);
  const registered = clientOf(context, settings.registry ?? REGISTRY_DEFAULT);
  const known =
    subject === undefined || context.isFlag('mode') ? undefined : await levelOf(registered, subject);
  const mode = known ?? (settings.mode as Level);
  if (subject !== undefined && !settings.plan) {
    const { from: old, to: next, pair } = await versionPair(registered, subject, from, to);
    const format = old.format === 'PROTOBUF' ? 'protobuf' : 'avro';
    const plan = planRollout(old, next, mode);
    return { plan, format, mode, isRegistered: true, pair: () => Promise.resolve(pair) };
  }
  const format = settings.format as OrderFormat;
  const find = async (flag: string, text: string): Promise<Schema> =>
    subject !== undefined && isVersion(text)
      ? (await registered.version(subject, text)).schema
      : schemaOf(flag, text, format);
  const old = await find('-from-version', from);
  const next = await find('-to-version', to);
  const pair = (registry: string, name: string): Promise<RegisteredPair> =>
    registerPair(clientOf(context, registry), name, mode, old, next);
  return { plan: planRollout(old, next, mode), format, mode, isRegistered: false, pair };
}

function planText(plan: RolloutPlan): string {
  return [
    `order: ${plan.order ?? 'none is safe'}${plan.safe.length > 1 ? ' (any order is safe)' : ''}`,
    ...plan.why.map((line) => `  ${line}`),
    ...plan.steps.map((step, index) => `${index + 1}. ${step}`),
  ].join('\n');
}

function slotsOf({ settings }: Context, topic: string): readonly FleetSlot[] {
  const numbers = (count: number): readonly number[] => Array.from({ length: count }, (_, i) => i + 1);
  const given = settings['group-names'] ?? [];
  const groups = given.length > 0 ? given : numbers(settings.groups).map((group) => `${topic}-g${group}`);
  return [
    ...groups.flatMap((group, at) =>
      numbers(settings.consumers).map((index): FleetSlot => {
        return { name: `consumer-g${at + 1}-${index}`, role: 'consumer', group };
      }),
    ),
    ...numbers(settings.producers).map(
      (index): FleetSlot => ({ name: `producer-${index}`, role: 'producer' }),
    ),
  ];
}

/** Environment of the children; it holds the secrets, because other users can see arguments. */
function childEnvironment({ settings }: Context): Readonly<Record<string, string | undefined>> {
  return {
    ...process.env,
    ...brokerEnvironment(settings['broker-property']),
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

/** Address of the given registry, or of one in memory that ends with this run.
 *  @param isRegistered true: the schemas are versions that a registry has already */
async function openRegistry(context: Context, processes: Processes, isRegistered: boolean): Promise<string> {
  const { registry } = context.settings;
  if (registry !== undefined) return registry;
  if (isRegistered) return REGISTRY_DEFAULT;
  const args = ['registry', '-store=memory', '-listen=127.0.0.1:0', '-log-level=warn'];
  return `http://${await ready('registry', processes.spawn('registry', args))}`;
}

/** Runs the fleet under the gauges and lines of this command. */
async function upgrade(
  context: Context,
  title: string,
  options: Pick<RolloutOptions, 'world' | 'slots' | 'order'>,
): Promise<RolloutOutcome> {
  const { settings, clock, drain } = context;
  const groups = new Set(options.slots.flatMap(({ group }) => (group === undefined ? [] : [group])));
  const lagMax = settings['lag-max'] || settings.rate * LAG_SECONDS * groups.size;
  const watch = watchRollout(context, title);
  try {
    return await new Rollout({
      ...options,
      clock,
      drain,
      rollback: settings.rollback === 'on',
      stepMs: settings.duration / (options.slots.length + 2),
      sampleMs: settings['sample-every'],
      lagMax,
      settleMs: settings['settle-timeout'],
      surge: settings.surge,
      onEntry: watch.onEntry,
      onSample: watch.onSample,
    }).run();
  } finally {
    watch.done();
  }
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
  { plan, mode }: Upgrade,
  order: UpgradeOrder,
  title: string,
  place: RegisteredPair['place'],
  outcome: RolloutOutcome,
): number {
  const { settings } = context;
  const { verdict, reason, errors, produced, consumed, timeline, upgraded } = outcome;
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
      mode,
      accepted: plan.accepted,
      registered: place,
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

function showPlan(context: Context, { plan }: Upgrade): number {
  const { order } = context.settings;
  const isSafe = plan.accepted && plan.safe.some((one) => ['any', one].includes(order));
  context.print(planText(plan), plan);
  return isSafe ? EXIT.done : EXIT.no;
}

/** Starts the fleet and upgrades it. */
async function runFleet(context: Context, known: Upgrade, brokers: string): Promise<number> {
  const { settings, clock } = context;
  const order = orderOf(context, known.plan);
  const own = userFlagsOf(settings);
  const { processes, dir } = startProcesses(context);
  const registry = await openRegistry(context, processes, known.isRegistered);
  const given = own === undefined ? undefined : settings.topic;
  const topic =
    given === undefined ? `millrace-rollout-${randomBytes(4).toString('hex')}` : topicName('-topic', given);
  const schemas = await known.pair(registry, topic);
  const slots = slotsOf(context, topic);
  const names = new Set(slots.flatMap(({ group }) => (group === undefined ? [] : [group])));
  const opened = await openTopic(context, brokers, topic, given === undefined, [...names]);
  const start = startOf(context, {
    processes,
    dir,
    own,
    brokers,
    registry,
    topic,
    schemas,
    format: known.format,
    env: childEnvironment(context),
  });
  context.setReady();
  const title = `${known.format} ${settings['from-version']} to ${settings['to-version']}, ${known.mode}, ${order}`;
  const outcome = await upgrade(context, title, {
    world: { start, drained: (timeoutMs, signal) => isDrained({ clock, ...opened }, timeoutMs, signal) },
    slots,
    order,
  });
  if (outcome.verdict === 'failed') context.say(`the logs of the instances are in ${dir}`);
  else context.onClose(() => rmSync(dir, { recursive: true, force: true }));
  return report(context, known, order, title, schemas.place, outcome);
}

async function run(context: Context): Promise<number> {
  const { settings } = context;
  const known = await upgradeOf(context);
  if (settings.plan) return showPlan(context, known);
  const { brokers } = settings;
  if (brokers === undefined)
    throw coreError('usage', 'a rollout needs -brokers', { next: 'give -brokers=host:port, or -plan' });
  if (!known.plan.accepted && !known.isRegistered && settings.refused === 'stop') {
    context.print(planText(known.plan), { verdict: 'refused', plan: known.plan });
    return ROLLOUT_EXIT.refused;
  }
  return runFleet(context, known, brokers);
}

export const command = defineCommand({
  name: 'rollout',
  summary: 'Upgrade a live fleet from one schema to another, instance by instance, and watch it.',
  description: `
Starts producers and consumers on the old schema under load, replaces one process after the other, and watches
unreadable records, lag and throughput. At the first unreadable record it returns to the old version. The processes
are producer and consumer of Millrace, or your own: -old-command and -new-command start them, -ready-path tells when
they work, and the flags ending in -metric name what they count. They end with rollout, also when it is killed.

  millrace rollout -plan -from-version=old.avsc -to-version=new.avsc -mode=FORWARD
  millrace rollout -brokers=localhost:9092 -from-version=3 -to-version=4 -order=consumers-first -plot=rollout.svg
  millrace rollout -brokers=localhost:9092 -from-version=3 -to-version=4 -order=producers-first
  millrace rollout -brokers=localhost:9092 -from-version=old.avsc -to-version=new.avsc -errors-metric=failed_total \\
    -old-command='node old.js --port={port} --{role}' -new-command='node new.js --port={port} --{role}'`,
  settings: ROLLOUT_SETTINGS,
  exits: {
    [ROLLOUT_EXIT.refused]: 'the mode refuses the new schema',
    [ROLLOUT_EXIT.failed]: 'an instance failed, or the rollout was stopped before its end',
  },
  run,
});
