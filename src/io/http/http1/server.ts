/** HTTP driver over node:net with its own HTTP/1.1 parser, for exact bytes and low cost.
 *
 *  It serves what node:http serves, request by request, and refuses requests that a second parser
 *  could interpret differently. A request costs one read, one pass over its head and one write; no
 *  stream, event or timer of its own.
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { bufferedBytesMax, busyPort, Front } from '../front.ts';
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
  readonly bufferedBytesMax: number;
  accepted = 0;
  private readonly server: Server;
  private readonly openConnections = new Set<Http1Connection>();
  /** Connections during the TLS handshake, by their addresses: TLS emits another socket afterwards.
   */
  private readonly pendingTls = new Map<string, Socket>();
  private readonly sweeper: NodeJS.Timeout;
  private readonly refuser = new ConnectionRefuser();

  constructor(server: Server, options: HttpServerOptions) {
    this.server = server;
    this.options = options;
    this.bufferedBytesMax = bufferedBytesMax(options);
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

  onClosed(connection: Http1Connection): void {
    this.openConnections.delete(connection);
  }

  private connect(socket: Socket): void {
    const { front, options } = this;
    const address = socket.remoteAddress ?? '';
    const refusal = front.connect(address);
    if (refusal === undefined) {
      socket.once('close', () => front.connections.close(address));
      if (options.tls === undefined) this.addConnection(socket);
      else this.pendTls(socket);
    } else if (options.tls === undefined) this.refuser.refuse(socket, refusal);
    else socket.destroy();
  }

  private addConnection(socket: Socket, peer?: ReturnType<typeof peerOf>): void {
    const connection = new Http1Connection(this, socket, peer);
    this.openConnections.add(connection);
    if (this.front.draining) connection.drain();
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
      else this.addConnection(socket, peerOf(socket));
    });
  }

  private sweep(): void {
    const nowMs = performance.now();
    for (const connection of this.openConnections) connection.sweep(nowMs);
  }

  async drain(timeoutMs: number): Promise<void> {
    this.front.beginDrain();
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => {
        for (const connection of this.openConnections) connection.socket.destroy();
      }, timeoutMs);
      this.server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      for (const socket of this.pendingTls.values()) socket.destroy();
      for (const connection of this.openConnections) connection.drain();
    });
    clearInterval(this.sweeper);
  }
}

/** Starts a server. @throws busy_port, bad_value */
async function listen(options: HttpServerOptions): Promise<HttpServer> {
  const { tls } = options;
  // With allowHalfOpen this driver answers the client's end itself, after pending writes.
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
