/** Adds effects to their table, in the transaction that decides on them.
 *
 *  Ordering rule: effects of one name and key are called in the order of their ids. As with
 *  `append`, an id is assigned at the INSERT and becomes visible at the commit. So every
 *  transaction that adds an effect for a key takes a common lock first, such as that of the
 *  aggregate's row.
 */
import { hasColumn } from '../database/column-check.ts';
import { GUARD, type GuardedSql, type OpenTransaction, queryInTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { isTraceparent, isTracestate, jsonOf } from '../given-values.ts';
import { canonicalUuid } from '../ids.ts';
import { systemIds } from '../system.ts';
import { activeTrace, type TraceContext } from '../tracing.ts';
import { effectsName } from './table.ts';

/** Largest input of an effect, in bytes of its JSON text. */
export const EFFECT_INPUT_BYTES_MAX = 256 * 1024;
const KEY_CHARS_MAX = 500;
const NAME = /^[a-z][a-z0-9_.-]{0,99}$/;

export interface NewEffect {
  /** Name of the handler that makes the call: 1 to 100 characters, lower-case letters, digits, `_`,
   *  `.` and `-`. */
  readonly name: string;
  /** Unit of ordering, such as an account: 1 to 500 characters. */
  readonly key: string;
  /** Value for the handler, as JSON. */
  readonly input: unknown;
  /** Idempotency key that the third party sees. Default: a new UUIDv7. In the handler of an inbox,
   *  give the message id: a redelivered message then adds no second effect. */
  readonly id?: string;
  /** W3C trace context of the cause. Default: the active span of OpenTelemetry. */
  readonly traceparent?: string;
  /** W3C tracestate of that `traceparent`. Default: that of the active span. */
  readonly tracestate?: string;
}

/** @param withState true: the sixth parameter is the tracestate */
function insertSql(table: string, withState: boolean): GuardedSql {
  const [column, parameter] = withState ? [', tracestate', ', $6::text'] : ['', ''];
  const insert = (guard: string): string => `
INSERT INTO ${table} (effect_id, name, key, input, traceparent${column})
SELECT $1::uuid, $2::text, $3::text, $4::text::json, $5::text${parameter}${guard}
ON CONFLICT (effect_id) DO NOTHING`;
  return {
    plain: insert(''),
    guarded: `WITH ${GUARD}, added AS (${insert(' FROM guard WHERE guard.open')})
SELECT open::text AS open FROM guard`,
  };
}

/** Adds one effect; a runner calls its handler after the commit. Nothing is added if the id exists.
 *  @param tx an open transaction: our SqlSession, a `pg` client, or an adapter of
 *    `millrace/outbox/adapters`
 *  @param table table of effectsTableSql, `name` or `schema.name`
 *  @returns the effect's id
 *  @throws bad_table_name, bad_effect, not_in_transaction, all before anything is written; errors
 *    of the client
 *  @example
 *  await client.query('BEGIN');
 *  await client.query('UPDATE orders SET state = $1 WHERE id = $2', ['paying', orderId]);
 *  const input = { orderId, cents: 1200 };
 *  await effect(client, 'effects', { name: 'capture', key: accountId, input });
 *  await client.query('COMMIT');
 */
export async function effect(tx: OpenTransaction, table: string, given: NewEffect): Promise<string> {
  const name = effectsName(table);
  if (typeof given !== 'object' || given === null) throw bad('the effect is not an object');
  const input = inputOf(given.input);
  const trace = traceOf(given);
  const fields = [nameOf(given.name), keyOf(given.key), input, trace?.traceparent ?? null];
  const id = idOf(given.id);
  const state = trace?.tracestate;
  const withState = state !== undefined && (await hasColumn(tx, name, 'tracestate'));
  await queryInTransaction(tx, insertSql(name, withState), [id, ...fields, ...(withState ? [state] : [])]);
  return id;
}

const shown = (value: unknown): string => JSON.stringify(String(value).slice(0, 60));
const bad = (why: string) =>
  outboxError('bad_effect', why, { next: 'correct the effect; no row was written' });

function nameOf(value: unknown): string {
  if (typeof value === 'string' && NAME.test(value)) return value;
  throw bad(`name is not a name of a handler: ${shown(value)}`);
}

function keyOf(value: unknown): string {
  const fits = typeof value === 'string' && value.length > 0 && value.length <= KEY_CHARS_MAX;
  if (fits && !value.includes('\u0000')) return value;
  throw bad(`key is not a text of 1 to ${KEY_CHARS_MAX} characters: ${shown(value)}`);
}

function idOf(value: unknown): string {
  if (value === undefined) return systemIds.next();
  const id = typeof value === 'string' ? canonicalUuid(value) : undefined;
  if (id === undefined) throw bad(`id is not a UUID: ${shown(value)}`);
  return id;
}

function traceOf({ traceparent, tracestate }: NewEffect): TraceContext | undefined {
  if (tracestate !== undefined && traceparent === undefined)
    throw bad('the effect has a tracestate without the traceparent that it belongs to');
  if (traceparent === undefined) return activeTrace();
  if (!isTraceparent(traceparent))
    throw bad(`traceparent is not of the form 00-TRACE-SPAN-FLAGS: ${shown(traceparent)}`);
  if (tracestate === undefined) return { traceparent };
  if (isTracestate(tracestate)) return { traceparent, tracestate };
  throw bad(`tracestate is not a list of KEY=VALUE: ${shown(tracestate)}`);
}

function inputOf(value: unknown): string {
  let text: string;
  try {
    text = jsonOf(value);
  } catch (thrown) {
    throw bad(`input is not a JSON value: ${(thrown as Error).message}`);
  }
  const bytes = Buffer.byteLength(text);
  if (bytes <= EFFECT_INPUT_BYTES_MAX) return text;
  throw bad(`input has ${bytes} bytes, at most ${EFFECT_INPUT_BYTES_MAX} are kept`);
}
