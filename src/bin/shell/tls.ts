/** The TLS of `-listen` from its files. */
import { readFileSync, statSync } from 'node:fs';
import { coreError } from '../../core/errors.ts';
import { tlsFault } from '../../io/http/node-tls.ts';
import type { HttpTls } from '../../io/http/port.ts';

const FILE_BYTES_MAX = 1024 * 1024;
const FLAGS = { cert: 'tls-cert', key: 'tls-key', clientCa: 'tls-client-ca' } as const;

export interface TlsSettings {
  readonly 'tls-cert': string | undefined;
  readonly 'tls-key': string | undefined;
  readonly 'tls-client-ca': string | undefined;
  readonly 'tls-client-auth': string;
}

function readPem(flag: string, path: string): string {
  const bad = (why: string, cause?: unknown) =>
    coreError('bad_file', `-${flag}=${path} ${why}`, { next: 'give a file in PEM', cause });
  try {
    if (statSync(path).size <= FILE_BYTES_MAX) return readFileSync(path, 'utf8');
  } catch (cause) {
    throw bad(`cannot be read (${(cause as NodeJS.ErrnoException).code ?? 'unknown reason'})`, cause);
  }
  throw bad(`is larger than ${FILE_BYTES_MAX} bytes`);
}

/** Undefined where no TLS is asked. @throws usage for a certificate without its key or the other way round,
 *  bad_file for what cannot be read or does not fit */
export function loadTls(settings: TlsSettings): HttpTls | undefined {
  const cert = settings['tls-cert'];
  const key = settings['tls-key'];
  const clientCa = settings['tls-client-ca'];
  if (cert === undefined && key === undefined && clientCa === undefined) return undefined;
  if (cert === undefined || key === undefined) {
    const missing = cert === undefined ? 'tls-cert' : 'tls-key';
    const given = cert !== undefined ? 'tls-cert' : key !== undefined ? 'tls-key' : 'tls-client-ca';
    throw coreError('usage', `-${given} needs -${missing}`, { next: 'give both -tls-cert and -tls-key' });
  }
  const tls: HttpTls = {
    cert: readPem('tls-cert', cert),
    key: readPem('tls-key', key),
    ...(clientCa === undefined ? {} : { clientCa: readPem('tls-client-ca', clientCa) }),
    clientCertificateRequired: settings['tls-client-auth'] !== 'optional',
  };
  const fault = tlsFault(tls);
  if (fault === undefined) return tls;
  const paths = { cert, key, clientCa };
  throw coreError('bad_file', `-${FLAGS[fault.part]}=${paths[fault.part]} ${fault.why}`, {
    next: 'give certificate and key in PEM, the key that belongs to the certificate',
  });
}
