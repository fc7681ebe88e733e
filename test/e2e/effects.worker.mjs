/** Runner of effects in a process of its own, which a test kills in the middle of a call.
 *  Arguments: root of the repository, database, provider, delivery, options of retries as JSON. */
import { pathToFileURL } from 'node:url';

const [root, postgres, provider, delivery, retry] = process.argv.slice(2);
const from = (name) => import(pathToFileURL(`${root}/dist/src/${name}.js`).href);
const { EffectRunner } = await from('outbox/index');
const { Metrics, openSql, silentLogger, systemClock, systemRandom } = await from('drivers');
const sql = await openSql();
const pool = await sql.connect({
  url: postgres,
  connectionsMax: 2,
  applicationName: 'effects worker',
  connectTimeoutMs: 60_000,
});
const call = async ({ id }, signal) => {
  const response = await fetch(provider, { method: 'POST', headers: { 'idempotency-key': id }, signal });
  return response.json();
};
const runner = new EffectRunner({
  pool,
  table: 'effects',
  handlers: { pay: { call, delivery, timeoutMs: 600_000, retry: JSON.parse(retry) } },
  clock: systemClock,
  random: systemRandom,
  metrics: new Metrics(),
  log: { ...silentLogger, warn: (fields) => console.log(JSON.stringify(fields)) },
  drain: new AbortController().signal,
  leaseMs: 500,
  pollMs: 20,
});
await runner.run();
