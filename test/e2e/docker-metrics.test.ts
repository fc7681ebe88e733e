/** Checks that the commands serve every metric that the dashboards and alert rules of docker/ name.
 *  Runs real processes on the shared stack and scrapes them as Prometheus does. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { Metrics } from '../../src/core/metrics.ts';
import { append } from '../../src/demo/contracts/topic.ts';
import { type MetricsPage, openDrivers, openMetricsPage } from '../../src/drivers.ts';
import { Service } from '../../src/outbox/service.ts';
import { startConsumer } from '../fixtures/consumer.ts';
import { countingProxy } from '../fixtures/counting-proxy.ts';
import { startEngine } from '../fixtures/engine.ts';
import { startOrders } from '../fixtures/orders.ts';
import { startPayments } from '../fixtures/payments.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { startRegistry } from '../fixtures/registry.ts';
import { startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';
import { everyExpression, registeredLabels, served, usesOf } from '../repository/monitoring.ts';
import { repositoryFiles } from '../repository/root.ts';
import { until } from '../wait.ts';

const own = launcher();
const stack = await sharedStack();
const id = own.suffix;
const slot = `docker_metrics_${id}`;
/** Labels that Prometheus adds to every sample. */
const ADDED = new Set(['job', 'instance']);
/** Metrics of Prometheus itself. */
const OWN_METRICS = new Set(['up']);
/** Limit in ms. A logical slot is created only after every transaction that was open on the shared
 *  server has ended. */
const COVERED_WITHIN_MS = 180_000;

const ORDER_SCHEMA = {
  type: 'record',
  name: 'Order',
  fields: [
    { name: 'order_id', type: 'string' },
    { name: 'account_id', type: 'long' },
    { name: 'amount_cents', type: 'long' },
  ],
};

/** Id that the registry does not give. */
const UNKNOWN_ID = 0x7f00;
const onClose: Array<() => void> = [];

const queries = everyExpression().map((one) => ({ ...one, ...usesOf(one.expression) }));

/** Service of the library in this process, and its page of metrics. */
let service: Service | undefined;
let servicePage: MetricsPage | undefined;

/** Metrics text by job; the texts of all processes of a job are concatenated. */
const scraped = new Map<string, string>();
const processes: Array<readonly [job: string, child: Running]> = [];

/** Lists metrics that a query names and its job does not serve; without a job, that no job
 *  serves. */
function missing(): readonly string[] {
  const byJob = new Map([...scraped].map(([job, text]) => [job, served(text)] as const));
  return queries.flatMap(({ where, uses }) =>
    uses
      .filter(({ metric }) => !OWN_METRICS.has(metric))
      .filter(({ metric, matched }) => {
        const job = matched.get('job');
        const places = job === undefined || job === '' ? [...byJob.values()] : [byJob.get(job)];
        return !places.some((names) => names?.has(metric));
      })
      .map(({ metric }) => `${where}: ${metric}`),
  );
}

async function scrape(): Promise<void> {
  const texts = new Map<string, string>();
  for (const [job, child] of processes) {
    const answer = await fetch(`http://${await child.address()}/metrics`).catch((cause: unknown) => {
      throw new Error(`${job} has ended: ${child.log()}`, { cause });
    });
    texts.set(job, `${texts.get(job) ?? ''}${await answer.text()}\n`);
  }
  if (servicePage !== undefined) texts.set('service', await servicePage.text());
  for (const [job, text] of texts) scraped.set(job, text);
}

/** Starts a service of the library with a consumer and a runner of effects. */
async function startService(topic: string): Promise<void> {
  const metrics = new Metrics();
  const { brokers, postgres } = stack;
  const drivers = { ...(await openDrivers()), metrics, log: silentLogger };
  service = await Service.open({
    ...drivers,
    name: `docker-${id}`,
    brokers,
    postgres,
    schema: `docker_${id}`,
  });
  const parts = { inbox: 'received', parkedTable: 'aside' };
  await service.migrate([], { ...parts, effectsTable: 'calls' });
  service.consume({ ...parts, topic, handle: async () => {} });
  service.effects({ effectsTable: 'calls', handlers: { capture: { call: async () => null } } });
  servicePage = await openMetricsPage(metrics);
}

/** Starts a redrive of a record whose schema the registry never answers, so that it runs on. */
async function startRedrive(
  records: readonly string[],
  consuming: Running,
  registry: string,
): Promise<Running> {
  await append(stack.brokers, `docker-records-${id}`, [
    {
      key: null,
      value: Buffer.from([0, ...Buffer.from(UNKNOWN_ID.toString(16).padStart(8, '0'), 'hex'), 1]),
    },
  ]);
  const address = await consuming.ready();
  await until('a quarantined record', async () =>
    /^deserialize_errors_total\{/m.test(await (await fetch(`http://${address}/metrics`)).text()),
  );
  const proxy = await countingProxy(`http://${registry}`, (request) =>
    request.includes(`/ids/${UNKNOWN_ID}`),
  );
  onClose.push(proxy.close);
  const flags = records.map((flag) => (flag.startsWith('-registry=') ? `-registry=${proxy.url}` : flag));
  return startConsumer(own, [...flags, '-redrive']);
}

beforeAll(async () => {
  const scraping = (child: Running): Running => {
    processes.push([child.name, child]);
    return child;
  };
  const database = [`-postgres=${stack.postgres}`, `-schema=docker_${id}`, '-migrate'];
  const brokers = `-brokers=${stack.brokers}`;
  const events = `-topic=docker-events-${id}`;
  const registry = scraping(startRegistry(own, ['-store=memory']));
  const rules = join(own.dir, 'rules');
  writeFileSync(rules, 'anonymous all *\n');
  scraping(
    startRegistry(own, [
      `-store=kafka:${stack.brokers}`,
      `-schemas-topic=docker-schemas-${id}`,
      `-auth-rules=${rules}`,
    ]),
  );
  const records = [
    brokers,
    `-registry=http://${await registry.address()}`,
    '-format=avro',
    `-subject=docker-${id}`,
    `-topic=docker-records-${id}`,
  ];
  const schema = join(own.dir, 'order.avsc');
  writeFileSync(schema, JSON.stringify(ORDER_SCHEMA));
  // The consumer exits if its subject does not exist.
  const registered = await fetch(`http://${await registry.address()}/subjects/docker-${id}/versions`, {
    method: 'POST',
    headers: { 'content-type': 'application/vnd.schemaregistry.v1+json' },
    body: JSON.stringify({ schema: JSON.stringify(ORDER_SCHEMA) }),
  });
  expect(registered.status).toBe(200);
  scraping(startTool(own, 'producer', [...records, `-schema=${schema}`, '-count=1000000', '-rate=20']));
  const consuming = scraping(startConsumer(own, [...records, '-out=file:/dev/null']));
  const orders = scraping(startOrders(own, [...database, `-auth-rules=${rules}`]));
  // The relays read the outbox that the migration of orders creates.
  await orders.ready();
  scraping(startRelay(own, [...database, brokers, events]));
  scraping(startRelay(own, [...database, brokers, events, '-relay=wal', `-slot=${slot}`]));
  const payments = scraping(startPayments(own, [...database, brokers, events, `-group=docker-${id}`]));
  // The reconciler reads the tables that the migrations of orders and payments create.
  await payments.ready();
  await startService(`docker-events-${id}`);
  scraping(startTool(own, 'reconcile', ['-watch', ...database.slice(0, 2), '-listen=127.0.0.1:0']));
  scraping(
    startEngine(own, [
      brokers,
      `-topic=docker-windows-${id}`,
      `-state-dir=${join(own.dir, 'state')}`,
      `-sink=postgres:${stack.postgres}`,
      `-sink-table=docker_windows_${id}`,
      '-migrate',
      `-auth-rules=${rules}`,
    ]),
  );
  scraping(await startRedrive(records, consuming, await registry.address()));
  await until(
    'samples of each query',
    async () => {
      await scrape();
      if (missing().length > 0) throw new Error(`no sample for ${missing().join(', ')}`);
      return true;
    },
    COVERED_WITHIN_MS,
  );
}, 600_000);

afterAll(async () => {
  for (const close of onClose) close();
  await service?.close();
  for (const [, child] of processes) child.kill('SIGKILL');
  await Promise.all(processes.map(([, child]) => child.ended));
  const client = new pg.Client({ connectionString: stack.postgres });
  await client.connect();
  // An abandoned slot would keep the write-ahead log of the whole test run.
  await until('the end of the slot', async () => {
    const { rows } = await client.query(
      'SELECT active, pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1 AND NOT active',
      [slot],
    );
    const { rowCount } = await client.query('SELECT 1 FROM pg_replication_slots WHERE slot_name = $1', [
      slot,
    ]);
    return rows.length > 0 || rowCount === 0;
  });
  await client.end();
});

it('the dashboards and alert rules use many metrics of every product', () => {
  const names = new Set(queries.flatMap(({ uses }) => uses.map(({ metric }) => metric)));
  expect(names.size).toBeGreaterThan(80);
  for (const name of [
    'registry_is_writable',
    'relay_lag_seconds',
    'sweeper_found_total',
    'engine_state_bytes',
  ])
    expect(names).toContain(name);
});

it('the dashboards and alert rules name only metrics that the expected command serves', () => {
  expect([...scraped.keys()].sort()).toEqual([
    'consumer',
    'engine',
    'orders',
    'payments',
    'producer',
    'reconcile',
    'registry',
    'relay',
    'service',
  ]);
  expect(missing()).toEqual([]);
});

it('the dashboards and alert rules name only labels that those metrics have', () => {
  const seen = served([...scraped.values()].join('\n'));
  const registered = registeredLabels(repositoryFiles().filter((path) => /^src\/.*\.ts$/.test(path)));
  const has = (metric: string, label: string): boolean =>
    ADDED.has(label) || seen.get(metric)?.has(label) === true || registered.get(metric)?.has(label) === true;
  const unserved = queries.flatMap(({ where, uses, grouped }) => [
    ...uses.flatMap(({ metric, matched }) =>
      OWN_METRICS.has(metric)
        ? []
        : [...matched.keys()]
            .filter((label) => !has(metric, label))
            .map((label) => `${where}: ${metric}{${label}}`),
    ),
    ...grouped
      .filter((label) => !uses.every(({ metric }) => has(metric, label)))
      .map((label) => `${where}: by (${label})`),
  ]);
  expect(unserved).toEqual([]);
});

it('the check detects a metric that no command serves and a label that no series has', () => {
  const { uses, grouped } = usesOf(
    'sum by (color) (rate(orders_requests_total{job="relay",shade="x"}[1m])) > 2e3',
  );
  expect(uses).toEqual([
    {
      metric: 'orders_requests_total',
      matched: new Map([
        ['job', 'relay'],
        ['shade', 'x'],
      ]),
    },
  ]);
  expect(grouped).toEqual(['color']);
  expect(served(scraped.get('relay') ?? '').has('orders_requests_total')).toBe(false);
  expect(
    served(scraped.get('orders') ?? '')
      .get('orders_requests_total')
      ?.has('shade'),
  ).not.toBe(true);
});
