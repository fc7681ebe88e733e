/** HTTP servers of a command: its own routes and /metrics /health /ready /version on one server, or
 *  with -metrics-listen the latter four on a server of their own. */
import { METHODS } from 'node:http';
import type { ConnectionLimit } from '../../core/connections.ts';
import { coreError } from '../../core/errors.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { HttpDriver, HttpRoute, HttpServer, HttpServerOptions, HttpTls } from '../../io/http/port.ts';
import { promExposition } from '../../io/metrics/prom.ts';
import type { Command, CommandContext } from '../command.ts';
import { runsNative } from '../drivers.ts';
import { packageVersion } from '../package.ts';
import { httpLimits } from './http-limits.ts';
import type { Readiness } from './readiness.ts';

const DEFAULTS = {
  bodyBytesMax: 1024 * 1024,
  headerBytesMax: 16 * 1024,
  requestTimeoutMs: 30_000,
  keepAliveTimeoutMs: 60_000,
} as const;

export interface ServeOptions {
  readonly command: Command;
  readonly context: CommandContext<Command['settings']>;
  readonly readiness: Readiness;
  readonly driver: HttpDriver;
  /** Absent: plain HTTP. */
  readonly tls?: HttpTls | undefined;
}

/** Methods that metrics name. Others share one label value, because a client may send any number of
 *  method names. */
const METHODS_NAMED: ReadonlySet<string> = new Set([...METHODS, 'QUERY']);
const METHOD_OTHER = 'other';

/** Metric series of one route. */
interface KnownSeries {
  readonly took: number;
  /** Series by method and status. */
  readonly requests: Map<string, Map<number, number>>;
}

const document = (status: number, body: unknown) => ({
  status,
  headers: { 'content-type': 'application/json', 'cache-control': 'no-store' },
  body: `${JSON.stringify(body)}\n`,
});

function sharedRoutes(options: ServeOptions): HttpRoute[] {
  const { command, context, readiness } = options;
  const version = packageVersion();
  const exposition = promExposition(context.metrics, context.clock, {
    build: { version, command: command.name, node: process.version },
  });
  return [
    {
      method: 'GET',
      path: '/metrics',
      handler: async () => ({
        status: 200,
        headers: { 'content-type': exposition.contentType },
        body: await exposition.text(),
      }),
    },
    { method: 'GET', path: '/health', handler: () => document(200, { status: 'up' }) },
    {
      method: 'GET',
      path: '/ready',
      handler: async () => {
        const report = await readiness.report();
        return document(report.ready ? 200 : 503, report);
      },
    },
    {
      method: 'GET',
      path: '/version',
      handler: () =>
        document(200, {
          name: 'millrace',
          version,
          command: command.name,
          node: process.version,
          native: runsNative(context) ? 'on' : 'off',
          http: options.driver.name,
        }),
    },
  ];
}

/** Splits `host:port` or `[::1]:port`. */
export function addressOf(listen: string): { readonly host: string; readonly port: number } {
  const colon = listen.lastIndexOf(':');
  return { host: listen.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(listen.slice(colon + 1)) };
}

/** Registers gauges of connections and held bytes, read at each scrape. */
function measureServers(metrics: Metrics, { main, metrics: metricsServer }: Served): void {
  const servers = [main, metricsServer].filter((server) => server !== undefined);
  const sum = (of: (server: HttpServer) => number): number =>
    servers.reduce((total, server) => total + of(server), 0);
  const connections = metrics.gauge('http_connections', 'Open connections of -listen and -metrics-listen.');
  const held = metrics.gauge(
    'http_held_bytes',
    'Bytes of unanswered requests in memory; -held-max limits each of -listen and -metrics-listen.',
  );
  metrics.onCollect(() => {
    connections.set(sum((server) => server.connections()));
    held.set(sum((server) => server.heldBytes()));
  });
}

export interface Served {
  /** Undefined if -metrics-listen serves the only routes of the command. */
  readonly main: HttpServer | undefined;
  /** Undefined without -metrics-listen. */
  readonly metrics: HttpServer | undefined;
}

/** Starts the servers. @throws busy_port, bad_value, usage if -listen would serve nothing */
export async function serve(options: ServeOptions): Promise<Served> {
  const served = await listenAll(options);
  measureServers(options.context.metrics, served);
  return served;
}

async function listenAll(options: ServeOptions): Promise<Served> {
  const { command, context, driver, tls } = options;
  const { 'metrics-listen': metricsListen } = context.settings;
  const refused = context.metrics.counter(
    'http_connections_refused_total',
    'Connections refused, by limit: total (-connections-max) or address (-connections-per-address).',
    ['limit'],
  );
  const guarded = {
    ...DEFAULTS,
    ...httpLimits(context.settings),
    log: context.log,
    onConnectionRefused: (limit: ConnectionLimit) => refused.add(1, refused.series(limit)),
    onAnswer: answerMeter(context),
  };
  const listen = async (
    by: HttpDriver,
    address: string,
    routes: readonly HttpRoute[],
    over: Partial<HttpServerOptions> = {},
  ): Promise<HttpServer> => by.listen({ ...guarded, ...over, ...addressOf(address), routes });
  const own = command.routes?.(context);
  const forCommand = { ...command.http?.(context), ...(tls === undefined ? {} : { tls }) };
  const shared = sharedRoutes(options);
  if (metricsListen === undefined) {
    const taken = new Set(own?.map((route) => `${route.method} ${route.path}`));
    const rest = shared.filter((route) => !taken.has(`${route.method} ${route.path}`));
    const main = await listen(driver, context.settings.listen, [...(own ?? []), ...rest], forCommand);
    return { main, metrics: undefined };
  }
  if (own === undefined && (tls !== undefined || context.isFlag('listen'))) {
    throw coreError('usage', `${command.name} serves nothing on -listen if -metrics-listen is given`, {
      next: tls === undefined ? 'leave -listen out' : 'leave -metrics-listen out: -listen can serve TLS',
    });
  }
  const { wireDriver } = await import('../../io/http/http1/server.ts');
  const metrics = await listen(wireDriver, metricsListen, shared);
  try {
    const main = own && (await listen(driver, context.settings.listen, own, forCommand));
    return { main, metrics };
  } catch (thrown) {
    await metrics.drain(0);
    throw thrown;
  }
}

/** Counts and times the answers. */
function answerMeter(context: ServeOptions['context']): NonNullable<HttpServerOptions['onAnswer']> {
  const requests = context.metrics.counter('http_requests_total', 'HTTP requests answered.', [
    'method',
    'route',
    'status',
  ]);
  const seconds = context.metrics.histogram('http_request_duration_seconds', 'Time from request to answer.', [
    'route',
  ]);
  // Caches the series by route, method and status, so that counting an answer builds no string.
  const known = new Map<string, KnownSeries>();
  return ({ method: sent, route, status, seconds: took }) => {
    const method = METHODS_NAMED.has(sent) || sent === '' ? sent : METHOD_OTHER;
    let series = known.get(route);
    if (series === undefined) {
      series = { took: seconds.series(route), requests: new Map() };
      known.set(route, series);
    }
    let byStatus = series.requests.get(method);
    if (byStatus === undefined) {
      byStatus = new Map();
      series.requests.set(method, byStatus);
    }
    let count = byStatus.get(status);
    if (count === undefined) {
      count = requests.series(method, route, String(status));
      byStatus.set(status, count);
    }
    requests.add(1, count);
    seconds.observe(took, series.took);
  };
}
