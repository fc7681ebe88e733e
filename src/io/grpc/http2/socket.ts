/** Listening socket of a gRPC server: plain, or TLS with HTTP/2 negotiated in the handshake. */
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

/** True when the client sent a certificate that did not verify. */
const isUnverifiedClient = (socket: TLSSocket): boolean =>
  !socket.authorized && socket.getPeerX509Certificate() !== undefined;

/** Identity in a certificate. Its text has one attribute a line; commas and line feeds in values
 *  are escaped. */
const peerOfCertificate = ({ subject }: Pick<X509Certificate, 'subject'>): GrpcPeer => ({
  subject: subject.split('\n').join(','),
});

/** Identity of the client; undefined when no certificate was requested and sent. */
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

/** Uses `tls` for new handshakes of `server`. @throws bad_value for a faulty part, or when the
 *  server was started without TLS */
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
  /** Handles sockets that are ready for HTTP/2. */
  readonly onConnection: (socket: Socket) => void;
}

/** Time after which the server closes a refused connection. */
const REFUSED_LINGER_MS = 1000;
/** Most refused connections that wait for their client to read; further ones are closed without
 *  GOAWAY. */
const REFUSED_MAX = 256;
const REFUSALS: Readonly<Record<ConnectionLimit, string>> = {
  total: 'the server has reached its limit of connections (-connections-max)',
  address: 'this client address has reached its limit of connections (-connections-per-address)',
};

/** Counts new connections, and refuses those above a limit. */
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
    EACCES: [`this user may not listen on ${where}`, 'give a port above 1023 with -grpc-listen'],
  };
  const [why, next] = reasons[error.code ?? ''] ?? [
    `cannot listen on ${where} (${error.code ?? error.message})`,
    'give an address of this machine with -grpc-listen',
  ];
  return coreError('busy_port', why, { next, cause: error });
}

/** Binds the listening socket. @throws busy_port */
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
