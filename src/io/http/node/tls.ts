/** TLS options of the node:http and node:net drivers, and the identity of a client's certificate.
 */
import { X509Certificate } from 'node:crypto';
import type { ServerOptions } from 'node:https';
import type { Server } from 'node:net';
import { createSecureContext, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { coreError } from '../../../core/errors.ts';
import type { HttpPeer, HttpServerOptions, HttpTls } from '../port.ts';

type TlsPart = 'cert' | 'key' | 'clientCa';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

const certificatesOf = (pem: string): X509Certificate[] =>
  (pem.match(CERTIFICATE) ?? []).map((text) => new X509Certificate(text));

function attempt(
  part: TlsPart,
  why: string,
  work: () => boolean,
): { part: TlsPart; why: string } | undefined {
  try {
    return work() ? undefined : { part, why };
  } catch (thrown) {
    return { part, why: `${why} (${thrown instanceof Error ? thrown.message : String(thrown)})` };
  }
}

/** Faulty part of `tls`, so that a caller can name the file; undefined when a server can start with
 *  it. */
export function tlsFault(tls: HttpTls): { readonly part: TlsPart; readonly why: string } | undefined {
  return (
    attempt('cert', 'holds no certificate in PEM', () => certificatesOf(tls.cert).length > 0) ??
    attempt('key', 'holds no private key in PEM without a passphrase', () => {
      createSecureContext({ key: tls.key });
      return /-----BEGIN [A-Z ]*PRIVATE KEY-----/.test(tls.key);
    }) ??
    attempt('key', 'is not the key of the certificate', () => {
      createSecureContext({ key: tls.key, cert: tls.cert });
      return true;
    }) ??
    (tls.clientCa === undefined
      ? undefined
      : attempt(
          'clientCa',
          'holds no certificate in PEM',
          () => certificatesOf(tls.clientCa ?? '').length > 0,
        ))
  );
}

/** Options of a TLS server. @throws bad_value for a faulty part */
export function tlsServerOptions(tls: HttpTls, handshakeTimeoutMs: number): ServerOptions {
  const fault = tlsFault(tls);
  if (fault !== undefined) {
    throw coreError('bad_value', `the TLS ${fault.part} ${fault.why}`, {
      next: 'give certificate and key in PEM, the key that belongs to the certificate',
    });
  }
  return {
    cert: tls.cert,
    key: tls.key,
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['http/1.1'],
    handshakeTimeout: handshakeTimeoutMs,
    ...(tls.clientCa === undefined
      ? {}
      : {
          ca: tls.clientCa,
          requestCert: true,
          rejectUnauthorized: tls.clientCertificateRequired !== false,
        }),
  };
}

/** Uses `tls` for new handshakes of `server`; open connections are not affected.
 *  @throws bad_value for a faulty part, or when the server was started without TLS */
export function reloadTls(
  server: Server,
  options: Pick<HttpServerOptions, 'tls' | 'requestTimeoutMs'>,
  tls: HttpTls,
): void {
  if (options.tls === undefined) throw coreError('bad_value', 'this server speaks no TLS');
  (server as TlsServer).setSecureContext(tlsServerOptions(tls, options.requestTimeoutMs));
}

/** True when the client sent a certificate that did not verify. */
export const isUnverifiedClient = (socket: TLSSocket): boolean =>
  !socket.authorized && socket.getPeerX509Certificate() !== undefined;

/** Alternative names as openssl prints them; unusual names are JSON strings, so that no name can
 *  contain another. */
const ALT_NAME = /([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,]*)(?:, |$)/g;

function unquoted(name: string): string {
  if (!name.startsWith('"')) return name;
  try {
    return String(JSON.parse(name));
  } catch {
    return name;
  }
}

/** Identity of the client; undefined when no verified certificate was requested and sent. */
export function peerOf(socket: TLSSocket): HttpPeer | undefined {
  if (!socket.authorized) return undefined;
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  const altNames = [...(certificate.subjectAltName ?? '').matchAll(ALT_NAME)].map(
    ([, kind, name = '']) => `${kind}:${unquoted(name)}`,
  );
  return {
    // One attribute a line; commas and line feeds in values are escaped.
    subject: certificate.subject.split('\n').join(','),
    altNames,
    fingerprint256: certificate.fingerprint256,
  };
}
