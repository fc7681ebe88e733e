/** TLS settings of a PostgreSQL address, with the meaning that they have in libpq. The package pg
 *  verifies the name of the server with every `sslmode` and reads no file from the environment, so
 *  its own parser does not see these settings. Source: PostgreSQL documentation, libpq, "SSL
 *  Support".
 */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { type ConnectionOptions, checkServerIdentity } from 'node:tls';
import { coreError, type MillraceError } from '../../core/errors.ts';

type Environment = Readonly<Record<string, string | undefined>>;

/** Connection settings of pg. */
export interface PgConnection {
  /** The address without its TLS settings. */
  readonly connectionString: string;
  readonly ssl: false | ConnectionOptions;
}

const MODES = ['disable', 'require', 'verify-ca', 'verify-full', 'no-verify'] as const;
type Mode = (typeof MODES)[number];

/** Parameters of the address; all but `sslpassword` also come from the environment (PGSSLMODE). */
const PARAMS = ['sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslpassword'] as const;
type Param = (typeof PARAMS)[number];
/** Parameters of pg that name no mode of libpq. */
const OTHERS = ['ssl', 'uselibpqcompat'] as const;
/** Value of `sslrootcert` for the authorities of the system. */
const SYSTEM = 'system';

const badTls = (why: string, next: string): MillraceError =>
  coreError('bad_value', `the PostgreSQL address ${why}`, { next });

/** Splits the TLS settings from an address.
 *  @param url valid address, see `whereOf`
 *  @throws bad_value, bad_file */
export function pgConnection(url: string, env: Environment = process.env): PgConnection {
  const parsed = new URL(url);
  const { searchParams } = parsed;
  const given = (name: Param): string | undefined => {
    const text = searchParams.get(name) ?? (name === 'sslpassword' ? '' : env[`PG${name.toUpperCase()}`]);
    return text === undefined || text === '' ? undefined : text;
  };
  const settings = Object.fromEntries(PARAMS.map((name) => [name, given(name)])) as Settings;
  const mode = modeOf(settings, searchParams);
  for (const name of [...PARAMS, ...OTHERS]) searchParams.delete(name);
  // Some URL parsers do not read a form-encoded plus as a space; all of them read %20.
  parsed.search = parsed.search.replaceAll('+', '%20');
  const host = searchParams.get('host') ?? (parsed.hostname === '' ? 'localhost' : parsed.hostname);
  return {
    connectionString: parsed.toString(),
    ssl: mode === 'disable' ? false : tlsOptions(mode, settings, host.replace(/^\[(.+)\]$/, '$1')),
  };
}

type Settings = Readonly<Record<Param, string | undefined>>;

/** Any other TLS setting without a mode asks for a verified server. */
function modeOf(settings: Settings, params: URLSearchParams): Mode {
  const { sslmode, sslrootcert, sslcert, sslkey } = settings;
  if (sslmode !== undefined) {
    const mode = MODES.find((one) => one === sslmode);
    if (mode !== undefined) return mode;
    const why = /^(allow|prefer)$/.test(sslmode)
      ? `has sslmode=${sslmode}, which falls back to an unencrypted connection`
      : `has an unknown sslmode=${sslmode.slice(0, 40)}`;
    throw badTls(why, `give sslmode=${MODES.join(', ')}`);
  }
  const ssl = params.get('ssl');
  if (ssl === 'no-verify') return 'no-verify';
  if (ssl !== null) return ssl === 'false' || ssl === '0' ? 'disable' : 'verify-full';
  const isAsked = [sslrootcert, sslcert, sslkey].some((one) => one !== undefined);
  return isAsked || params.get('sslnegotiation') === 'direct' ? 'verify-full' : 'disable';
}

function tlsOptions(mode: Mode, settings: Settings, host: string): ConnectionOptions {
  const { sslrootcert, sslcert, sslkey, sslpassword } = settings;
  if ((sslcert === undefined) !== (sslkey === undefined))
    throw badTls('has one of sslcert and sslkey', 'give both, or neither');
  const hasAuthority = sslrootcert !== undefined && sslrootcert !== SYSTEM;
  if (mode === 'verify-ca' && !hasAuthority)
    throw badTls(
      'has sslmode=verify-ca without sslrootcert',
      'give the certificate of the authority as sslrootcert, or use verify-full',
    );
  // libpq verifies the authority, but not the name, where require has an authority.
  const verifiesAuthority = mode.startsWith('verify-') || (mode === 'require' && hasAuthority);
  return {
    rejectUnauthorized: verifiesAuthority,
    // pg gives no name for an address that is a number, so the default check would compare with
    // "localhost".
    checkServerIdentity: (_name, certificate) =>
      mode === 'verify-full' ? checkServerIdentity(host, certificate) : undefined,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...(hasAuthority ? { ca: pem('sslrootcert', sslrootcert as string) } : {}),
    ...(sslcert === undefined ? {} : { cert: pem('sslcert', sslcert) }),
    ...(sslkey === undefined ? {} : { key: pem('sslkey', sslkey) }),
    ...(sslpassword === undefined ? {} : { passphrase: sslpassword }),
  };
}

function pem(param: Param, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw coreError('bad_file', `${param}=${path} cannot be read: ${(cause as Error).message}`, {
      next: 'give the path of a PEM file',
      cause,
    });
  }
}

/** Codes of OpenSSL and Node.js for a certificate that is not trusted. */
const UNTRUSTED =
  /^(ERR_TLS_CERT_ALTNAME_INVALID|CERT_|UNABLE_TO_|DEPTH_ZERO_SELF_SIGNED_CERT|SELF_SIGNED_CERT_IN_CHAIN|INVALID_CA|HOSTNAME_MISMATCH)/;

/** Next step for a failed TLS handshake; undefined for any other error. */
export function tlsRemedy(code: string, message: string): string | undefined {
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID')
    return 'connect by a name that the certificate of the server has, or use sslmode=verify-ca';
  if (UNTRUSTED.test(code)) return 'give the authority of the certificate of the server as sslrootcert';
  if (message.startsWith('The server does not support SSL'))
    return 'configure TLS on the server (ssl=on), or give sslmode=disable';
  if (/^ERR_(SSL|OSSL|TLS)_/.test(code)) return 'check sslmode, and the files of sslcert and sslkey';
  return undefined;
}
