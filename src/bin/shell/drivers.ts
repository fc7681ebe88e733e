/** Which driver stands behind each port: the one place that chooses. Drivers are loaded at first use, so a command
 *  that needs no broker loads none; with `-native=off` (MILLRACE_NATIVE=off) the addon is never touched. */
import type { Logger } from '../../core/log.ts';
import type { Gauge, Metrics } from '../../core/metrics.ts';
import type { BrokerDriver } from '../../io/broker/port.ts';
import type { HttpDriver } from '../../io/http/port.ts';
import type { SqlDriver } from '../../io/sql/port.ts';
import { chooseNative, loadKernels } from '../../native/load.ts';
import type { Kernels } from '../../native/surface.ts';

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
  const driver = runsNative(context)
    ? (await import('../../io/broker/librdkafka.ts')).librdkafkaDriver
    : (await import('../../io/broker/node-rdkafka.ts')).nodeRdkafkaDriver;
  note(context, 'broker', driver.name);
  return driver;
}

export async function sqlDriver(context: DriverContext): Promise<SqlDriver> {
  const { pgDriver } = await import('../../io/sql/pg.ts');
  context.log.debug({ port: 'sql', driver: pgDriver.name }, 'driver chosen');
  return pgDriver;
}

export async function httpDriver(context: DriverContext): Promise<HttpDriver> {
  const { nodeHttpDriver } = await import('../../io/http/node.ts');
  context.log.debug({ port: 'http', driver: nodeHttpDriver.name }, 'driver chosen');
  return nodeHttpDriver;
}

/** The kernels of the addon, or their twins. */
export function kernels(context: DriverContext): Kernels {
  const loaded = loadKernels(runsNative(context) ? 'native' : 'reference');
  note(context, 'kernels', loaded.name);
  return loaded;
}
