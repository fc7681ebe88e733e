/** gRPC driver over @grpc/grpc-js.
 *
 *  grpc-js frames and parses. This file owns the listening socket and adds the further guarantees
 *  of the port: bounds on connections, on the memory of calls and on their waits (open-calls.ts),
 *  deadline checks before the handler runs, health of the process, and a drain that ends.
 */
import { X509Certificate } from 'node:crypto';
import type { Http2Server, IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import type { Server as NetServer, Socket } from 'node:net';
import {
  type ConnectionInjector,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
  setLogger,
  status,
} from '@grpc/grpc-js';
import type { ConnectionLimits } from '../../../core/connections.ts';
import { coreError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import { listenOn, peerOfCertificate, reloadTls, socketServer } from '../http2/socket.ts';
import type {
  GrpcCall,
  GrpcCode,
  GrpcDriver,
  GrpcMethod,
  GrpcPeer,
  GrpcReply,
  GrpcServer,
  GrpcServerOptions,
  GrpcTls,
} from '../port.ts';
import { DETAILS_TRAILER, DRAIN_PATIENCE_MS, FAILED, LATE, splitValues, sweepMsOf } from './common.ts';
import { encodeStatus } from './details.ts';
import { Health } from './health.ts';
import { Calls } from './open-calls.ts';
import { addReflection } from './reflection.ts';

/** Memory of one HTTP/2 connection for frames that wait to be read or written, in MB. */
const SESSION_MEMORY_MB = 64;
/** Longest deadline that grpc-js handles correctly: it stores milliseconds in 32 bits. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;
const TIMEOUT_UNIT_MS: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1000 };

const asIs = (bytes: Buffer): Buffer => bytes;
/** Converts to a Buffer: grpc-js copies with a method that only Buffer has. */
const asBuffer = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

type Unary = ServerUnaryCall<Buffer, Buffer>;

class Call implements GrpcCall {
  private readonly inner: Unary;

  constructor(inner: Unary) {
    this.inner = inner;
  }

  get message(): Uint8Array {
    return this.inner.request;
  }

  metadata(name: string): readonly string[] {
    return splitValues(this.inner.metadata.get(name) as readonly string[]);
  }

  get remoteAddress(): string {
    return this.inner.getPeer().replace(/:\d+$/, '');
  }

  /** Identity of the client, parsed at each access: parsing a certificate is costly. */
  get peer(): GrpcPeer | undefined {
    const raw = this.inner.getAuthContext().sslPeerCertificate?.raw;
    return raw === undefined ? undefined : peerOfCertificate(new X509Certificate(raw));
  }

  cancelled(): boolean {
    return this.inner.cancelled;
  }
}

/** Bounds deadlines to 24 days: a longer one would overflow and end the call immediately. */
function boundTimeout(headers: IncomingHttpHeaders): void {
  const given = headers['grpc-timeout'];
  if (typeof given !== 'string' || given.length < 4) return;
  const unit = TIMEOUT_UNIT_MS[given.at(-1) as string];
  if (unit !== undefined && Number(given.slice(0, -1)) * unit > TIMEOUT_MS_MAX)
    headers['grpc-timeout'] = `${Math.floor(TIMEOUT_MS_MAX / 1000)}S`;
}

type OnStream = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, flags: number) => void;

/** Forwards calls to grpc-js when there is room for them. grpc-js does not expose its HTTP/2
 *  server, and the bounds of open-calls.ts need each call at its begin. */
function guard(server: Server, calls: Calls): void {
  const servers = (server as unknown as { readonly http2Servers?: ReadonlyMap<Http2Server, unknown> })
    .http2Servers;
  const [inner] = servers?.keys() ?? [];
  const [onStream, ...others] = (inner?.listeners('stream') ?? []) as unknown as readonly OnStream[];
  if (inner === undefined || onStream === undefined || others.length > 0)
    throw coreError('internal', 'this version of @grpc/grpc-js has its HTTP/2 server in another property');
  inner.removeAllListeners('stream');
  inner.on('stream', (stream, headers, flags) => {
    boundTimeout(headers);
    const call = calls.begin(stream, headers);
    if (call === undefined) return;
    onStream.call(inner, stream, headers, flags);
    calls.follow(call);
  });
}

const NO_TRAILERS = new Metadata();
/** Cache of metadata objects: handlers return the same few trailers repeatedly, and grpc-js copies
 *  metadata before it sends them. */
const trailersKnown = new WeakMap<object, Metadata>();

function trailersOf(reply: GrpcReply): Metadata {
  if (reply.trailers === undefined) return NO_TRAILERS;
  const known = trailersKnown.get(reply.trailers);
  if (known !== undefined) return known;
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(reply.trailers)) metadata.set(name, value);
  trailersKnown.set(reply.trailers, metadata);
  return metadata;
}

function failure(reply: GrpcReply): { code: status; details: string; metadata: Metadata } {
  const code = status[reply.code];
  const details = reply.text ?? reply.code;
  const metadata = trailersOf(reply).clone();
  if (reply.details !== undefined && reply.details.length > 0)
    metadata.set(DETAILS_TRAILER, encodeStatus(code, details, reply.details));
  return { code, details, metadata };
}

class GrpcJsServer implements GrpcServer {
  host = '';
  port = 0;
  private readonly options: GrpcServerOptions;
  private readonly server: Server;
  private readonly injector: ConnectionInjector;
  private readonly sockets = new Set<Socket>();
  private readonly listener: NetServer;
  private readonly limits: ConnectionLimits;
  private readonly calls: Calls;
  private readonly health: Health;
  private readonly timers: NodeJS.Timeout[] = [];
  private inFlightCalls = 0;
  private draining: Promise<void> | undefined;

  constructor(options: GrpcServerOptions) {
    this.options = options;
    const { methods, streamsMax, messageBytesMax } = options;
    this.server = new Server({
      'grpc.enable_channelz': 0,
      'grpc.max_concurrent_streams': streamsMax,
      'grpc.max_receive_message_length': messageBytesMax,
      'grpc.max_connection_idle_ms': options.idleTimeoutMs,
      'grpc.keepalive_time_ms': options.keepAliveMs,
      'grpc.keepalive_timeout_ms': options.requestTimeoutMs,
      'grpc-node.max_session_memory': SESSION_MEMORY_MB,
    });
    for (const method of methods) this.register(method);
    this.health = new Health([...new Set(methods.map((method) => method.service))]);
    this.health.addTo(this.server);
    addReflection(this.server, options.protos);
    this.calls = new Calls(options);
    this.injector = this.server.createConnectionInjector(ServerCredentials.createInsecure());
    guard(this.server, this.calls);
    ({ server: this.listener, limits: this.limits } = socketServer({
      ...options,
      onConnection: (socket) => this.injector.injectConnection(socket),
    }));
    this.listener.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
  }

  async listen(): Promise<void> {
    ({ host: this.host, port: this.port } = await listenOn(
      this.listener,
      this.options.host,
      this.options.port,
    ));
    await this.askHealth();
    const { healthIntervalMs, requestTimeoutMs } = this.options;
    this.timers.push(
      setInterval(() => void this.askHealth(), healthIntervalMs),
      setInterval(() => this.calls.sweep(performance.now()), sweepMsOf(requestTimeoutMs)),
    );
    for (const timer of this.timers) timer.unref();
  }

  inFlight(): number {
    return this.inFlightCalls;
  }

  connections(): number {
    return this.limits.size;
  }

  reloadTls(tls: GrpcTls): void {
    reloadTls(this.listener, this.options, tls);
  }

  heldBytes(): number {
    return this.calls.heldBytes();
  }

  drain(timeoutMs: number): Promise<void> {
    this.draining ??= this.end(timeoutMs);
    return this.draining;
  }

  private async end(timeoutMs: number): Promise<void> {
    for (const timer of this.timers) clearInterval(timer);
    this.health.setHealthy(false);
    const closed = new Promise<void>((resolve) => this.listener.close(() => resolve()));
    let late: NodeJS.Timeout | undefined;
    const impatient = setTimeout(() => this.calls.endWaiting(), DRAIN_PATIENCE_MS);
    await Promise.race([
      new Promise<void>((resolve) => this.server.tryShutdown(() => resolve())),
      new Promise<void>((resolve) => {
        late = setTimeout(resolve, timeoutMs);
      }),
    ]);
    clearTimeout(late);
    clearTimeout(impatient);
    this.server.forceShutdown();
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }

  async askHealth(): Promise<void> {
    const healthy = await this.options.healthy().catch(() => false);
    if (this.draining === undefined) this.health.setHealthy(healthy);
  }

  private register(method: GrpcMethod): void {
    const path = `/${method.service}/${method.name}`;
    const handle = (call: Unary, answer: sendUnaryData<Buffer>): void => {
      void this.serve(method, path, call, answer);
    };
    this.server.register(path, handle, asIs, asIs, 'unary');
  }

  private async serve(
    method: GrpcMethod,
    path: string,
    call: Unary,
    answer: sendUnaryData<Buffer>,
  ): Promise<void> {
    const startMs = performance.now();
    this.inFlightCalls++;
    let reply: GrpcReply;
    try {
      reply = isLate(call) ? LATE : await method.handler(new Call(call));
    } catch (thrown) {
      this.options.log.error({ method: path, cause: String(thrown) }, 'gRPC call failed');
      reply = FAILED;
    }
    this.inFlightCalls--;
    const code = call.cancelled ? cancelCode(call) : reply.code;
    if (reply.code === 'OK') answer(null, asBuffer(reply.message), trailersOf(reply));
    else answer(failure(reply));
    this.options.onAnswer?.({ method: method.name, code, seconds: (performance.now() - startMs) / 1000 });
  }
}

function isLate(call: Unary): boolean {
  const deadline = call.getDeadline();
  return Number(deadline) <= Date.now();
}

/** Code of a call whose client does not get the answer. */
const cancelCode = (call: Unary): GrpcCode => (isLate(call) ? 'DEADLINE_EXCEEDED' : 'CANCELLED');

/** Redirects the log of grpc-js from stderr to this log, at level debug: its lines are about single
 *  clients. */
function logTo(log: Logger): void {
  const forward = (...words: readonly unknown[]): void =>
    log.debug({ said: words.map(String).join(' ') }, 'gRPC library');
  setLogger({ debug: forward, info: forward, error: forward });
}

export const grpcJsDriver: GrpcDriver = {
  name: 'grpc-js',
  async listen(options) {
    logTo(options.log);
    const server = new GrpcJsServer(options);
    await server.listen();
    return server;
  },
};
