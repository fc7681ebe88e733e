/** Options of idempotent endpoints, checked, with their defaults. */
import type { Random, Timers } from '../../core/clock.ts';
import type { Metrics } from '../../core/metrics.ts';
import { outboxError } from '../errors.ts';
import { type KnownNames, refuseUnknown } from '../options.ts';
import { systemRandomness, systemTimers } from '../system.ts';
import {
  ANSWER_BYTES_LIMIT,
  ANSWER_BYTES_MAX,
  allowedHeaders,
  REPLAYED_HEADERS,
  storedByDefault,
} from './answer.ts';
import type { FingerprintPart } from './fingerprint.ts';
import { type PgPoolLike, sourceOf, type TransactionSource } from './source.ts';
import { TABLE_DEFAULT, type TableSql, tableSql } from './table.ts';

/** Request as the fingerprint selector sees it. */
export interface SelectedRequest<Request> {
  readonly request: Request;
  /** `POST` and the like; `gRPC` for a call. */
  readonly method: string;
  /** Path with its query; the path of the method for a call. */
  readonly path: string;
  /** Bytes where the endpoint has read them, otherwise what the framework has parsed; undefined
   *  without a body. To read it fails for a body that neither has read, such as a streamed upload:
   *  select what else identifies the request. */
  readonly body: unknown;
}

// biome-ignore lint/suspicious/noExplicitAny: each framework has its own type of request
export interface IdempotencyOptions<Tx, Request = any> {
  /** Pool of `pg`, pool of `millrace/drivers`, or a function that opens transactions of any client.
   */
  readonly sql: PgPoolLike<Tx> | TransactionSource<Tx>;
  /** Tenant of a request. Keys of different tenants have nothing in common. Take it from the
   *  authenticated caller, never from a header that a client may choose. */
  readonly scope: (request: Request) => string | Promise<string>;
  /** Retention of a key and its answer, ms. */
  readonly ttlMs: number;
  /** Time for which clients repeat a request, ms; a shorter `ttlMs` is refused. */
  readonly retryWindowMs?: number;
  /** Table of idempotencyTableSql; default `idempotency`. */
  readonly table?: string;
  /** Parts that make two requests the same; default method, path and body. */
  readonly fingerprint?: (selected: SelectedRequest<Request>) => readonly FingerprintPart[];
  /** Time that a request waits for another one with its key, ms; 0: no wait, 409. */
  readonly waitMs?: number;
  /** Time after which another process may continue: idle time of an open transaction, or lease of a
   *  request with recovery points, ms. */
  readonly leaseMs?: number;
  /** Requests of one process that may wait at the same time. */
  readonly waitingMax?: number;
  /** Headers that are stored and replayed; default REPLAYED_HEADERS. */
  readonly headers?: readonly string[];
  /** True if an answer with this status is stored; an answer that is not stored is rolled back. */
  readonly stores?: (status: number) => boolean;
  /** Largest stored answer, bytes of headers and body. */
  readonly answerBytesMax?: number;
  /** Largest body that the endpoint reads itself, bytes. */
  readonly bodyBytesMax?: number;
  /** Status for a key that was used with another request. */
  readonly reusedStatus?: 409 | 422;
  /** Receives errors that no caller gets: of the pruning, of lease renewals, and of a handler
   *  without a framework. Default: none. */
  readonly onError?: (error: unknown) => void;
  readonly metrics?: Metrics;
  readonly clock?: Timers;
  readonly random?: Random;
}

const KNOWN: KnownNames<IdempotencyOptions<unknown>> = {
  sql: true,
  scope: true,
  ttlMs: true,
  retryWindowMs: true,
  table: true,
  fingerprint: true,
  waitMs: true,
  leaseMs: true,
  waitingMax: true,
  headers: true,
  stores: true,
  answerBytesMax: true,
  bodyBytesMax: true,
  reusedStatus: true,
  onError: true,
  metrics: true,
  clock: true,
  random: true,
};

/** Defaults of idempotent endpoints. */
export const IDEMPOTENCY_DEFAULTS = {
  table: TABLE_DEFAULT,
  waitMs: 10_000,
  /** A crash is noticed when the connection closes; a vanished host within this time. */
  leaseMs: 4000,
  waitingMax: 1000,
  answerBytesMax: ANSWER_BYTES_MAX,
  bodyBytesMax: 1024 * 1024,
  reusedStatus: 409,
} as const satisfies Partial<IdempotencyOptions<unknown>>;

const YEAR_MS = 366 * 86_400_000;
/** Bounds of the numbers, both included. */
const RANGES: Readonly<Record<string, readonly [from: number, to: number]>> = {
  ttlMs: [1000, 10 * YEAR_MS],
  retryWindowMs: [0, 10 * YEAR_MS],
  waitMs: [0, 600_000],
  leaseMs: [100, 600_000],
  waitingMax: [0, 1_000_000],
  answerBytesMax: [0, ANSWER_BYTES_LIMIT],
  bodyBytesMax: [0, ANSWER_BYTES_LIMIT],
};

/** Options with all defaults. */
export interface Resolved<Tx, Request> {
  readonly source: TransactionSource<Tx>;
  readonly sql: TableSql;
  readonly scope: (request: Request) => string | Promise<string>;
  readonly parts: (selected: SelectedRequest<Request>) => readonly FingerprintPart[];
  readonly ttlMs: number;
  readonly waitMs: number;
  readonly leaseMs: number;
  readonly waitingMax: number;
  readonly headers: ReadonlySet<string>;
  readonly stores: (status: number) => boolean;
  readonly answerBytesMax: number;
  readonly bodyBytesMax: number;
  readonly reusedStatus: number;
  readonly onError: (error: unknown) => void;
  readonly metrics: Metrics | undefined;
  readonly clock: Timers;
  readonly random: Random;
}

function requireRanges(options: Readonly<Record<string, unknown>>): void {
  for (const [name, [from, to]] of Object.entries(RANGES)) {
    const value = options[name];
    if (value === undefined || (Number.isInteger(value) && Number(value) >= from && Number(value) <= to))
      continue;
    throw outboxError('bad_option', `${name} is ${String(value).slice(0, 40)}`, {
      next: `give a whole number from ${from} to ${to}`,
    });
  }
}

/** @throws bad_option, bad_table_name */
export function resolveOptions<Tx, Request>(options: IdempotencyOptions<Tx, Request>): Resolved<Tx, Request> {
  refuseUnknown('idempotency', options, KNOWN);
  const { scope, ttlMs, retryWindowMs = 0, reusedStatus = IDEMPOTENCY_DEFAULTS.reusedStatus } = options;
  if (typeof scope !== 'function')
    throw outboxError('bad_option', 'idempotency needs a scope', {
      next: 'give a function that returns the tenant of a request; for one tenant () => "all"',
    });
  if (ttlMs === undefined)
    throw outboxError('bad_option', 'idempotency needs ttlMs', { next: 'give the retention of a key in ms' });
  requireRanges(options as unknown as Readonly<Record<string, unknown>>);
  if (ttlMs < retryWindowMs)
    throw outboxError('bad_option', `ttlMs (${ttlMs}) is shorter than retryWindowMs (${retryWindowMs})`, {
      next: 'keep keys at least as long as clients repeat requests; a later repeat would have its effect again',
    });
  if (reusedStatus !== 409 && reusedStatus !== 422)
    throw outboxError('bad_option', `reusedStatus is ${reusedStatus}`, { next: 'give 409 or 422' });
  const { waitMs, leaseMs, waitingMax, answerBytesMax, bodyBytesMax, table } = {
    ...IDEMPOTENCY_DEFAULTS,
    ...options,
  };
  return {
    source: sourceOf(options.sql),
    sql: tableSql(table),
    scope,
    parts: options.fingerprint ?? (({ method, path, body }) => [method, path, body]),
    ttlMs,
    waitMs,
    leaseMs,
    waitingMax,
    headers: allowedHeaders(options.headers ?? REPLAYED_HEADERS),
    stores: options.stores ?? storedByDefault,
    answerBytesMax,
    bodyBytesMax,
    reusedStatus,
    onError: options.onError ?? (() => {}),
    metrics: options.metrics,
    clock: options.clock ?? systemTimers,
    random: options.random ?? systemRandomness,
  };
}
