/** The listening socket of a gRPC server: plain, or TLS with HTTP/2 agreed in the handshake. */
import type { X509Certificate } from 'node:crypto';
import { createServer, type Server, type Socket } from 'node:net';
import {
  createSecureContext,
  createServer as createTlsServer,
  TLSSocket,
  type TlsOptions,
  type Server as TlsServer,
} from 'node:tls';
import { type ConnectionLimit, ConnectionLimits } from '../../../core/connections.ts';
import { coreError, type MillraceError } from '../../../core/errors.ts';
import type { GrpcPeer, GrpcServerOptions, GrpcTls } from '../port.ts';
import { goAway, NO_SETTINGS } from './control.ts';
import { ENHANCE_YOUR_CALM } from './frames.ts';

/** A certificate came and did not verify. */
const isUnverifiedClient = (socket: TLSSocket): boolean =>
  !socket.authorized && socket.getPeerX509Certificate() !== undefined;

/** One attribute a line in the certificate's text; commas and line feeds in values are escaped there. */
export const peerOfCertificate = ({ subject }: Pick<X509Certificate, 'subject'>): GrpcPeer => ({
  subject: subject.split('\n').join(','),
});

/** Undefined where no certificate came, or none was asked for. */
export function peerOf(socket: Socket): GrpcPeer | undefined {
  if (!(socket instanceof TLSSocket && socket.authorized)) return undefined;
  const certificate = socket.getPeerX509Certificate();
  return certificate === undefined ? undefined : peerOfCertificate(certificate);
}

/** @throws bad_value for TLS that does not fit */
function tlsOptions(tls: GrpcTls, requestTimeoutMs: number): TlsOptions {
  const options: TlsOptions = {
    cert: tls.cert,
    key: tls.key,
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['h2'],
    handshakeTimeout: requestTimeoutMs,
    ...(tls.clientCa === undefined
      ? {}
      : {
          ca: tls.clientCa,
          requestCert: true,
          rejectUnauthorized: tls.clientCertificateRequired !== false,
        }),
  };
  try {
    createSecureContext(options);
    return options;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw coreError('bad_value', `the TLS certificate or key of the gRPC server does not fit (${why})`, {
      next: 'give certificate and key in PEM, the key that belongs to the certificate',
      cause,
    });
  }
}

/** New handshakes of `server` use `tls`. @throws bad_value for what does not fit, or where the server was started without TLS */
export function reloadTls(
  server: Server,
  options: Pick<GrpcServerOptions, 'tls' | 'requestTimeoutMs'>,
  tls: GrpcTls,
): void {
  if (options.tls === undefined) throw coreError('bad_value', 'this gRPC server speaks no TLS');
  (server as TlsServer).setSecureContext(tlsOptions(tls, options.requestTimeoutMs));
}

export interface SocketServerOptions
  extends Pick<
    GrpcServerOptions,
    'tls' | 'requestTimeoutMs' | 'connectionsMax' | 'connectionsPerAddressMax' | 'onConnectionRefused'
  > {
  /** Gets sockets that are ready to speak HTTP/2. */
  readonly onConnection: (socket: Socket) => void;
}

/** A refused connection is closed by us after this long, whatever its client does. */
const REFUSED_LINGER_MS = 1000;
/** Refused connections that wait for their client to read; above it they are closed without a word. */
const REFUSED_MAX = 256;
const REFUSALS: Readonly<Record<ConnectionLimit, string>> = {
  total: 'the server has as many connections as it may (-connections-max)',
  address: 'this client address has as many connections as it may (-connections-per-address)',
};

/** Counts connections as they come, and refuses those above a limit. */
function limitConnections(server: Server, options: SocketServerOptions): ConnectionLimits {
  const { connectionsMax, connectionsPerAddressMax = 0, tls } = options;
  const limits = new ConnectionLimits({ total: connectionsMax, perAddress: connectionsPerAddressMax });
  let refused = 0;
  server.on('connection', (socket: Socket) => {
    socket.on('error', () => {});
    const address = socket.remoteAddress ?? '';
    const limit = limits.open(address);
    if (limit === undefined) {
      socket.once('close', () => limits.close(address));
      if (tls === undefined) options.onConnection(socket);
      return;
    }
    options.onConnectionRefused?.(limit);
    if (tls !== undefined || refused >= REFUSED_MAX) {
      socket.destroy();
      return;
    }
    refused++;
    const timer = setTimeout(() => socket.destroy(), REFUSED_LINGER_MS);
    socket.once('close', () => {
      refused--;
      clearTimeout(timer);
    });
    socket.write(NO_SETTINGS);
    socket.end(goAway(0, ENHANCE_YOUR_CALM, REFUSALS[limit]));
    socket.resume();
  });
  return limits;
}

/** @throws bad_value for TLS that does not fit */
export function socketServer(options: SocketServerOptions): {
  readonly server: Server;
  readonly limits: ConnectionLimits;
} {
  const { tls } = options;
  const server =
    tls === undefined
      ? createServer({ noDelay: true })
      : createTlsServer({ ...tlsOptions(tls, options.requestTimeoutMs), noDelay: true } as TlsOptions);
  const limits = limitConnections(server, options);
  server.on('secureConnection', (socket: TLSSocket) => {
    socket.on('error', () => {});
    if (tls?.clientCa !== undefined && isUnverifiedClient(socket)) socket.destroy();
    else options.onConnection(socket);
  });
  server.on('tlsClientError', (_error, socket) => socket.destroy());
  return { server, limits };
}

function busyPort(host: string, port: number, error: NodeJS.ErrnoException): MillraceError {
  const where = `${host}:${port}`;
  const reasons: Readonly<Record<string, readonly [string, string]>> = {
    EADDRINUSE: [
      `${where} is in use by another process`,
      'give another port with -grpc-listen, port 0 for any free one, or off',
    ],
    EACCES: [`${where} may not be opened by this user`, 'give a port above 1023 with -grpc-listen'],
  };
  const [why, next] = reasons[error.code ?? ''] ?? [
    `${where} cannot be opened (${error.code ?? error.message})`,
    'give an address of this machine with -grpc-listen',
  ];
  return coreError('busy_port', why, { next, cause: error });
}

/** @throws busy_port */
export function listenOn(
  server: Server,
  host: string,
  port: number,
): Promise<{ host: string; port: number }> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException): void => reject(busyPort(host, port, error));
    server.once('error', failed);
    server.listen({ host, port }, () => {
      server.off('error', failed);
      const address = server.address();
      if (address === null || typeof address === 'string')
        reject(busyPort(host, port, new Error('no address')));
      else resolve({ host: address.address, port: address.port });
    });
  });
}
