/** Which driver stands behind each port: the one place that chooses. Drivers are loaded at first
 *  use, so a command that needs no broker loads none; with `-native=off` (MILLRACE_NATIVE=off) the
 *  addon is never touched. */

import { chooseNative, loadKernels } from '../addon/load.ts';
import type { Kernels } from '../addon/surface.ts';
import type { WindowKernels } from '../addon/window-surface.ts';
import { loadWindowKernels } from '../addon/windows.ts';
import { coreError } from '../core/errors.ts';
import type { Logger } from '../core/log.ts';
import type { Gauge, Metrics } from '../core/metrics.ts';
import { openBroker, openKv } from '../drivers.ts';
import type { HttpCapability, HttpDriver } from '../io/http/port.ts';
import type { BrokerDriver } from '../io/kafka/port.ts';
import type { LockDriver } from '../io/lock/port.ts';
import type { SqlDriver } from '../io/postgres/sql/port.ts';
import type { KvDriver } from '../io/rocksdb/port.ts';

/** The part of a command's context that decides; every CommandContext fits. */
export interface DriverContext {
  /** `on`, `off` or `auto`. */
  readonly settings: { readonly native: string };
  readonly log: Logger;
  readonly metrics: Metrics;
  /** A command that serves nothing says its drivers at level debug only. */
  readonly address?: unknown;
}

/** Whether the addon runs. */
export function runsNative(context: Pick<DriverContext, 'settings'>): boolean {
  return chooseNative(context.settings.native).mode === 'native';
}

/** 0 until a part asks for the addon and gets it. */
export function addonGauge(metrics: Metrics): Gauge {
  return metrics.gauge('native_addon_loaded', '1 when the C++ addon runs, 0 when its TypeScript twins do.');
}

/** Says which one runs; a warning where the twins do though nobody asked for them. */
function note(context: DriverContext, port: string, driver: string): void {
  const { mode, reason, warn } = chooseNative(context.settings.native);
  addonGauge(context.metrics).set(mode === 'native' ? 1 : 0);
  const level = warn ? 'warn' : context.address === undefined ? 'debug' : 'info';
  context.log[level]({ port, driver, mode, reason }, 'driver chosen');
}

/** Whole batches through the addon, or node-rdkafka on the main thread. */
export async function brokerDriver(context: DriverContext): Promise<BrokerDriver> {
  const driver = await openBroker(runsNative(context) ? 'on' : 'off');
  note(context, 'broker', driver.name);
  return driver;
}

/** RocksDB through the state addon, or through the npm package. */
export async function kvDriver(context: DriverContext): Promise<KvDriver> {
  const { native } = context.settings;
  const driver = await openKv(native === 'on' || native === 'off' ? native : 'auto');
  context.log.debug({ port: 'kv', driver: driver.name }, 'driver chosen');
  return driver;
}

/** Folder locks through the addon, or through flock(1). */
export async function lockDriver(context: Pick<DriverContext, 'settings'>): Promise<LockDriver> {
  const { flockDriver } = await import('../io/lock/flock.ts');
  return flockDriver(runsNative(context) ? 'native' : 'reference');
}

export async function sqlDriver(context: DriverContext): Promise<SqlDriver> {
  const { pgDriver } = await import('../io/postgres/sql/pg.ts');
  context.log.debug({ port: 'sql', driver: pgDriver.name }, 'driver chosen');
  return pgDriver;
}

/** What decides about the HTTP backend. */
export interface HttpChoice {
  /** `node`, `net`, `uws` or `auto`. */
  readonly asked: string;
  readonly tls: boolean;
  /** -listen names this machine alone. */
  readonly loopback: boolean;
  /** What the command cannot do without; undefined: no statement. */
  readonly needs: readonly HttpCapability[] | undefined;
}

/** 0 until uWebSockets.js serves. */
function uwsGauge(metrics: Metrics): Gauge {
  return metrics.gauge(
    'http_backend_uws',
    '1 when uWebSockets.js serves -listen, 0 when another backend does.',
  );
}

/** What the command needs and the driver lacks. */
function whyNotFor(driver: HttpDriver, choice: HttpChoice): string | undefined {
  const lacking = choice.needs?.find((need) => driver.limits[need] !== undefined);
  return lacking === undefined ? undefined : `the command needs ${lacking}: ${driver.limits[lacking]}`;
}

/** @param load loads uWebSockets.js; absent: the binary of this Node.js
 *  @throws bad_value where uWebSockets.js is asked for and cannot do it, addon_missing where it
 *  does not load */
export async function httpDriver(
  context: Pick<DriverContext, 'log' | 'metrics'>,
  choice: HttpChoice,
  load?: () => unknown,
): Promise<HttpDriver> {
  const { driver, reason, warn } = await chooseHttp(choice, load);
  uwsGauge(context.metrics).set(driver.name === 'uWebSockets.js' ? 1 : 0);
  // A command that serves its metrics alone has nothing to say about it.
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
    return { driver: (await import('../io/http/node/server.ts')).nodeHttpDriver, reason: 'asked for' };
  const { wireDriver } = await import('../io/http/http1/server.ts');
  if (asked === 'net') return { driver: wireDriver, reason: 'asked for' };
  const isAuto = asked === 'auto';
  if (isAuto && needs === undefined)
    return { driver: wireDriver, reason: 'it lacks least, and this command does not need the fastest' };
  const { uwsDriver } = await import('../io/http/uws/server.ts');
  const obstacle = whyNotFor(uwsDriver, choice) ?? (tls ? 'it serves no TLS' : undefined);
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
  return { driver: uwsDriver, reason: isAuto ? 'the fastest on a loopback address' : 'asked for' };
}

/** The kernels of the window engine, those of the addon or their twins. */
export function windowKernels(context: Pick<DriverContext, 'settings'>): WindowKernels {
  return loadWindowKernels(runsNative(context) ? 'native' : 'reference');
}

/** The kernels of the addon, or their twins. */
export function kernels(context: DriverContext): Kernels {
  const loaded = loadKernels(runsNative(context) ? 'native' : 'reference');
  note(context, 'kernels', loaded.name);
  return loaded;
}
