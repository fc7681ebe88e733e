/** The libpq driver of TextPool: pg-native's binding, for hot paths. */
import { coreError } from '../../../core/errors.ts';
import { whereOf } from './faults.ts';
import { NativeConnection } from './pg-native-connection.ts';
import { whyNoLibpq } from './pg-native-load.ts';
import type { TextDriver, TextOptions, TextPool } from './port.ts';
import { ConnectionPool } from './text-pool.ts';

/** Parameters of an address that ask for TLS: `pg` and libpq read them differently, and a certificate that one checks the
 *  other takes unseen. */
const TLS_PARAMS = ['ssl', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'sslnegotiation', 'uselibpqcompat'];
/** The same of the environment, which counts where the address says nothing. */
const TLS_VARIABLES = ['PGSSLMODE', 'PGSSLROOTCERT', 'PGSSLCERT', 'PGSSLKEY', 'PGSSLNEGOTIATION'];

/** Seconds until the first question, seconds between questions, questions without an answer. */
const KEEPALIVES = { keepalives_idle: '10', keepalives_interval: '2', keepalives_count: '5' } as const;

/** Why this driver cannot serve the address; undefined where it can. */
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

/** The address with what both drivers must agree on said outright. */
function conninfoOf(options: TextOptions): string {
  const url = new URL(options.url);
  if (url.hostname === '' && !url.searchParams.has('host')) url.hostname = 'localhost';
  const { searchParams } = url;
  searchParams.set('sslmode', 'disable');
  searchParams.set('gssencmode', 'disable');
  searchParams.set('client_encoding', 'UTF8');
  searchParams.set('application_name', options.applicationName);
  // libpq takes whole seconds, and reads 1 as 2.
  searchParams.set('connect_timeout', String(Math.max(2, Math.ceil(options.connectTimeoutMs / 1000))));
  // Unacknowledged bytes end a connection no later than an answer that does not come.
  searchParams.set('tcp_user_timeout', String(Math.ceil(options.answerTimeoutMs)));
  // With nothing under way the other side is asked whether it is there, unless the address says otherwise.
  for (const [name, value] of Object.entries(KEEPALIVES))
    if (!searchParams.has(name)) searchParams.set(name, value);
  // libpq would print what the server remarks to stderr.
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
