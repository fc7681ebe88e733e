/** The node:net driver: gRPC over HTTP/2 by a parser of our own, for unary calls that are many and small.
 *
 *  A call costs one object, its metadata as text, and one write; no stream, event or timer of its own. It serves what
 *  @grpc/grpc-js serves of the port, but for compressed messages, and holds clients to the letter of HTTP/2.
 */
import type { Server as NetServer, Socket } from 'node:net';
import type { ConnectionLimits } from '../../../core/connections.ts';
import { Http2Connection } from '../http2/connection.ts';
import { listenOn, reloadTls, socketServer } from '../http2/socket.ts';
import type { GrpcDriver, GrpcServer, GrpcServerOptions, GrpcTls } from '../port.ts';
import { Account } from './call.ts';
import { DRAIN_PATIENCE_MS, sweepMsOf } from './common.ts';
import type { LineOwner } from './connection-calls.ts';
import { Health } from './health.ts';
import { Routes } from './methods.ts';
import { addReflection } from './reflection.ts';

/** Deadlines are looked at together, no more often than this. */
const DEADLINES_EVERY_MS = 5;
/** A timer of Node counts no further. */
const TIMER_MS_MAX = 2 ** 31 - 1;

class WireServer implements GrpcServer, LineOwner {
  host = '';
  port = 0;
  underWay = 0;
  readonly options: GrpcServerOptions;
  readonly routes = new Routes();
  readonly account: Account;
  private readonly sockets = new Set<Socket>();
  private readonly lines = new Set<Http2Connection>();
  private readonly listener: NetServer;
  private readonly limits: ConnectionLimits;
  private readonly health: Health;
  private readonly timers: NodeJS.Timeout[] = [];
  private nextDeadlineMs = Number.POSITIVE_INFINITY;
  private deadlineTimer: NodeJS.Timeout | undefined;
  private draining: Promise<void> | undefined;
  /** Called when the last connection is gone. */
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
      onConnection: (socket) => this.take(socket),
    }));
    this.listener.on('connection', (socket: Socket) => {
      this.sockets.add(socket);
      socket.on('close', () => this.sockets.delete(socket));
    });
  }

  private take(socket: Socket): void {
    const line = new Http2Connection(this, socket, (gone) => {
      this.lines.delete(gone);
      if (this.lines.size === 0) this.onEmpty();
    });
    this.lines.add(line);
    if (this.draining !== undefined) line.leave();
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
    return this.underWay;
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
    if (this.draining === undefined) this.health.tell(healthy);
  }

  private sweep(): void {
    const nowMs = performance.now();
    for (const line of this.lines) line.sweep(nowMs);
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
    for (const line of this.lines) next = Math.min(next, line.calls.expire(nowMs));
    this.nextDeadlineMs = Number.POSITIVE_INFINITY;
    this.deadlineAt(next);
  }

  drain(timeoutMs: number): Promise<void> {
    this.draining ??= this.end(timeoutMs);
    return this.draining;
  }

  private async end(timeoutMs: number): Promise<void> {
    this.health.tell(false);
    const closed = new Promise<void>((resolve) => this.listener.close(() => resolve()));
    const impatient = setTimeout(() => {
      for (const line of this.lines) line.calls.endWaiting();
    }, DRAIN_PATIENCE_MS);
    await new Promise<void>((resolve) => {
      const late = setTimeout(resolve, timeoutMs);
      this.onEmpty = () => {
        clearTimeout(late);
        resolve();
      };
      for (const line of this.lines) line.leave();
      if (this.lines.size === 0) this.onEmpty();
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
