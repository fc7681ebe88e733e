/** TextPool driver over libpq (the binding of pg-native), for hot paths. */
import { coreError } from '../../../core/errors.ts';
import { whereOf } from './faults.ts';
import { NativeConnection } from './pg-native-connection.ts';
import { whyNoLibpq } from './pg-native-load.ts';
import type { TextDriver, TextOptions, TextPool } from './port.ts';
import { ConnectionPool } from './text-pool.ts';

/** Parameters of an address that ask for TLS. `pg` and libpq interpret them differently: one may
 *  check a certificate that the other accepts unchecked. */
const TLS_PARAMS = ['ssl', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslnegotiation', 'uselibpqcompat'];
/** Environment variables that ask for TLS when the address does not. */
const TLS_VARIABLES = ['PGSSLMODE', 'PGSSLROOTCERT', 'PGSSLCERT', 'PGSSLKEY', 'PGSSLNEGOTIATION'];

/** TCP keepalive: seconds until the first probe, seconds between probes, unanswered probes. */
const KEEPALIVES = { keepalives_idle: '10', keepalives_interval: '2', keepalives_count: '5' } as const;

/** Reason that this driver cannot serve the address, or undefined. */
export function whyNotNative(
  url: string,
  env: Readonly<Record<string, string | undefined>> = process.env,
): string | undefined {
  const missing = whyNoLibpq();
  if (missing !== undefined) return `libpq does not load: ${missing}`;
  const { searchParams } = new URL(url);
  if (searchParams.get('sslmode') === 'disable') return undefined;
  const tls = TLS_PARAMS.find((name) => searchParams.has(name));
  if (tls !== undefined) return `the address asks for TLS (${tls}), which is left to pg`;
  if (env['PGSSLMODE'] === 'disable') return undefined;
  const variable = TLS_VARIABLES.find((name) => (env[name] ?? '') !== '');
  if (variable !== undefined) return `the environment asks for TLS (${variable}), which is left to pg`;
  return undefined;
}

/** Connection string of libpq, with the settings explicit on which both drivers must agree. */
function conninfoOf(options: TextOptions): string {
  const url = new URL(options.url);
  if (url.hostname === '' && !url.searchParams.has('host')) url.hostname = 'localhost';
  const { searchParams } = url;
  searchParams.set('sslmode', 'disable');
  searchParams.set('gssencmode', 'disable');
  searchParams.set('client_encoding', 'UTF8');
  searchParams.set('application_name', options.applicationName);
  // libpq accepts whole seconds and treats 1 as 2.
  searchParams.set('connect_timeout', String(Math.max(2, Math.ceil(options.connectTimeoutMs / 1000))));
  // Unacknowledged bytes end a connection no later than an overdue answer.
  searchParams.set('tcp_user_timeout', String(Math.ceil(options.answerTimeoutMs)));
  // Keepalive probes an idle connection, unless the address has its own values.
  for (const [name, value] of Object.entries(KEEPALIVES))
    if (!searchParams.has(name)) searchParams.set(name, value);
  // libpq would print notices of the server to stderr.
  const given = searchParams.get('options') ?? '';
  searchParams.set('options', `${given} -c client_min_messages=error`.trim());
  url.search = url.search.replaceAll('+', '%20');
  return url.toString();
}

export const pgNativeDriver: TextDriver = {
  name: 'pg-native',
  async connect(options): Promise<TextPool> {
    const where = whereOf(options);
    const why = whyNotNative(options.url);
    if (why !== undefined) {
      throw coreError('bad_value', `-sql=native cannot serve this: ${why}`, {
        next: 'run with -sql=pg, or leave it to -sql=auto',
      });
    }
    const { answerTimeoutMs, onOverdue } = options;
    const native = { conninfo: conninfoOf(options), where, answerTimeoutMs, onOverdue };
    const pool = new ConnectionPool(() => NativeConnection.open(native), options.connectionsMax);
    await pool.start();
    return pool;
  },
};
