/** Choice of the fleet: Millrace's own commands, or those of the user. */
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import type { SettingsOf } from '../../core/settings.ts';
import type { FleetSlot, Side } from '../../registry/rollout/model.ts';
import type { Processes } from '../../shell/children/processes.ts';
import type { CommandContext } from '../../shell/command.ts';
import { ProcessGroups } from '../user-processes/groups.ts';
import { splitCommand } from './command-line.ts';
import { processFleet, type StartInstance, writeSchemas } from './fleet.ts';
import type { FleetMetrics } from './page.ts';
import type { RegisteredPair } from './schemas.ts';
import { type MetricSelector, metricSelector } from './selector.ts';
import type { ROLLOUT_SETTINGS } from './settings.ts';
import { type FleetCommands, userFleet } from './user-fleet.ts';

type Context = CommandContext<typeof ROLLOUT_SETTINGS>;

/** Metrics of Millrace's producer and consumer commands. */
const OWN_METRICS = {
  errors: 'deserialize_errors_total',
  produced: 'produced_records_total',
  consumed: 'consumed_records_total',
  lag: 'consumer_lag_records',
} as const;

/** Fleet of the user, as the flags describe it. */
export interface UserFlags {
  readonly commands: FleetCommands;
  readonly metrics: FleetMetrics;
}

/** Reads the flags of a user's fleet, before anything is started; undefined: Millrace's commands.
 *  @throws bad_value, usage */
export function userFlagsOf(settings: SettingsOf<typeof ROLLOUT_SETTINGS>): UserFlags | undefined {
  const commands = commandsOf(settings);
  return commands === undefined ? undefined : { commands, metrics: metricsOf(settings) };
}

function commandsOf(settings: SettingsOf<typeof ROLLOUT_SETTINGS>): FleetCommands | undefined {
  const [old, next] = [settings['old-command'], settings['new-command']];
  if (old === undefined) return undefined;
  if (next === undefined)
    throw coreError('usage', '-old-command needs -new-command', {
      next: 'give the command line of the new version',
    });
  const producers = {
    old: settings['old-producer-command'] ?? old,
    new: settings['new-producer-command'] ?? next,
  };
  return {
    consumer: { old: splitCommand('-old-command', old), new: splitCommand('-new-command', next) },
    producer: {
      old: splitCommand('-old-producer-command', producers.old),
      new: splitCommand('-new-producer-command', producers.new),
    },
  };
}

export interface FleetParts {
  readonly processes: Processes;
  /** Folder of this run. */
  readonly dir: string;
  /** Undefined: the fleet is Millrace's. */
  readonly own: UserFlags | undefined;
  readonly brokers: string;
  readonly registry: string;
  readonly topic: string;
  readonly schemas: RegisteredPair;
  readonly format: 'avro' | 'protobuf';
  readonly env: Readonly<Record<string, string | undefined>>;
}

function metricsOf(settings: SettingsOf<typeof ROLLOUT_SETTINGS>): FleetMetrics {
  const of = (flag: keyof typeof settings & string): MetricSelector | undefined =>
    metricSelector(`-${flag}`, String(settings[flag]));
  const errors = of('errors-metric');
  if (errors === undefined)
    throw coreError('bad_value', '-errors-metric is empty', {
      next: 'name the counter of the records that a consumer cannot read',
    });
  return {
    errors,
    produced: of('produced-metric'),
    consumed: of('consumed-metric'),
    lag: of('lag-metric'),
  };
}

/** Returns the function that starts an instance. The instances end with the command. */
export function startOf(context: Context, parts: FleetParts): StartInstance {
  const { settings, clock } = context;
  const { dir, own, brokers, registry, topic, schemas } = parts;
  const rate = settings.rate / settings.producers;
  const stopMs = settings['stop-timeout'];
  const folder = join(dir, 'schemas');
  if (own === undefined) {
    const named = Object.entries(OWN_METRICS).map(
      ([count, name]) => [count, metricSelector('-', name)] as const,
    );
    return processFleet({
      ...parts,
      dir: folder,
      clock,
      partitions: settings.partitions,
      instances: settings.instances,
      rate,
      metrics: Object.fromEntries(named) as FleetMetrics,
      stopMs,
    });
  }
  const files = writeSchemas(folder, schemas);
  return userFleet({
    groups: openGroups(context, dir),
    clock,
    ...own,
    env: parts.env,
    readyPath: settings['ready-path'],
    metricsPath: settings['metrics-path'],
    readyMs: settings['ready-timeout'],
    stopMs,
    valuesOf: (slot: FleetSlot, side: Side) => ({
      instance: `${slot.name}-${side}`,
      role: slot.role,
      version: side,
      brokers,
      topic,
      group: slot.group ?? '',
      registry,
      subject: schemas[side].subject,
      schema_version: String(schemas[side].version),
      schema_id: String(schemas[side].id),
      schema_file: files[side],
      rate: String(Math.max(1, Math.round(rate))),
    }),
  });
}

function openGroups(context: Context, dir: string): ProcessGroups {
  const groups = new ProcessGroups(dir, context.clock);
  const killNow = (): void => groups.killNow();
  process.once('exit', killNow);
  context.onClose(async () => {
    await groups.end(context.settings['stop-timeout']);
    process.removeListener('exit', killNow);
  });
  return groups;
}
