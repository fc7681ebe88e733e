/** `millrace bench http`: an empty handler with each HTTP backend, compared with the bare backend;
 *  lookups with Millrace's own parser over node:net, compared with uWebSockets.js; and the CPU of a
 *  POST with that parser, compared with node:http.
 *
 *  The server runs in this process, the load in another, and only one side runs at a time. An
 *  answer is 15 bytes of JSON for a path with one named part, like a lookup by id. The answers of
 *  both sides are checked. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { coreError } from '../src/core/errors.ts';
import { silentLogger } from '../src/core/log.ts';
import { wireDriver } from '../src/io/http/http1/server.ts';
import { nodeHttpDriver } from '../src/io/http/node/server.ts';
import type { HttpDriver } from '../src/io/http/port.ts';
import { loadUws } from '../src/io/http/uws/load.ts';
import { uwsDriver } from '../src/io/http/uws/server.ts';
import { type Bench, type BenchContext, type BenchResult, result, seriesOf, takeTurns } from './harness.ts';
import { driveLoad, type LoadPlan, type LoadReport, type LoadRequest } from './http-load.ts';

const CONNECTIONS = 64;
const BODY = '{"answer":true}';
const TYPE = 'application/json';
const PATH = '/things/ids/1';
/** Goal of lookups by id a second, with the load on the same machine. */
const RATE_GOAL = 20_000;
/** Rate of the open model: half of that. */
const HALF_RATE = RATE_GOAL / 2;
/** Orders a second, and number of connections. */
const POST_RATE = 5000;
const POST_CONNECTIONS = 128;
/** Lookups a second with Millrace's own parser, relative to uWebSockets.js. */
const LOOKUP_RATIO_GOAL = 0.8;
/** Minimum gain of the own parser over node:http. */
const CPU_RATIO_GOAL = 1.5;
const POST: LoadRequest = {
  method: 'POST',
  path: '/things',
  headers: {
    'User-Agent': 'load',
    Accept: '*/*',
    'Content-Type': TYPE,
    'Idempotency-Key': '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34',
  },
  body: '{"account_id":7,"amount_cents":1999}',
};

interface Running {
  readonly url: string;
  close(): Promise<void>;
}

async function ours(driver: HttpDriver): Promise<Running> {
  const server = await driver.listen({
    host: '127.0.0.1',
    port: 0,
    routes: [
      {
        method: 'GET',
        path: '/things/ids/{id}',
        handler: () => ({ status: 200, headers: { 'content-type': TYPE }, body: BODY }),
      },
      {
        method: 'POST',
        path: '/things',
        // Answers in a later turn of the event loop, like a handler that waits for a database.
        handler: async (request) => {
          await new Promise((resolve) => setImmediate(resolve));
          const [key = ''] = request.header('idempotency-key');
          return { status: key === '' ? 400 : 200, headers: { 'content-type': TYPE }, body: BODY };
        },
      },
    ],
    bodyBytesMax: 1024 * 1024,
    headerBytesMax: 16 * 1024,
    requestTimeoutMs: 30_000,
    keepAliveTimeoutMs: 60_000,
    log: silentLogger,
  });
  return { url: `http://127.0.0.1:${server.port}`, close: () => server.drain(0) };
}

async function bareNode(): Promise<Running> {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': TYPE, 'content-length': BODY.length });
    response.end(BODY);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function bareUws(): Promise<Running> {
  const uws = loadUws();
  const app = uws.App().any('/things/ids/:id', (response) => {
    response.writeStatus('200 OK').writeHeader('content-type', TYPE).end(BODY);
  });
  const token = await new Promise<object | false>((resolve) => app.listen('127.0.0.1', 0, resolve));
  if (token === false) throw coreError('busy_port', 'no port of 127.0.0.1 could be taken');
  return {
    url: `http://127.0.0.1:${uws.us_socket_local_port(token)}`,
    close: async () => {
      uws.us_listen_socket_close(token);
      app.close();
    },
  };
}

/** Length of the measurement. A smoke run needs some answers, however long they take on a busy
 *  machine. */
const lasting = ({ smoke }: BenchContext): Pick<LoadPlan, 'durationMs' | 'countMax'> =>
  smoke ? { durationMs: 30_000, countMax: 1000 } : { durationMs: 4000 };

async function measure(
  context: BenchContext,
  start: () => Promise<Running>,
  ratePerSecond?: number,
): Promise<LoadReport> {
  const running = await start();
  try {
    const report = await driveLoad(
      {
        url: running.url,
        connections: CONNECTIONS,
        requests: [{ method: 'GET', path: PATH, headers: { accept: '*/*' } }],
        warmupMs: context.smoke ? 100 : 1000,
        ...lasting(context),
        ...(ratePerSecond === undefined ? {} : { ratePerSecond }),
      },
      context.drain,
    );
    const unexpected = Object.keys(report.statuses).filter((status) => status !== '200');
    if (
      report.firstBodies[0] !== BODY ||
      unexpected.length > 0 ||
      report.failures > 0 ||
      report.answered === 0
    ) {
      const seen = JSON.stringify({ ...report, latencyUs: undefined });
      throw coreError('internal', `the load got an unexpected answer: ${seen}`);
    }
    return report;
  } finally {
    await running.close();
  }
}

async function backend(
  context: BenchContext,
  driver: HttpDriver,
  bare: () => Promise<Running>,
): Promise<BenchResult[]> {
  context.say(`${driver.name}: maximum rate, then ${HALF_RATE} requests a second`);
  const mine = (): Promise<Running> => ours(driver);
  const rates = await takeTurns(
    {
      ours: async () => (await measure(context, mine)).ratePerSecond,
      bare: async () => (await measure(context, bare)).ratePerSecond,
    },
    context.repeats,
  );
  const p50: { ours: number[]; bare: number[] } = { ours: [], bare: [] };
  const p99 = await takeTurns(
    {
      ours: async () => latency(await measure(context, mine, HALF_RATE), p50.ours),
      bare: async () => latency(await measure(context, bare, HALF_RATE), p50.bare),
    },
    context.repeats,
  );
  const name = `bare ${driver.name}`;
  const half = `${driver.name}, ${HALF_RATE}/s`;
  return [
    result({
      metric: `${driver.name}, empty handler`,
      unit: 'requests/s',
      ours: rates.ours,
      against: { name, series: rates.bare },
      better: 'more',
      goal: { valueAtLeast: RATE_GOAL },
    }),
    result({
      metric: `${half}, p50`,
      unit: 'us',
      ours: seriesOf(p50.ours),
      against: { name, series: seriesOf(p50.bare) },
      better: 'less',
    }),
    result({
      metric: `${half}, p99`,
      unit: 'us',
      ours: p99.ours,
      against: { name, series: p99.bare },
      better: 'less',
    }),
  ];
}

/** Machines without the uWebSockets.js binary measure only node:http. */
function uwsLoads(context: BenchContext): boolean {
  try {
    loadUws();
    return true;
  } catch (thrown) {
    context.say((thrown as Error).message);
    return false;
  }
}

/** CPU of this process, which runs only the server. */
async function cpuUsOfPost(context: BenchContext, driver: HttpDriver): Promise<number> {
  const running = await ours(driver);
  try {
    const plan = (length: Pick<LoadPlan, 'durationMs' | 'countMax'>) => ({
      url: running.url,
      connections: POST_CONNECTIONS,
      requests: [POST],
      warmupMs: 0,
      ...length,
      ratePerSecond: POST_RATE,
    });
    await driveLoad(plan({ durationMs: context.smoke ? 100 : 1000 }), context.drain);
    const before = process.cpuUsage();
    const report = await driveLoad(plan(lasting(context)), context.drain);
    const { user, system } = process.cpuUsage(before);
    if (report.firstBodies[0] !== BODY || report.failures > 0 || report.answered === 0)
      throw coreError('internal', `the load got an unexpected answer from ${driver.name}`);
    return (user + system) / report.answered;
  } finally {
    await running.close();
  }
}

async function wire(context: BenchContext): Promise<BenchResult> {
  context.say(`${wireDriver.name}: CPU of ${POST_RATE} requests a second`);
  const series = await takeTurns(
    {
      ours: () => cpuUsOfPost(context, wireDriver),
      node: () => cpuUsOfPost(context, nodeHttpDriver),
    },
    context.repeats,
  );
  return result({
    metric: `${wireDriver.name}, POST at ${POST_RATE}/s, CPU a request`,
    unit: 'us',
    ours: series.ours,
    against: { name: nodeHttpDriver.name, series: series.node },
    better: 'less',
    goal: { ratioAtLeast: CPU_RATIO_GOAL },
  });
}

async function lookups(context: BenchContext): Promise<BenchResult> {
  context.say(`${wireDriver.name} and ${uwsDriver.name}: lookups at the maximum rate`);
  const series = await takeTurns(
    {
      ours: async () => (await measure(context, () => ours(wireDriver))).ratePerSecond,
      uws: async () => (await measure(context, () => ours(uwsDriver))).ratePerSecond,
    },
    context.repeats,
  );
  return result({
    metric: `${wireDriver.name}, lookups`,
    unit: 'requests/s',
    ours: series.ours,
    against: { name: uwsDriver.name, series: series.uws },
    better: 'more',
    goal: { ratioAtLeast: LOOKUP_RATIO_GOAL },
  });
}

function latency(report: LoadReport, p50: number[]): number {
  p50.push(report.latencyUs.p50);
  return report.latencyUs.p99;
}

export const bench: Bench = {
  name: 'http',
  summary:
    'Empty handler behind our drivers of node:http and uWebSockets.js, beside the bare servers and our own parser.',
  async run(context) {
    const results: BenchResult[] = [];
    if (uwsLoads(context)) {
      results.push(...(await backend(context, uwsDriver, bareUws)));
      results.push(await lookups(context));
    }
    results.push(...(await backend(context, nodeHttpDriver, bareNode)));
    return [...results, await wire(context)];
  },
};
