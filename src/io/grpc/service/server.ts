/** gRPC driver over node:net with its own HTTP/2 implementation, for many small unary calls.
 *
 *  A call costs one object, its metadata as text, and one write; no stream, event or timer of its
 *  own. It serves the methods that @grpc/grpc-js serves, except compressed messages, and enforces
 *  HTTP/2 strictly.
 */
import type { Server as NetServer, Socket } from 'node:net';
import type { ConnectionLimits } from '../../../core/connections.ts';
import { Http2Connection } from '../http2/connection.ts';
import { listenOn, reloadTls, socketServer } from '../http2/socket.ts';
import type { GrpcDriver, GrpcServer, GrpcServerOptions, GrpcTls } from '../port.ts';
import { Account } from './call.ts';
import { DRAIN_PATIENCE_MS, sweepMsOf } from './common.ts';
import type { Http2Owner } from './connection-calls.ts';
import { Health } from './health.ts';
import { Routes } from './methods.ts';
import { addReflection } from './reflection.ts';

/** Least interval of deadline checks, which cover all calls together. */
const DEADLINES_EVERY_MS = 5;
/** Longest delay of a Node timer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

class WireServer implements GrpcServer, Http2Owner {
  host = '';
  port = 0;
  inFlightCalls = 0;
  readonly options: GrpcServerOptions;
  readonly routes = new Routes();
  readonly account: Account;
  private readonly sockets = new Set<Socket>();
  private readonly openConnections = new Set<Http2Connection>();
  private readonly listener: NetServer;
  private readonly limits: ConnectionLimits;
  private readonly health: Health;
  private readonly timers: NodeJS.Timeout[] = [];
  private nextDeadlineMs = Number.POSITIVE_INFINITY;
  private deadlineTimer: NodeJS.Timeout | undefined;
  private draining: Promise<void> | undefined;
  /** Called when the last connection has closed. */
  private onEmpty = (): void => {};

  constructor(options: GrpcServerOptions) {
    this.options = options;
    const { methods, protos } = options;
    this.account = new Account(options.heldBytesMax);
    for (const method of methods) this.routes.add(method);
    this.health = new Health([...new Set(methods.map((method) => method.service))]);
    this.health.addTo(this.routes);
    addReflection(this.routes, protos);
    ({ server: this.listener, limits: this.limits } = socketServer({
      ...options,
      onConnection: (socket) => this.addConnection(socket),
    }));
    this.listener.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
  }

  private addConnection(socket: Socket): void {
    const connection = new Http2Connection(this, socket, (source) => {
      this.openConnections.delete(source);
      if (this.openConnections.size === 0) this.onEmpty();
    });
    this.openConnections.add(connection);
    if (this.draining !== undefined) connection.startGoAway();
  }

  async listen(): Promise<void> {
    ({ host: this.host, port: this.port } = await listenOn(
      this.listener,
      this.options.host,
      this.options.port,
    ));
    await this.askHealth();
    const { healthIntervalMs, requestTimeoutMs, idleTimeoutMs, keepAliveMs } = this.options;
    const sweepMs = sweepMsOf(Math.min(requestTimeoutMs, idleTimeoutMs, keepAliveMs));
    this.timers.push(
      setInterval(() => void this.askHealth(), healthIntervalMs),
      setInterval(() => this.sweep(), sweepMs),
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
    return this.account.held;
  }

  async askHealth(): Promise<void> {
    const healthy = await this.options.healthy().catch(() => false);
    if (this.draining === undefined) this.health.setHealthy(healthy);
  }

  private sweep(): void {
    const nowMs = performance.now();
    for (const connection of this.openConnections) connection.sweep(nowMs);
  }

  deadlineAt(ms: number): void {
    if (ms >= this.nextDeadlineMs) return;
    this.nextDeadlineMs = ms;
    clearTimeout(this.deadlineTimer);
    const waitMs = Math.max(DEADLINES_EVERY_MS, Math.ceil(ms - performance.now()));
    this.deadlineTimer = setTimeout(() => this.expire(), Math.min(TIMER_MS_MAX, waitMs));
    this.deadlineTimer.unref();
  }

  private expire(): void {
    const nowMs = performance.now();
    let next = Number.POSITIVE_INFINITY;
    for (const connection of this.openConnections) next = Math.min(next, connection.calls.expire(nowMs));
    this.nextDeadlineMs = Number.POSITIVE_INFINITY;
    this.deadlineAt(next);
  }

  drain(timeoutMs: number): Promise<void> {
    this.draining ??= this.end(timeoutMs);
    return this.draining;
  }

  private async end(timeoutMs: number): Promise<void> {
    this.health.setHealthy(false);
    const closed = new Promise<void>((resolve) => this.listener.close(() => resolve()));
    const impatient = setTimeout(() => {
      for (const connection of this.openConnections) connection.calls.endWaiting();
    }, DRAIN_PATIENCE_MS);
    await new Promise<void>((resolve) => {
      const late = setTimeout(resolve, timeoutMs);
      this.onEmpty = () => {
        clearTimeout(late);
        resolve();
      };
      for (const connection of this.openConnections) connection.startGoAway();
      if (this.openConnections.size === 0) this.onEmpty();
    });
    clearTimeout(impatient);
    clearTimeout(this.deadlineTimer);
    for (const timer of this.timers) clearInterval(timer);
    for (const socket of this.sockets) socket.destroy();
    await closed;
  }
}

export const wireGrpcDriver: GrpcDriver = {
  name: 'node:net',
  async listen(options) {
    const server = new WireServer(options);
    await server.listen();
    return server;
  },
};
