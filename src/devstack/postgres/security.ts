/** TLS of the embedded PostgreSQL: an authority, a certificate for the server and one for a client.
 *
 *  Files: server.crt, server.key and root.crt in the data folder, of the user that runs the server;
 *  ca.pem, client.pem and client.key in the folder `postgres-security` of the stack. The key of the
 *  authority is not kept.
 */
import { chownSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { certificate } from '../certificates.ts';
import { writeWhole } from '../files.ts';
import { LOOPBACK } from '../ports.ts';

export const POSTGRES_SECURITIES = ['plaintext', 'ssl'] as const;

export type PostgresSecurity = (typeof POSTGRES_SECURITIES)[number];

const FOLDER = 'postgres-security';
const VALID_MS = 3650 * 86_400_000;
const OWNER_ONLY = 0o600;

/** Files of a client, as paths. */
export interface PostgresClientFiles {
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
}

export const postgresClientFiles = (folder: string): PostgresClientFiles => ({
  ca: join(folder, FOLDER, 'ca.pem'),
  cert: join(folder, FOLDER, 'client.pem'),
  key: join(folder, FOLDER, 'client.key'),
});

/** Makes the certificates. @param owner user that runs the server, if it is another one
 *  @param user database user that the client certificate names */
export function installCertificates(
  folder: string,
  data: string,
  owner: number | undefined,
  user: string,
): void {
  const issuer = certificate({ subject: [['CN', 'millrace stack']], authority: true, endsMs: VALID_MS });
  const server = certificate({
    ...{ subject: [['CN', LOOPBACK]], issuer, endsMs: VALID_MS },
    ...{ ips: [LOOPBACK], dnsNames: ['localhost'] },
  });
  const client = certificate({ subject: [['CN', user]], issuer, endsMs: VALID_MS });
  for (const [name, text] of [
    ['server.crt', server.cert],
    ['server.key', server.key],
    ['root.crt', issuer.cert],
  ] as const) {
    writeWhole(join(data, name), text, OWNER_ONLY);
    if (owner !== undefined) chownSync(join(data, name), owner, owner);
  }
  rmSync(join(folder, FOLDER), { recursive: true, force: true });
  mkdirSync(join(folder, FOLDER), { mode: 0o700 });
  const files = postgresClientFiles(folder);
  writeWhole(files.ca, issuer.cert, OWNER_ONLY);
  writeWhole(files.cert, client.cert, OWNER_ONLY);
  writeWhole(files.key, client.key, OWNER_ONLY);
}

/** Rules of pg_hba.conf that accept TLS connections alone. */
export const securedRules = (rules: string): string => rules.replace(/^host(?=\s)/gm, 'hostssl');

/** TLS parameters of the address. */
export const postgresTlsParams = (folder: string): string =>
  `sslmode=verify-full&sslrootcert=${encodeURIComponent(postgresClientFiles(folder).ca)}`;
