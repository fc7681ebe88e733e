/** The HTTP server every command runs: /metrics /health /ready /version, and the command's own routes beside them. */
import { METHODS } from 'node:http';
import type { Metrics } from '../../core/metrics.ts';
import type { HttpDriver, HttpRoute, HttpServer, HttpTls } from '../../io/http/port.ts';
import { promExposition } from '../../io/metrics/prom.ts';
import type { Command, CommandContext } from './command.ts';
import { runsNative } from './drivers.ts';
import { httpLimits } from './http-limits.ts';
import { packageVersion } from './package.ts';
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

/** A client may invent methods without end; metrics name those of the registry of methods. */
const METHODS_NAMED: ReadonlySet<string> = new Set([...METHODS, 'QUERY']);
const METHOD_OTHER = 'other';

/** The series of one route. */
interface KnownSeries {
  readonly took: number;
  /** By method and status. */
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
    version,
    command: command.name,
    node: process.version,
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

/** Splits `host:port`, `[::1]:port`. */
export function addressOf(listen: string): { readonly host: string; readonly port: number } {
  const colon = listen.lastIndexOf(':');
  return { host: listen.slice(0, colon).replace(/^\[|\]$/g, ''), port: Number(listen.slice(colon + 1)) };
}

/** Counts of connections and held bytes, read at each scrape. */
function measureServer(metrics: Metrics, server: HttpServer): void {
  const connections = metrics.gauge('http_connections', 'Open connections of -listen.');
  const held = metrics.gauge(
    'http_held_bytes',
    'Bytes of unanswered requests in memory, counted against -held-max.',
  );
  metrics.onCollect(() => {
    connections.set(server.connections());
    held.set(server.heldBytes());
  });
}

/** @throws busy_port, bad_value */
export async function serve(options: ServeOptions): Promise<HttpServer> {
  const { command, context, driver, tls } = options;
  const own = command.routes?.(context) ?? [];
  const taken = new Set(own.map((route) => `${route.method} ${route.path}`));
  const shared = sharedRoutes(options).filter((route) => !taken.has(`${route.method} ${route.path}`));
  const requests = context.metrics.counter('http_requests_total', 'HTTP requests answered.', [
    'method',
    'route',
    'status',
  ]);
  const seconds = context.metrics.histogram('http_request_duration_seconds', 'Time from request to answer.', [
    'route',
  ]);
  const refused = context.metrics.counter(
    'http_connections_refused_total',
    'Connections refused, by limit: total (-connections-max) or address (-connections-per-address).',
    ['limit'],
  );
  // Looked up by what an answer is, so that counting one makes no text.
  const known = new Map<string, KnownSeries>();
  const server = await driver.listen({
    ...DEFAULTS,
    ...httpLimits(context.settings),
    ...command.http?.(context),
    ...addressOf(context.settings.listen),
    ...(tls === undefined ? {} : { tls }),
    routes: [...own, ...shared],
    log: context.log,
    onConnectionRefused: (limit) => refused.add(1, refused.series(limit)),
    onAnswer: ({ method: sent, route, status, seconds: took }) => {
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
    },
  });
  measureServer(context.metrics, server);
  return server;
}
