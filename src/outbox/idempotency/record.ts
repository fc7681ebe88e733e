/** Record of a key inside an open transaction.
 *
 *  Invariants: (1) at most one transaction has claimed a key, by the primary key of the table; (2)
 *  a record commits only with the effect of its request, because both are in one transaction; (3) a
 *  record is never changed once it has a status.
 */
import { invariant } from '../../core/errors.ts';
import { type OpenTransaction, requireOpen } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import {
  ANSWER_BYTES_MAX,
  type AnswerColumns,
  allowedHeaders,
  decodeAnswer,
  type EndpointAnswer,
  encodeAnswer,
  REPLAYED_HEADERS,
} from './answer.ts';
import { type FingerprintPart, fingerprint, lockOf } from './fingerprint.ts';
import { isKey } from './key.ts';
import type { Fused } from './source.ts';
import { TABLE_DEFAULT, type TableSql, tableSql, withLiterals } from './table.ts';

/** Request with its key. */
export interface KeyedRequest {
  /** Tenant: keys of different scopes have nothing in common. 1 to 255 characters. */
  readonly scope: string;
  readonly key: string;
  /** SHA-256 of the request, 32 bytes. */
  readonly fingerprint: Buffer;
}

/** State of a key in the table. */
export type KeyClaim =
  | { readonly kind: 'claimed' }
  | { readonly kind: 'stored'; readonly columns: AnswerColumns; readonly fingerprint: string }
  | { readonly kind: 'in_flight'; readonly fingerprint?: string };

type Row = Readonly<Record<string, unknown>>;

/** Number of claims of one call: a key may expire between two statements. */
export const CLAIMS_MAX = 3;

/** Reads the columns of a record; a record without a status is in flight. */
export function foundOf(row: Row | undefined): KeyClaim | undefined {
  const hash = row?.['fingerprint'];
  if (row === undefined || typeof hash !== 'string') return undefined;
  if (typeof row['status'] !== 'string') return { kind: 'in_flight', fingerprint: hash };
  const columns = {
    status: Number(row['status']),
    headers: String(row['headers']),
    body: Buffer.from(String(row['body']), 'base64'),
  };
  return { kind: 'stored', columns, fingerprint: hash };
}

/** Refuses a key that belongs to another request. @throws idempotency_key_reused */
export function requireSame(found: string | undefined, request: KeyedRequest): void {
  if (found === undefined || found === request.fingerprint.toString('hex')) return;
  throw outboxError('idempotency_key_reused', 'the key was used before with another request', {
    next: 'use a new key for a new request',
    details: { idempotency_key: request.key },
  });
}

const SCOPE_CHARS_MAX = 255;

/** Refuses a scope that the table cannot hold, or that names no tenant. An empty scope would give
 *  all unknown tenants the keys of each other. @throws bad_option */
export function requireScope(scope: unknown): string {
  if (
    typeof scope === 'string' &&
    scope.length > 0 &&
    scope.length <= SCOPE_CHARS_MAX &&
    !/[\0\p{Surrogate}]/u.test(scope)
  )
    return scope;
  const seen = typeof scope === 'string' ? `a text of ${scope.length} characters` : String(scope);
  throw outboxError('bad_option', `the scope of a request is ${seen}`, {
    next: `return the tenant of the request, 1 to ${SCOPE_CHARS_MAX} characters; refuse unknown callers before`,
  });
}

/** Claims the key for the rest of the transaction, or returns what it found. Never waits for the
 *  transaction of another request.
 *  @param ttlMs retention of the record
 *  @param idleMs time that the transaction may be idle before the server ends it
 *  @throws idempotency_key_reused */
export async function claimKey(
  tx: OpenTransaction,
  sql: TableSql,
  request: KeyedRequest,
  ttlMs: number,
  idleMs?: number,
): Promise<KeyClaim> {
  const { scope, key } = request;
  const idle = idleMs === undefined ? '' : String(idleMs);
  const lock = lockOf(sql.table, scope, key);
  const params = [scope, key, request.fingerprint, ttlMs, lock, idle];
  for (let count = 0; count < CLAIMS_MAX; count++) {
    if ((await tx.query(sql.claim, params)).rows.length === 1) return { kind: 'claimed' };
    const claim = judgeFound((await tx.query(sql.find, [scope, key, lock])).rows[0], request);
    if (claim !== undefined) return claim;
  }
  return { kind: 'in_flight' };
}

/** Claim of a key that another transaction has or had.
 *  @returns undefined if the record has expired between the two statements: claim again
 *  @throws idempotency_key_reused */
function judgeFound(row: Row | undefined, request: KeyedRequest): KeyClaim | undefined {
  const found = foundOf(row);
  if (found !== undefined && found.kind !== 'claimed') requireSame(found.fingerprint, request);
  if (found !== undefined) return found;
  // Free without a record: the other transaction has ended meanwhile, or the record has expired.
  return row?.['free'] === 'true' ? undefined : { kind: 'in_flight' };
}

/** Statements of claimKey as texts: the first is sent with BEGIN, the second with COMMIT. */
export function fusedClaim(sql: TableSql, request: KeyedRequest, ttlMs: number, idleMs: number) {
  const { scope, key } = request;
  const lock = lockOf(sql.table, scope, key);
  return {
    first: withLiterals(sql.claim, [scope, key, request.fingerprint, ttlMs, lock, String(idleMs)]),
    /** Claims the key, or returns what it found and ends the transaction. @returns as judgeFound */
    async claim(fused: Fused): Promise<KeyClaim | undefined> {
      if (fused.first.length === 1) return { kind: 'claimed' };
      const [row] = await fused.finish(withLiterals(sql.find, [scope, key, lock]));
      return judgeFound(row, request);
    },
  };
}

/** Stores the answer of a key that this transaction claimed. */
export async function storeAnswer(
  tx: OpenTransaction,
  sql: TableSql,
  { scope, key }: KeyedRequest,
  { status, headers, body }: AnswerColumns,
): Promise<void> {
  const { rows } = await tx.query(sql.store, [scope, key, status, headers, body]);
  invariant(rows.length === 1, 'a key that this transaction claimed has no record');
}

/** Request of `idempotent`. */
export interface IdempotentRequest {
  readonly scope: string;
  readonly key: string;
  /** Parts of the request that make two requests the same. */
  readonly parts: readonly FingerprintPart[];
  /** Retention of the record, ms. */
  readonly ttlMs: number;
  /** Default `idempotency`. */
  readonly table?: string;
  /** Headers to store; default REPLAYED_HEADERS. */
  readonly headers?: readonly string[];
  /** Default ANSWER_BYTES_MAX. */
  readonly answerBytesMax?: number;
}

/** Outcome of `idempotent`. */
export type Idempotent =
  /** The effect took place in this transaction. */
  | { readonly kind: 'done'; readonly answer: EndpointAnswer }
  /** A committed transaction had the effect; this is its answer. */
  | { readonly kind: 'replayed'; readonly answer: EndpointAnswer }
  /** Another transaction has the key and has not ended. */
  | { readonly kind: 'in_flight' };

const STATEMENTS = new Map<string, TableSql>();

/** Returns the statements on a table, built once. @throws bad_table_name */
function statementsOf(table: string): TableSql {
  const sql = STATEMENTS.get(table) ?? tableSql(table);
  STATEMENTS.set(table, sql);
  return sql;
}

/** Runs an effect once for each key, in the caller's open transaction: the key's record and the
 *  effect commit or roll back together. `idempotency` opens the transactions itself and serves a
 *  whole endpoint.
 *  @throws not_in_transaction, bad_table_name, idempotency_key_reused, answer_too_large; errors of
 *    the effect, after which the transaction can only be rolled back
 *  @example
 *  const order = { scope: 'tenant-1', key: 'order-7', parts: ['createOrder', 7], ttlMs: 86_400_000
 *  }; const outcome = await idempotent(client, order, async () => {
 *    await client.query('INSERT INTO orders (id) VALUES ($1)', [7]);
 *    return { status: 201, headers: [], body: Buffer.from('{"id":7}') };
 *  });
 */
export async function idempotent(
  tx: OpenTransaction,
  request: IdempotentRequest,
  effect: () => Promise<EndpointAnswer>,
): Promise<Idempotent> {
  const { scope, key, parts, ttlMs, table = TABLE_DEFAULT } = request;
  const sql = statementsOf(table);
  const allowed = allowedHeaders(request.headers ?? REPLAYED_HEADERS);
  if (!isKey(key)) throw outboxError('bad_idempotency_key', 'the key is not 1 to 255 visible characters');
  const keyed = { scope: requireScope(scope), key, fingerprint: fingerprint(parts) };
  await requireOpen(tx);
  const claim = await claimKey(tx, sql, keyed, ttlMs);
  if (claim.kind === 'in_flight') return { kind: 'in_flight' };
  if (claim.kind === 'stored') return { kind: 'replayed', answer: decodeAnswer(claim.columns, allowed) };
  try {
    const answer = await effect();
    await storeAnswer(
      tx,
      sql,
      keyed,
      encodeAnswer(answer, allowed, request.answerBytesMax ?? ANSWER_BYTES_MAX),
    );
    return { kind: 'done', answer };
  } catch (thrown) {
    // Aborts the transaction, so that a COMMIT of the caller rolls back.
    await tx.query(`DO $$ BEGIN RAISE EXCEPTION 'the effect of a key failed'; END $$`, []).catch(() => {});
    throw thrown;
  }
}
