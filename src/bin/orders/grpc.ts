/** gRPC server of `millrace orders`: settings, lifecycle and metrics. */
import { join } from 'node:path';
import type { RequestGate } from '../../access/request.ts';
import { coreError } from '../../core/errors.ts';
import type { GrpcServer, GrpcTls } from '../../io/grpc/port.ts';
import { MESSAGE_BYTES_MAX, ORDERS_SERVICE, ordersMethods } from '../../outbox/orders/grpc/methods.ts';
import type { Orders } from '../../outbox/orders/service.ts';
import type { CommandContext } from '../../shell/command.ts';
import { packageRoot } from '../../shell/package.ts';
import { connectionLimits } from '../../shell/servers/http-limits.ts';
import { addressOf } from '../../shell/servers/serve.ts';
import { loadTls, watchTls } from '../../shell/servers/tls.ts';

const DEFAULT_LISTEN = '127.0.0.1:50051';

export const GRPC_SETTINGS = {
  'grpc-listen': {
    type: 'string',
    help: `host:port of gRPC, orders.v1.Orders, with the TLS of -listen; port 0 picks a free port and prints it on stderr, off disables gRPC (default ${DEFAULT_LISTEN}; a free port where -listen has port 0)`,
  },
  grpc: {
    type: 'string',
    choices: ['net', 'auto'],
    default: 'auto',
    help: 'without effect, and refused from the next version on: gRPC has one server since @grpc/grpc-js was removed',
  },
} as const;

type Context = CommandContext<typeof GRPC_SETTINGS>;

const LIMITS = {
  messageBytesMax: MESSAGE_BYTES_MAX,
  streamsMax: 1024,
  heldBytesMax: 256 * 1024 * 1024,
  requestTimeoutMs: 30_000,
  idleTimeoutMs: 600_000,
  keepAliveMs: 60_000,
  healthIntervalMs: 500,
} as const;

const LISTEN = /^(?:([\w.-]+|\[[\da-f:.]+\]|\*)?:)?(\d{1,5})$/i;

/** Undefined if gRPC is off. @throws bad_value */
function listenAddress(settings: Context['settings']): ReturnType<typeof addressOf> | undefined {
  const given = settings['grpc-listen'];
  if (given === undefined) {
    const { host, port } = addressOf(settings.listen);
    return port === 0 ? { host, port: 0 } : addressOf(DEFAULT_LISTEN);
  }
  if (given === 'off') return undefined;
  const [whole, host, port] = LISTEN.exec(given) ?? [];
  if (whole === undefined || Number(port) > 65_535) {
    throw coreError('bad_value', `-grpc-listen=${given} is not host:port`, {
      next: `give an address such as ${DEFAULT_LISTEN}, or off`,
    });
  }
  return {
    host: host === '*' ? '0.0.0.0' : (host ?? '127.0.0.1').replace(/^\[|\]$/g, ''),
    port: Number(port),
  };
}

/** Share of -drain-timeout; the rest is for HTTP answers and the database, which close after
 *  gRPC. */
const DRAIN_SHARE = 0.8;

export const grpcDrainMs = (settings: Pick<Context['settings'], 'drain-timeout'>): number =>
  Math.floor(DRAIN_SHARE * settings['drain-timeout']);

/** host:port of gRPC; undefined if off. @throws bad_value */
export function grpcListen(settings: Context['settings']): string | undefined {
  const address = listenAddress(settings);
  return address === undefined ? undefined : `${address.host}:${address.port}`;
}

export interface GrpcParts {
  readonly orders: () => Orders | undefined;
  readonly requestId: () => string;
  readonly gate: RequestGate | undefined;
}

/** Serves until the drain; undefined if -grpc-listen is off. @throws bad_value, busy_port */
export async function serveGrpc(context: Context, parts: GrpcParts): Promise<GrpcServer | undefined> {
  const { settings, metrics, log } = context;
  const address = listenAddress(settings);
  if (address === undefined) return undefined;
  const { wireGrpcDriver } = await import('../../io/grpc/service/server.ts');
  const opened: { server?: GrpcServer } = {};
  watchTls(context, (fresh) => opened.server?.reloadTls(fresh));
  const tls: GrpcTls | undefined = loadTls(settings);
  const calls = metrics.counter('orders_grpc_requests_total', 'gRPC calls answered.', ['method', 'code']);
  const seconds = metrics.histogram(
    'orders_grpc_request_duration_seconds',
    'Time from a whole gRPC message to its answer.',
    ['method'],
  );
  const ended = metrics.counter(
    'orders_grpc_calls_ended_total',
    'gRPC calls ended because of their client: memory, flood, incomplete, unread, kept_open.',
    ['reason'],
  );
  const refused = metrics.counter(
    'orders_grpc_connections_refused_total',
    'gRPC connections refused, by limit: total (-connections-max) or address (-connections-per-address).',
    ['limit'],
  );
  const server = await wireGrpcDriver.listen({
    ...address,
    ...LIMITS,
    ...connectionLimits(settings),
    ...(tls === undefined ? {} : { tls }),
    methods: ordersMethods({
      ...parts,
      log,
      outcomes: metrics.counter('orders_requests_total', 'Requests to the orders service by outcome.', [
        'outcome',
      ]),
    }),
    protos: {
      folder: join(packageRoot(), 'src', 'outbox', 'orders', 'proto'),
      files: ['orders/v1/orders.proto'],
    },
    healthy: () => context.isReady(),
    log,
    onAnswer: (answer) => {
      calls.add(1, calls.series(answer.method, answer.code));
      seconds.observe(answer.seconds, seconds.series(answer.method));
    },
    onEnd: (why) => ended.add(1, ended.series(why)),
    onConnectionRefused: (limit) => refused.add(1, refused.series(limit)),
  });
  opened.server = server;
  const connections = metrics.gauge('orders_grpc_connections', 'Open gRPC connections.');
  const held = metrics.gauge('orders_grpc_held_bytes', 'Accounted memory of all gRPC calls.');
  metrics.onCollect(() => {
    connections.set(server.connections());
    held.set(server.heldBytes());
  });
  const drain = (): Promise<void> => server.drain(grpcDrainMs(settings));
  context.drain.addEventListener('abort', () => void drain(), { once: true });
  context.onClose(drain);
  const host = server.host.includes(':') ? `[${server.host}]` : server.host;
  context.say(`listening on ${tls === undefined ? 'grpc' : 'grpcs'}://${host}:${server.port}`);
  log.info({ service: ORDERS_SERVICE }, 'gRPC started');
  return server;
}
