/** Selects the driver of each port; no other module does. Drivers are loaded on first use, so a
 *  command without a broker loads no broker driver. With `-native=off` (MILLRACE_NATIVE=off) the
 *  addon is never loaded. */

import { chooseNative, loadKernels } from '../addon/load.ts';
import type { Kernels } from '../addon/surface.ts';
import type { WindowKernels } from '../addon/window-surface.ts';
import { loadWindowKernels } from '../addon/windows.ts';
import { coreError } from '../core/errors.ts';
import type { RowForm } from '../core/layout/row-form.ts';
import type { Logger } from '../core/log.ts';
import type { Gauge, Metrics } from '../core/metrics.ts';
import type { Properties } from '../core/settings.ts';
import { openBroker, openKv } from '../drivers.ts';
import type { HttpCapability, HttpDriver } from '../io/http/port.ts';
import { configured } from '../io/kafka/configured.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { LockDriver } from '../io/lock/port.ts';
import type { SqlDriver } from '../io/postgres/sql/port.ts';
import type { KvDriver } from '../io/rocksdb/port.ts';

/** Part of a command's context that selects drivers; every CommandContext implements it. */
export interface DriverContext {
  /** `on`, `off` or `auto`. */
  readonly settings: {
    readonly native: string;
    /** Properties of every Kafka client; none for a command without the broker settings. */
    readonly 'broker-property'?: Properties;
    /** `librdkafka` or `direct`; librdkafka for a command without the setting. */
    readonly 'broker-client'?: string;
  };
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Undefined for a command that serves nothing; its drivers are logged at level debug. */
  readonly address?: unknown;
}

/** True if the addon is used. */
export function runsNative(context: Pick<DriverContext, 'settings'>): boolean {
  return chooseNative(context.settings.native).mode === 'native';
}

/** Gauge that is 0 until the addon is requested and loaded. */
export function addonGauge(metrics: Metrics): Gauge {
  return metrics.gauge(
    'native_addon_loaded',
    '1 when the C++ addon runs, 0 when the TypeScript reference implementation does.',
  );
}

/** Logs the selected driver; a warning if `auto` fell back to the reference implementation. */
function logChoice(context: DriverContext, port: string, driver: string): void {
  const { mode, reason, warn } = chooseNative(context.settings.native);
  addonGauge(context.metrics).set(mode === 'native' ? 1 : 0);
  const level = warn ? 'warn' : context.address === undefined ? 'debug' : 'info';
  context.log[level]({ port, driver, mode, reason }, 'driver chosen');
}

/** Opens the broker driver: batches through the addon, or node-rdkafka on the main thread. Its
 *  clients have the properties of -broker-config and -broker-property. */
export async function brokerDriver(context: DriverContext): Promise<BrokerDriver> {
  const properties = context.settings['broker-property'] ?? {};
  if (context.settings['broker-client'] === 'direct')
    return configured(await directOrLibrdkafka(context, properties), properties);
  const driver = await openBroker(runsNative(context) ? 'on' : 'off');
  logChoice(context, 'broker', driver.name);
  return configured(driver, properties);
}

/** Opens the direct client, or librdkafka where the direct client cannot serve, with a warning.
 *  @throws bad_value without the addon */
async function directOrLibrdkafka(context: DriverContext, properties: Properties): Promise<BrokerDriver> {
  if (!runsNative(context))
    throw coreError('bad_value', '-broker-client=direct needs the addon, which does not run', {
      next: 'run with MILLRACE_NATIVE=on, or leave -broker-client out',
    });
  const { missingDirectClient } = await import('../io/kafka/direct/driver.ts');
  const { directObstacle } = await import('../io/kafka/direct/obstacle.ts');
  const obstacle = missingDirectClient() ?? directObstacle(properties);
  const driver = await openBroker('on', undefined, obstacle === undefined ? 'direct' : 'librdkafka');
  addonGauge(context.metrics).set(1);
  const reason = obstacle === undefined ? 'requested' : `not the direct client: ${obstacle}`;
  context.log[obstacle === undefined ? 'info' : 'warn'](
    { port: 'broker', driver: driver.name, mode: 'native', reason },
    'driver chosen',
  );
  return driver;
}

/** Opens the RocksDB driver: the state addon, or the npm package. */
export async function kvDriver(context: DriverContext): Promise<KvDriver> {
  const { native } = context.settings;
  const driver = await openKv(native === 'on' || native === 'off' ? native : 'auto');
  context.log.debug({ port: 'kv', driver: driver.name }, 'driver chosen');
  return driver;
}

/** Opens the driver of folder locks: the addon, or flock(1). */
export async function lockDriver(context: Pick<DriverContext, 'settings'>): Promise<LockDriver> {
  const { flockDriver } = await import('../io/lock/flock.ts');
  return flockDriver(runsNative(context) ? 'native' : 'reference');
}

export async function sqlDriver(context: DriverContext): Promise<SqlDriver> {
  const { pgDriver } = await import('../io/postgres/sql/pg.ts');
  context.log.debug({ port: 'sql', driver: pgDriver.name }, 'driver chosen');
  return pgDriver;
}

/** Criteria for the HTTP backend. */
export interface HttpChoice {
  /** `node`, `net`, `uws` or `auto`. */
  readonly asked: string;
  readonly tls: boolean;
  /** True if -listen is a loopback address. */
  readonly loopback: boolean;
  /** Features that the command needs; undefined: unspecified. */
  readonly needs: readonly HttpCapability[] | undefined;
}

/** Gauge that is 0 until uWebSockets.js serves. */
function uwsGauge(metrics: Metrics): Gauge {
  return metrics.gauge(
    'http_backend_uws',
    '1 when uWebSockets.js serves -listen, 0 when another backend does.',
  );
}

/** Returns the reason why the driver lacks a needed feature; undefined: it lacks none. */
function missingFeature(driver: HttpDriver, choice: HttpChoice): string | undefined {
  const lacking = choice.needs?.find((need) => driver.limits[need] !== undefined);
  return lacking === undefined ? undefined : `the command needs ${lacking}: ${driver.limits[lacking]}`;
}

/** Selects the HTTP backend.
 *  @param load loads uWebSockets.js; absent: the binary for this Node.js
 *  @throws bad_value if -http=uws cannot serve this run, addon_missing if it does not load */
export async function httpDriver(
  context: Pick<DriverContext, 'log' | 'metrics'>,
  choice: HttpChoice,
  load?: () => unknown,
): Promise<HttpDriver> {
  const { driver, reason, warn } = await chooseHttp(choice, load);
  uwsGauge(context.metrics).set(driver.name === 'uWebSockets.js' ? 1 : 0);
  // A command that serves only its metrics makes no choice worth logging.
  const stated = choice.asked !== 'auto' || choice.needs !== undefined;
  const level = warn ? 'warn' : stated ? 'info' : 'debug';
  context.log[level]({ port: 'http', driver: driver.name, reason }, 'driver chosen');
  return driver;
}

async function chooseHttp(
  choice: HttpChoice,
  load: (() => unknown) | undefined,
): Promise<{ readonly driver: HttpDriver; readonly reason: string; readonly warn?: boolean }> {
  const { asked, tls, loopback, needs } = choice;
  if (asked === 'node')
    return { driver: (await import('../io/http/node/server.ts')).nodeHttpDriver, reason: 'requested' };
  const { wireDriver } = await import('../io/http/http1/server.ts');
  if (asked === 'net') return { driver: wireDriver, reason: 'requested' };
  const isAuto = asked === 'auto';
  if (isAuto && needs === undefined)
    return {
      driver: wireDriver,
      reason: 'it has the most features, and this command does not need the fastest backend',
    };
  const { uwsDriver } = await import('../io/http/uws/server.ts');
  const obstacle = missingFeature(uwsDriver, choice) ?? (tls ? 'it serves no TLS' : undefined);
  if (obstacle !== undefined && !isAuto) {
    throw coreError('bad_value', `-http=uws cannot serve this: ${obstacle}`, {
      next: 'run with -http=net, or leave it to -http=auto',
    });
  }
  const remote = isAuto && !loopback ? '-listen is not a loopback address' : undefined;
  const reason = obstacle ?? remote;
  if (reason !== undefined) return { driver: wireDriver, reason: `not uWebSockets.js: ${reason}` };
  const loadBinary = load ?? (await import('../io/http/uws/load.ts')).loadUws;
  try {
    loadBinary();
  } catch (thrown) {
    if (!isAuto) throw thrown;
    return { driver: wireDriver, reason: (thrown as Error).message, warn: true };
  }
  return { driver: uwsDriver, reason: isAuto ? 'the fastest on a loopback address' : 'requested' };
}

/** Loads the kernels of the window engine for rows of a form: the addon, or the TypeScript
 *  reference implementation. */
export function windowKernels(context: Pick<DriverContext, 'settings'>, form?: RowForm): WindowKernels {
  return loadWindowKernels(runsNative(context) ? 'native' : 'reference', form);
}

/** Loads the kernels: the addon, or the TypeScript reference implementation. The addon
 *  decodes events by one thread a shard. */
export function kernels(context: DriverContext, shards = 1): Kernels {
  const loaded = loadKernels(runsNative(context) ? 'native' : 'reference', shards);
  logChoice(context, 'kernels', loaded.name);
  return loaded;
}
