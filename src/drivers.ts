/** The drivers behind the ports, for a service that uses a product as a library and hands them in:
 *  `millrace/drivers`. Each is loaded when it is asked for, so a service that opens no broker loads
 *  no broker client. What the products need of the process itself (clock, logger, metrics) is here
 *  too. Products never import this file, and it imports none of them.
 */

import { chooseNative } from './addon/load.ts';
import { findStateAddon } from './addon/state.ts';
import type { Random, Timers } from './core/clock.ts';
import type { LogFields, Logger } from './core/log.ts';
import { Metrics } from './core/metrics.ts';
import { systemClock, systemRandom } from './io/clock/system.ts';
import type { HttpClientDriver } from './io/http/client-port.ts';
import type { BrokerConfig } from './io/kafka/config/client.ts';
import { configured } from './io/kafka/configured.ts';
import type { BrokerDriver } from './io/kafka/port.ts';
import type { Exposition as MetricsPage, PromRegistry } from './io/metrics/prom.ts';
import type { ReplicationDriver } from './io/postgres/replication/port.ts';
import type { SqlDriver } from './io/postgres/sql/port.ts';
import type { KvDriver } from './io/rocksdb/port.ts';
import type { WakeDriver } from './io/wake/port.ts';

export type { Cancel, Clock, Random, TimerHold, Timers } from './core/clock.ts';
export { findMillraceError, MillraceError } from './core/errors.ts';
export { RecordBatch } from './core/layout/record-batch.ts';
export { type LogFields, type Logger, silentLogger } from './core/log.ts';
export type { HttpClientDriver } from './io/http/client-port.ts';
export { type BrokerConfig, type BrokerConfigOptions, readBrokerConfig } from './io/kafka/config/client.ts';
export type { BatchConsumer, BatchProducer, BrokerAdmin, BrokerDriver } from './io/kafka/port.ts';
export type { Exposition as MetricsPage, PromRegistry } from './io/metrics/prom.ts';
export type { ReplicationDriver } from './io/postgres/replication/port.ts';
export type { SqlDriver, SqlPool, SqlSession } from './io/postgres/sql/port.ts';
export type { KvDriver, KvStore } from './io/rocksdb/port.ts';
export type { WakeDriver } from './io/wake/port.ts';
export { Metrics, systemClock, systemRandom };

/** Returns the driver of PostgreSQL, on the `pg` package.
 *  @example
 *  const sql = await openSql();
 */
export async function openSql(): Promise<SqlDriver> {
  return (await import('./io/postgres/sql/pg.ts')).pgDriver;
}

/** Client that reads assigned partitions: librdkafka, or the addon itself. */
export type BrokerClient = 'librdkafka' | 'direct';

/** Returns the driver of Kafka, on librdkafka.
 *  @param native `on` whole batches through the addon, `off` node-rdkafka, `auto` the addon where
 *    it loads
 *  @param config properties that all clients of the driver share, from `readBrokerConfig`
 *  @param client `direct`: the addon fetches assigned partitions and reads their record batches in
 *    place; librdkafka serves the rest, and what the direct client cannot. Without the addon the
 *    choice has no effect
 *  @throws bad_value, addon_missing
 *  @example
 *  const broker = await openBroker('auto');
 */
export async function openBroker(
  native: 'on' | 'off' | 'auto' = 'auto',
  config: Pick<BrokerConfig, 'properties'> = { properties: {} },
  client: BrokerClient = 'librdkafka',
): Promise<BrokerDriver> {
  return configured(await brokerDriverOf(native, client), config.properties);
}

async function brokerDriverOf(native: 'on' | 'off' | 'auto', client: BrokerClient): Promise<BrokerDriver> {
  if (chooseNative(native === 'auto' ? undefined : native).mode !== 'native')
    return (await import('./io/kafka/node-rdkafka/driver.ts')).nodeRdkafkaDriver;
  return client === 'direct'
    ? (await import('./io/kafka/direct/driver.ts')).directDriver
    : (await import('./io/kafka/librdkafka.ts')).librdkafkaDriver;
}

/** Returns the driver of RocksDB. A folder must be opened by the driver that made it.
 *  @param native `on` through the state addon, `off` through the package `rocksdb`, `auto` the
 *    addon where it was built. The package runs on no Node.js after 20: there `off` also uses the
 *    addon, where it was built
 *  @throws bad_value
 *  @example
 *  const kv = await openKv();
 */
export async function openKv(native: 'on' | 'off' | 'auto' = 'auto'): Promise<KvDriver> {
  const addon = findStateAddon();
  if (chooseNative(native === 'auto' ? undefined : native, addon).mode === 'reference') {
    const { npmObstacle, rocksdbNpmDriver } = await import('./io/rocksdb/npm.ts');
    if (addon === null || npmObstacle() === undefined) return rocksdbNpmDriver;
  }
  return (await import('./io/rocksdb/addon.ts')).rocksdbDriver;
}

/** Returns the HTTP client: keep-alive connections of node:http.
 *  @example
 *  const http = await openHttpClient();
 */
export async function openHttpClient(): Promise<HttpClientDriver> {
  return (await import('./io/http/client.ts')).nodeHttpClientDriver;
}

/** Returns the driver of PostgreSQL's logical replication, for a relay in wal mode.
 *  @example
 *  const replication = await openReplication();
 */
export async function openReplication(): Promise<ReplicationDriver> {
  return (await import('./io/postgres/replication/pg.ts')).pgReplicationDriver;
}

/** Returns the driver that wakes relays of the same host and user through Unix sockets.
 *  @example
 *  const wake = await openWake();
 */
export async function openWake(): Promise<WakeDriver> {
  return (await import('./io/wake/unix.ts')).unixWake;
}

/** Returns the metrics of a service as a page for Prometheus, which the service itself serves. The
 *  text of a page is cached for 250 ms, so requests may come at any rate.
 *  @param options process: false leaves out the metrics of the Node.js process, where the service
 *    has a prom-client of its own
 *  @example
 *  const page = await openMetricsPage(metrics);
 *  response.setHeader('content-type', page.contentType).end(await page.text());
 */
export async function openMetricsPage(
  metrics: Metrics,
  options: { readonly process?: boolean } = {},
): Promise<MetricsPage> {
  return (await import('./io/metrics/prom.ts')).promExposition(metrics, systemClock, options);
}

/** Adds the metrics of a service to its own registry of prom-client, which then renders both.
 *  Metrics that a part registers later appear there too. Call it once for each pair, before the
 *  parts start.
 *  @param options prefix: beginning of the names in that registry
 *  @throws bad_value: the registry has another metric of a name
 *  @example
 *  import { register } from 'prom-client';
 *  await registerMetrics(metrics, register);
 */
export async function registerMetrics(
  metrics: Metrics,
  registry: PromRegistry,
  options: { readonly prefix?: string } = {},
): Promise<void> {
  (await import('./io/metrics/prom.ts')).registerIn(metrics, registry, systemClock, options.prefix);
}

/** Returns the defaults of a service that uses the library: drivers, metrics, and warnings on
 *  stderr.
 *  @param config properties of the Kafka clients, from `readBrokerConfig`
 *  @example
 *  const [brokers, postgres] = ['localhost:9092', 'postgres://localhost/shop'];
 *  const options = { name: 'shipping', schema: 'shipping', postgres, brokers };
 *  const service = await Service.open({ ...(await openDrivers()), ...options });
 */
export async function openDrivers(config?: Pick<BrokerConfig, 'properties'>): Promise<{
  readonly sql: SqlDriver;
  readonly broker: BrokerDriver;
  readonly replication: ReplicationDriver;
  readonly clock: Timers;
  readonly random: Random;
  readonly metrics: Metrics;
  readonly log: Logger;
}> {
  return {
    sql: await openSql(),
    broker: await openBroker('auto', config),
    replication: await openReplication(),
    clock: systemClock,
    random: systemRandom,
    metrics: new Metrics(),
    log: stderrLogger('warn'),
  };
}

/** Returns a logger that writes a line of JSON to stderr for each message from a level on.
 *  @param fields fields of every line
 *  @example
 *  const log = stderrLogger('info', { service: 'shipping' });
 */
export function stderrLogger(level: 'debug' | 'info' | 'warn' | 'error', fields: LogFields = {}): Logger {
  const levels = ['debug', 'info', 'warn', 'error'] as const;
  const write = (at: (typeof levels)[number]) => (more: LogFields, message: string) => {
    if (levels.indexOf(at) < levels.indexOf(level)) return;
    const line = { time: new Date().toISOString(), level: at, ...fields, ...more, message };
    process.stderr.write(`${JSON.stringify(line)}\n`);
  };
  return {
    debug: write('debug'),
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
    child: (more) => stderrLogger(level, { ...fields, ...more }),
  };
}
