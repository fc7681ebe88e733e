/** The node:net driver: HTTP/1.1 by a parser of our own, for what needs the bytes exact and cheap.
 *
 *  It serves what node:http serves, request by request, and refuses what a second parser could read otherwise. A request
 *  costs one read, one pass over its head and one write; no stream, event or timer of its own.
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { behindBytesMax, busyPort, Front } from '../front.ts';
import { isUnverifiedClient, peerOf, reloadTls, tlsServerOptions } from '../node/tls.ts';
import type { HttpDriver, HttpServer, HttpServerOptions, HttpTls } from '../port.ts';
import { ConnectionRefuser } from '../refuse-connection.ts';
import { DateLine } from './answer.ts';
import { type ConnectionOwner, Http1Connection } from './connection.ts';

const SWEEP_MS_MIN = 20;
const SWEEP_MS_MAX = 250;

const nameOf = (socket: Socket): string => `${socket.remoteAddress} ${socket.remotePort}`;

class WireServer implements HttpServer, ConnectionOwner {
  readonly host: string;
  readonly port: number;
  readonly options: HttpServerOptions;
  readonly front: Front;
  readonly date = new DateLine();
  readonly behindBytesMax: number;
  accepted = 0;
  private readonly server: Server;
  private readonly lines = new Set<Http1Connection>();
  /** Connections whose TLS does not stand yet, by the ends of them: TLS hands over another socket. */
  private readonly pendingTls = new Map<string, Socket>();
  private readonly sweeper: NodeJS.Timeout;
  private readonly refuser = new ConnectionRefuser();

  constructor(server: Server, options: HttpServerOptions) {
    this.server = server;
    this.options = options;
    this.behindBytesMax = behindBytesMax(options);
    const address = server.address() as AddressInfo;
    this.front = new Front(options, address.address);
    this.host = address.address;
    this.port = address.port;
    server.on('connection', (socket: Socket) => this.connect(socket));
    if (options.tls !== undefined) this.onTlsConnect(server);
    const shortestMs = Math.min(options.requestTimeoutMs, options.keepAliveTimeoutMs);
    const everyMs = Math.min(SWEEP_MS_MAX, Math.max(SWEEP_MS_MIN, shortestMs / 4));
    this.sweeper = setInterval(() => this.sweep(), everyMs);
  }

  inFlight(): number {
    return this.accepted;
  }

  connections(): number {
    return this.front.connections.size;
  }

  heldBytes(): number {
    return this.front.held.used;
  }

  reloadTls(tls: HttpTls): void {
    reloadTls(this.server, this.options, tls);
  }

  gone(line: Http1Connection): void {
    this.lines.delete(line);
  }

  private connect(socket: Socket): void {
    const { front, options } = this;
    const address = socket.remoteAddress ?? '';
    const refusal = front.connect(address);
    if (refusal === undefined) {
      socket.once('close', () => front.connections.close(address));
      if (options.tls === undefined) this.take(socket);
      else this.pendTls(socket);
    } else if (options.tls === undefined) this.refuser.refuse(socket, refusal);
    else socket.destroy();
  }

  private take(socket: Socket, peer?: ReturnType<typeof peerOf>): void {
    const line = new Http1Connection(this, socket, peer);
    this.lines.add(line);
    if (this.front.draining) line.drain();
  }

  private pendTls(socket: Socket): void {
    const known = nameOf(socket);
    this.pendingTls.set(known, socket);
    socket.on('close', () => this.pendingTls.delete(known));
  }

  private onTlsConnect(server: Server): void {
    server.on('secureConnection', (socket: TLSSocket) => {
      this.pendingTls.delete(nameOf(socket));
      if (this.options.tls?.clientCa !== undefined && isUnverifiedClient(socket)) socket.destroy();
      else this.take(socket, peerOf(socket));
    });
  }

  private sweep(): void {
    const nowMs = performance.now();
    for (const line of this.lines) line.sweep(nowMs);
  }

  async drain(timeoutMs: number): Promise<void> {
    this.front.draining = true;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        for (const line of this.lines) line.socket.destroy();
      }, timeoutMs);
      this.server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      for (const socket of this.pendingTls.values()) socket.destroy();
      for (const line of this.lines) line.drain();
    });
    clearInterval(this.sweeper);
  }
}

/** @throws busy_port, bad_value */
async function listen(options: HttpServerOptions): Promise<HttpServer> {
  const { tls } = options;
  // The other side's end is ours to answer: what was written before it still leaves.
  const own = { allowHalfOpen: true, noDelay: true };
  const server: Server =
    tls === undefined
      ? createServer(own)
      : createTlsServer({ ...own, ...tlsServerOptions(tls, options.requestTimeoutMs) });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      reject(busyPort(options, error));
    });
    server.listen(options.port, options.host, resolve);
  });
  server.removeAllListeners('error');
  server.on('error', (error) => options.log.error({ error: error.message }, 'http server error'));
  return new WireServer(server, options);
}

export const wireDriver: HttpDriver = {
  name: 'node:net',
  limits: {
    half_close: 'a client that shuts down its sending side counts as gone',
    parallel_pipeline: 'requests of one connection are handled one after the other',
  },
  listen,
};
