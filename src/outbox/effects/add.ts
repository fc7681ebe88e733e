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
import { canonicalUuid, uuidV5 } from '../ids.ts';
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
  /** Idempotency key that the third party sees: a UUID that no effect of another name or key has.
   *  An effect that the table has already is not added again. Default: a new UUIDv7. */
  readonly id?: string;
  /** UUID of the message that decides on the effect, instead of `id`: the id is then the UUIDv5 of
   *  the message id and the name. A redelivered message adds no second effect, and effects of
   *  several names have different ids. */
  readonly messageId?: string;
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
ON CONFLICT (effect_id) DO NOTHING
RETURNING effect_id::text AS id`;
  return {
    plain: insert(''),
    guarded: `WITH ${GUARD}, added AS (${insert(' FROM guard WHERE guard.open')})
SELECT guard.open::text AS open, added.id FROM guard LEFT JOIN added ON true`,
  };
}

/** Adds one effect; a runner calls its handler after the commit. Nothing is added if the table has
 *  the effect: its id, name and key.
 *  @param tx an open transaction: our SqlSession, a `pg` client, or an adapter of
 *    `millrace/outbox/adapters`
 *  @param table table of effectsTableSql, `name` or `schema.name`
 *  @returns the effect's id
 *  @throws bad_table_name, not_in_transaction; bad_effect, also for an id that an effect of another
 *    name or key has; all without a row; errors of the client
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
  const [effectName, key] = [nameOf(given.name), keyOf(given.key)];
  const fields = [effectName, key, input, trace?.traceparent ?? null];
  const givenId = idOf(given, effectName);
  const id = givenId ?? systemIds.next();
  const state = trace?.tracestate;
  const withState = state !== undefined && (await hasColumn(tx, name, 'tracestate'));
  const params = [id, ...fields, ...(withState ? [state] : [])];
  const [row] = await queryInTransaction(tx, insertSql(name, withState), params);
  const isAdded = typeof row?.['id'] === 'string';
  if (givenId !== undefined && !isAdded) await requireRepeat(tx, name, { id, name: effectName, key });
  return id;
}

/** Checks that the effect of an id is the given one: dropping another would lose it.
 *  @throws bad_effect */
async function requireRepeat(
  tx: OpenTransaction,
  table: string,
  { id, name, key }: Readonly<Record<'id' | 'name' | 'key', string>>,
): Promise<void> {
  // A row that was deleted meanwhile was done.
  const { rows } = await tx.query(`SELECT name, key FROM ${table} WHERE effect_id = $1::uuid`, [id]);
  const other = rows.find((row) => row['name'] !== name || row['key'] !== key);
  if (other === undefined) return;
  throw outboxError(
    'bad_effect',
    `the id ${id} is that of an effect ${shown(other['name'])} of the key ${shown(other['key'])}, so the effect ${shown(name)} of the key ${shown(key)} cannot have it; no row was written`,
    { next: 'give effects of one message its id as messageId, or give each effect an id of its own' },
  );
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

/** Returns the id that the caller chose, directly or by a message; undefined: none. */
function idOf({ id, messageId }: NewEffect, name: string): string | undefined {
  if (id !== undefined && messageId !== undefined)
    throw bad('the effect has an id, and a messageId from which the id would be derived');
  if (messageId !== undefined) return uuidV5(uuidOf(messageId, 'messageId'), name);
  return id === undefined ? undefined : uuidOf(id, 'id');
}

function uuidOf(value: unknown, field: string): string {
  const id = typeof value === 'string' ? canonicalUuid(value) : undefined;
  if (id === undefined) throw bad(`${field} is not a UUID: ${shown(value)}`);
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
