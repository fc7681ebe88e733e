/** The listening socket of a gRPC server: plain, or TLS with HTTP/2 agreed in the handshake. */
import type { X509Certificate } from 'node:crypto';
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, TLSSocket } from 'node:tls';
import { coreError, type MillraceError } from '../../core/errors.ts';
import type { GrpcPeer, GrpcServerOptions } from './port.ts';

/** A certificate came and did not verify. */
const isImpostor = (socket: TLSSocket): boolean =>
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

/** `onConnection` gets sockets that are ready to speak HTTP/2. @throws bad_value for TLS that does not fit */
export function socketServer(
  options: Pick<GrpcServerOptions, 'tls' | 'requestTimeoutMs'>,
  onConnection: (socket: Socket) => void,
): Server {
  const { tls } = options;
  if (tls === undefined) return createServer({ noDelay: true }, onConnection);
  try {
    const server = createTlsServer({
      cert: tls.cert,
      key: tls.key,
      minVersion: 'TLSv1.2',
      ALPNProtocols: ['h2'],
      handshakeTimeout: options.requestTimeoutMs,
      noDelay: true,
      ...(tls.clientCa === undefined
        ? {}
        : {
            ca: tls.clientCa,
            requestCert: true,
            rejectUnauthorized: tls.clientCertificateRequired !== false,
          }),
    });
    server.on('secureConnection', (socket: TLSSocket) => {
      socket.on('error', () => {});
      if (tls.clientCa !== undefined && isImpostor(socket)) socket.destroy();
      else onConnection(socket);
    });
    server.on('tlsClientError', (_error, socket) => socket.destroy());
    return server;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw coreError('bad_value', `the TLS certificate or key of the gRPC server does not fit (${why})`, {
      next: 'give certificate and key in PEM, the key that belongs to the certificate',
      cause,
    });
  }
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
