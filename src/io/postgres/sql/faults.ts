/** Mapping of server and socket errors to MillraceErrors, common to all drivers. */
import { coreError, MillraceError } from '../../../core/errors.ts';
import { Secrets } from '../../../core/secrets.ts';
import { tlsRemedy } from '../tls.ts';
import { type SqlOptions, sqlError } from './port.ts';

/** SQLSTATEs that blame the connection and not the statement. 25P03 to 25P05 end a session that was
 *  idle, or in its transaction, for too long. */
const CONNECTION_LOST = /^(08|57P0[1-5]$|53300$|25P0[345]$)/;
/** SQLSTATEs of a refused connection that only other settings cure. */
const REFUSED = /^(28|3D000$)/;
/** SQLSTATEs of a server that accepts the same statement later: out of disk, memory or a configured
 *  limit (53), a failing device (58), stopping (57P), read-only (25006). */
const NOT_NOW = /^(53|58|57P|25006$)/;
const SOCKET_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOENT',
  'EACCES',
]);
/** Messages of pg for a lost connection; pg gives them no code. A contract test covers each. */
const LOST_TEXTS =
  /^(Connection terminated|timeout expired|timeout exceeded when trying to connect|Client has encountered a connection error|Client was closed|Query read timeout|Cannot use a pool after calling end)/;

/** Fields of a server error. */
export interface ServerFault {
  readonly sqlstate?: string | undefined;
  readonly message: string;
  readonly detail?: unknown;
  readonly constraint?: unknown;
  readonly table?: unknown;
  /** Next step after a failed TLS handshake. */
  readonly remedy?: string | undefined;
}

/** Server address for messages. */
export interface Where {
  /** host:port */
  readonly address: string;
  /** Flag that gives the address. */
  readonly flag: string;
  /** Credentials of the address: messages of servers and libraries may quote them, so they are
   *  hidden. */
  readonly secrets: Secrets;
}

/** Error of a fault. @param lost the connection is lost, whatever the SQLSTATE */
export function errorOf(fault: ServerFault, where: Where, lost: boolean, cause: unknown): MillraceError {
  const { sqlstate } = fault;
  const message = where.secrets.hide(fault.message);
  if (fault.remedy !== undefined) {
    return coreError('unreachable', `TLS to PostgreSQL at ${where.address} failed: ${message}`, {
      next: fault.remedy,
      cause,
      details: UNTRUSTED,
    });
  }
  if (sqlstate !== undefined && REFUSED.test(sqlstate)) {
    return coreError('unreachable', `PostgreSQL at ${where.address} refuses the connection: ${message}`, {
      next: `check user, password and database in ${where.flag}`,
      cause,
      details: { sqlstate },
    });
  }
  if (lost || (sqlstate !== undefined && CONNECTION_LOST.test(sqlstate))) {
    return coreError('unreachable', `PostgreSQL at ${where.address} is not reachable: ${message}`, {
      next: `check ${where.flag} and that the server accepts connections`,
      cause,
      details: sqlstate === undefined ? {} : { sqlstate },
    });
  }
  const isTemporary = sqlstate !== undefined && NOT_NOW.test(sqlstate);
  return sqlError(
    isTemporary ? 'sql_unavailable' : 'sql_failed',
    `PostgreSQL refused a statement: ${message}`,
    {
      cause,
      details: { sqlstate, constraint: fault.constraint, table: fault.table, detail: fault.detail },
    },
  );
}

/** Converts any rejection of pg; keeps the SQLSTATE. */
export function toError(thrown: unknown, where: Where): MillraceError {
  if (thrown instanceof MillraceError) return thrown;
  // When all addresses of a host name failed, the error is an aggregate without a message.
  const first =
    thrown instanceof AggregateError && thrown.errors.length > 0 ? (thrown.errors[0] as unknown) : thrown;
  const fault = (typeof first === 'object' && first !== null ? first : { message: String(first) }) as Record<
    string,
    unknown
  >;
  const code = typeof fault['code'] === 'string' ? fault['code'] : '';
  const message = typeof fault['message'] === 'string' ? fault['message'] : String(first);
  const sqlstate = /^[0-9A-Z]{5}$/.test(code) && !SOCKET_CODES.has(code) ? code : undefined;
  const { detail, constraint, table } = fault;
  return errorOf(
    { sqlstate, message, detail, constraint, table, remedy: tlsRemedy(code, message) },
    where,
    SOCKET_CODES.has(code) || LOST_TEXTS.test(message),
    thrown,
  );
}

/** Details of an error that settings cure. */
const UNTRUSTED = { refusal: 'postgres_untrusted' } as const;
/** SQLSTATE class of refused credentials. */
const UNAUTHENTICATED = /^28/;

/** Error of the first connection of a pool: what the server refuses then, it refuses again. */
export function firstFault(thrown: unknown): unknown {
  if (!(thrown instanceof MillraceError) || thrown.code !== 'unreachable') return thrown;
  const { details, message, next } = thrown;
  const isRefused = UNAUTHENTICATED.test(String(details['sqlstate']));
  const code = isRefused ? 'postgres_unauthenticated' : details['refusal'];
  if (code !== 'postgres_unauthenticated' && code !== 'postgres_untrusted') return thrown;
  return sqlError(code, message, { ...(next === undefined ? {} : { next }), cause: thrown, details });
}

/** Error of a COMMIT without an answer: the transaction is whole or absent. */
export function commitUnknown(lost: MillraceError): MillraceError {
  return sqlError('commit_unknown', 'the connection was lost while the transaction committed', {
    next: 'read back what it would have written before trying again',
    cause: lost,
    details: lost.details,
  });
}

/** Error of a caller that ignored a failed statement: the server then answers COMMIT with ROLLBACK
 *  and no error. */
export function rolledBackAtCommit(): MillraceError {
  return sqlError('sql_failed', 'the transaction was rolled back at COMMIT', {
    details: { sqlstate: '25P02' },
  });
}

/** Parameters of an address whose values are secret. */
const SECRET_PARAMS = ['password', 'sslpassword'];

function badAddress(why: string, next = 'give postgres://user:password@host:port/database'): MillraceError {
  return coreError('bad_value', `the PostgreSQL address ${why}`, { next });
}

/** Credentials of an address. @throws bad_value for an address that URL parsers could split
 *  differently */
function secretsOf(url: string, parsed: URL): Secrets {
  const afterHost = url.replace(/^[^:]*:\/\/[^/?#]*/, '').replace(/([?&]user=)[^&]*/, '$1');
  if (afterHost.includes('@')) {
    throw badAddress('has an @ after the host', 'write / ? # and @ of a user or password as %2F %3F %23 %40');
  }
  const secrets = [parsed.password, ...SECRET_PARAMS.map((name) => parsed.searchParams.get(name) ?? '')];
  try {
    for (const text of [parsed.username, parsed.password, parsed.pathname]) decodeURIComponent(text);
  } catch {
    throw badAddress('has an invalid percent encoding', 'write %25 for a percent sign');
  }
  return new Secrets(secrets);
}

/** Parses the address. @throws bad_value */
export function whereOf({ url, flag = '-postgres' }: Pick<SqlOptions, 'url' | 'flag'>): Where {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw badAddress('is not a URL');
  }
  if (parsed.protocol !== 'postgres:' && parsed.protocol !== 'postgresql:') {
    throw badAddress('does not start with postgres://');
  }
  const host = parsed.searchParams.get('host') ?? (parsed.hostname === '' ? 'localhost' : parsed.hostname);
  const secrets = secretsOf(url, parsed);
  return { address: `${host}:${parsed.port === '' ? 5432 : parsed.port}`, flag, secrets };
}
