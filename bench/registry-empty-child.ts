/** Baseline of the registry's HTTP backend: a matched route and a fixed answer. Sends its port to
 *  the parent and ends with it. */

import { silentLogger } from '../src/core/log.ts';
import { Metrics } from '../src/core/metrics.ts';
import { httpDriver } from '../src/shell/drivers.ts';

const driver = await httpDriver(
  { log: silentLogger, metrics: new Metrics() },
  { asked: process.argv[2] ?? 'auto', tls: false, loopback: true, needs: [] },
);
const answer = {
  status: 200,
  headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
  body: '{}',
};
const server = await driver.listen({
  host: '127.0.0.1',
  port: 0,
  routes: [{ method: 'GET', path: '/schemas/ids/{id}', handler: () => answer }],
  bodyBytesMax: 1 << 20,
  headerBytesMax: 16 << 10,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 60_000,
  log: silentLogger,
});
process.once('disconnect', () => process.exit(0));
process.send?.(server.port);
