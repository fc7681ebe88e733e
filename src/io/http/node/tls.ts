/** TLS for the node:http driver: options that are known to work, and who the client's certificate names. */
import { X509Certificate } from 'node:crypto';
import type { ServerOptions } from 'node:https';
import type { Server } from 'node:net';
import { createSecureContext, type TLSSocket, type Server as TlsServer } from 'node:tls';
import { coreError } from '../../../core/errors.ts';
import type { HttpPeer, HttpServerOptions, HttpTls } from '../port.ts';

type TlsPart = 'cert' | 'key' | 'clientCa';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

const certificatesOf = (pem: string): X509Certificate[] =>
  (pem.match(CERTIFICATE) ?? []).map((one) => new X509Certificate(one));

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

/** What of `tls` does not fit, so that a caller can name the file; undefined when a server can start with it. */
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

/** @throws bad_value for what does not fit */
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

/** New handshakes of `server` use `tls`; connections that stand are not affected.
 *  @throws bad_value for what does not fit, or where the server was started without TLS */
export function reloadTls(
  server: Server,
  options: Pick<HttpServerOptions, 'tls' | 'requestTimeoutMs'>,
  tls: HttpTls,
): void {
  if (options.tls === undefined) throw coreError('bad_value', 'this server speaks no TLS');
  (server as TlsServer).setSecureContext(tlsServerOptions(tls, options.requestTimeoutMs));
}

/** A certificate came and did not verify. */
export const isUnverifiedClient = (socket: TLSSocket): boolean =>
  !socket.authorized && socket.getPeerX509Certificate() !== undefined;

/** Names as openssl prints them, odd ones as JSON strings so that no name can contain another. */
const ALT_NAME = /([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^,]*)(?:, |$)/g;

function unquoted(name: string): string {
  if (!name.startsWith('"')) return name;
  try {
    return String(JSON.parse(name));
  } catch {
    return name;
  }
}

/** Undefined where nobody was asked, or no certificate came. */
export function peerOf(socket: TLSSocket): HttpPeer | undefined {
  if (!socket.authorized) return undefined;
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  const altNames = [...(certificate.subjectAltName ?? '').matchAll(ALT_NAME)].map(
    ([, kind, name = '']) => `${kind}:${unquoted(name)}`,
  );
  return {
    // One attribute a line, commas and line feeds in values escaped.
    subject: certificate.subject.split('\n').join(','),
    altNames,
    fingerprint256: certificate.fingerprint256,
  };
}
