/** TLS settings of a PostgreSQL address: the meaning that they have in libpq. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ConnectionOptions, PeerCertificate } from 'node:tls';
import { afterAll, describe, expect, it } from 'vitest';
import { pgConnection, tlsRemedy } from '../../../../src/io/postgres/tls.ts';

const dir = mkdtempSync(join(tmpdir(), 'millrace-tls-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const file = (name: string): string => {
  writeFileSync(join(dir, name), name);
  return join(dir, name);
};
const [ca, cert, key] = [file('ca'), file('cert'), file('key')] as const;
const AT = 'postgres://u:p%40@db.internal:5433/shop';
const OTHER = { subject: { CN: 'other' }, subjectaltname: 'DNS:other' } as unknown as PeerCertificate;

const sslOf = (params: string, env = {}, at = AT): ConnectionOptions | false =>
  pgConnection(`${at}${params}`, env).ssl;
/** Checks that the settings imply: of the authority, and of the name. */
function checks(params: string, env = {}, at = AT): readonly [boolean, boolean] | false {
  const ssl = sslOf(params, env, at);
  if (ssl === false) return false;
  const checksName = ssl.checkServerIdentity?.('localhost', OTHER) !== undefined;
  return [ssl.rejectUnauthorized === true, ssl.rejectUnauthorized === true && checksName];
}

describe('sslmode', () => {
  it.each<readonly [string, readonly [boolean, boolean] | false]>([
    ['', false],
    ['?sslmode=disable', false],
    [`?sslmode=disable&sslrootcert=${ca}`, false],
    ['?sslmode=require', [false, false]],
    [`?sslmode=require&sslrootcert=${ca}`, [true, false]],
    [`?sslmode=verify-ca&sslrootcert=${ca}`, [true, false]],
    ['?sslmode=verify-full', [true, true]],
    ['?sslmode=verify-full&sslrootcert=system', [true, true]],
    ['?sslmode=no-verify', [false, false]],
    [`?sslrootcert=${ca}`, [true, true]],
    ['?ssl=true', [true, true]],
    ['?ssl=false', false],
    ['?sslnegotiation=direct', [true, true]],
  ])('the address with %s checks authority and name as %j', (params, expected) => {
    expect(checks(params)).toEqual(expected);
  });

  it.each<readonly [string, RegExp]>([
    ['?sslmode=prefer', /falls back to an unencrypted connection/],
    ['?sslmode=verify_full', /unknown sslmode=verify_full/],
    ['?sslmode=verify-ca', /verify-ca without sslrootcert/],
    [`?sslmode=require&sslcert=${cert}`, /one of sslcert and sslkey/],
    ['?sslmode=verify-full&sslrootcert=/no/such/file', /sslrootcert=\/no\/such\/file cannot be read/],
  ])('the address with %s is refused before a connection', (params, message) => {
    expect(() => sslOf(params)).toThrow(message);
  });

  it('the environment gives what the address does not', () => {
    expect(checks('', { PGSSLMODE: 'verify-full' })).toEqual([true, true]);
    expect(checks('', { PGSSLROOTCERT: ca })).toEqual([true, true]);
    expect(checks('?sslmode=disable', { PGSSLMODE: 'verify-full' })).toBe(false);
    const env = { PGSSLMODE: 'verify-ca', PGSSLROOTCERT: ca, PGSSLCERT: cert, PGSSLKEY: key };
    expect(sslOf('?sslpassword=secret', env)).toMatchObject({
      ...{ ca: 'ca', cert: 'cert', key: 'key', passphrase: 'secret' },
      servername: 'db.internal',
    });
  });

  it('the address that pg gets has everything but the TLS settings', () => {
    const { connectionString } = pgConnection(
      `${AT}?options=-c%20search_path%3Dx&sslmode=require&ssl=1&sslrootcert=${ca}`,
      {},
    );
    expect(connectionString).toBe(`${AT}?options=-c%20search_path%3Dx`);
  });

  it('an address that is a number is compared with the certificate itself', () => {
    const ssl = sslOf('?sslmode=verify-full', {}, 'postgres://u@127.0.0.1/x') as ConnectionOptions;
    expect(ssl.servername).toBeUndefined();
    const of = (subjectaltname: string): PeerCertificate =>
      ({ subject: { CN: 'x' }, subjectaltname }) as unknown as PeerCertificate;
    expect(ssl.checkServerIdentity?.('localhost', of('DNS:localhost'))).toBeInstanceOf(Error);
    expect(ssl.checkServerIdentity?.('localhost', of('IP Address:127.0.0.1'))).toBeUndefined();
  });
});

it.each<readonly [string, string, RegExp | undefined]>([
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'Hostname/IP does not match', /connect by a name/],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'self-signed certificate', /as sslrootcert/],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'unable to verify', /as sslrootcert/],
  ['', 'The server does not support SSL connections', /ssl=on/],
  ['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'alert', /sslcert and sslkey/],
  ['ECONNREFUSED', 'connect ECONNREFUSED', undefined],
  ['28P01', 'password authentication failed', undefined],
])('the next step after %s fits the error', (code, message, expected) => {
  const found = tlsRemedy(code, message);
  if (expected === undefined) expect(found).toBeUndefined();
  else expect(found).toMatch(expected);
});
