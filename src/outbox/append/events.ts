/** Appends events to an outbox, in the transaction that makes them true.
 *
 *  Ordering rule: an id is assigned when a row is inserted, and the row becomes visible when its
 *  transaction commits. So events of one aggregate are published in order only if every transaction
 *  that appends for it takes a common lock first, in a separate statement. The lock is the INSERT
 *  of the aggregate's row, SELECT … FOR UPDATE of that row, or `lockAggregates` where no such row
 *  exists. Then the second transaction appends after the first has committed.
 */

import { GUARD, type GuardedSql, type OpenTransaction, queryInTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { isTraceparent, jsonOf } from '../given-values.ts';
import { canonicalUuid } from '../ids.ts';
import { plainTableName } from '../inbox/names.ts';
import { isJsonText } from '../json-text.ts';
import { systemIds } from '../system.ts';

/** Value that JSON.stringify writes without loss. */
export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [name: string]: JsonValue | undefined };

export interface OutboxEvent {
  /** UUID of the aggregate: the key of the record, and the unit of ordering. */
  readonly aggregateId: string;
  /** Visible ASCII, 1 to 200 characters, such as `parcel.sent.v1`. */
  readonly eventType: string;
  /** JSON value, or JSON as UTF-8 bytes; it is copied unchanged into the value of the record. The
   *  type `object` admits types declared as `interface`, which have no index signature. `append`
   *  refuses what JSON cannot hold. */
  readonly payload: Uint8Array | JsonValue | object;
  /** W3C trace context of the cause of the event. */
  readonly traceparent?: string;
}

/** Generator of msg_ids. */
export interface MessageIds {
  next(): string;
}

/** Maximum number of events in one call. */
export const EVENTS_MAX = 10_000;
/** Largest payload. The record with its headers must fit into one megabyte, the default limit of a
 *  broker. */
export const PAYLOAD_BYTES_MAX = 900_000;
/** Maximum sum of the payloads in one call. */
export const APPEND_BYTES_MAX = 64 * 1024 * 1024;
const LOCKS_MAX = 1000;

const EVENT_TYPE = /^[\x21-\x7e]{1,200}$/;

/** Inserts one row for each event, in their order, in one statement.
 *  @param tx an open transaction: our SqlSession, a `pg` client, or an adapter of
 *    `millrace/outbox/adapters`
 *  @param table `name` or `schema.name`
 *  @param ids default: UUIDv7 from this machine's clock and random generator
 *  @returns the msg_ids, in the order of the events
 *  @throws bad_table_name, bad_event, not_in_transaction, all before anything is written; errors
 *    of the client
 *  @example
 *  await client.query('BEGIN');
 *  await client.query('UPDATE parcels SET state = $1 WHERE id = $2', ['sent', parcelId]);
 *  const payload = { state: 'sent' };
 *  const event = { aggregateId: parcelId, eventType: 'parcel.sent.v1', payload };
 *  await append(client, 'outbox', [event]);
 *  await client.query('COMMIT');
 */
export async function append(
  tx: OpenTransaction,
  table: string,
  events: readonly OutboxEvent[],
  ids: MessageIds = systemIds,
): Promise<readonly string[]> {
  plainTableName(table, 'a plain name of an outbox table');
  const columns = columnsOf(events, ids);
  if (events.length === 0) return [];
  // A table without the column accepts events without a trace.
  const traced = columns.traceparents.some((one) => one !== null);
  const given = [columns.aggregateIds, columns.msgIds, columns.eventTypes, columns.payloads];
  await queryInTransaction(
    tx,
    traced ? insertSql(table, ', traceparent', ', $5::text[]') : insertSql(table, '', ''),
    traced ? [...given, columns.traceparents] : given,
  );
  return columns.msgIds;
}

/** Assigns ids in the order of the rows: the sort runs before the column defaults. */
function insertSql(table: string, column: string, parameter: string): GuardedSql {
  const insert = (guard: string): string => `
INSERT INTO ${table} (aggregate_id, msg_id, event_type, payload${column})
SELECT aggregate_id, msg_id, event_type, payload${column}
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[]${parameter})
  WITH ORDINALITY AS given (aggregate_id, msg_id, event_type, payload${column}, place)${guard} ORDER BY place`;
  return {
    plain: insert(''),
    guarded: `WITH ${GUARD}, appended AS (${insert(', guard WHERE guard.open')})
SELECT open::text AS open FROM guard`,
  };
}

/** Locks aggregates that have no row to lock: waits until every other transaction that locked one
 *  of them here has ended. The ids are sorted, so that no deadlock occurs. All names of a table
 *  mean the same locks.
 *  @throws bad_table_name, bad_event, not_in_transaction
 *  @example
 *  await lockAggregates(client, 'outbox', [parcelId]);
 */
export async function lockAggregates(
  tx: OpenTransaction,
  table: string,
  aggregateIds: readonly string[],
): Promise<void> {
  plainTableName(table, 'a plain name of an outbox table');
  if (aggregateIds.length > LOCKS_MAX) {
    throw bad(`at most ${LOCKS_MAX} aggregates are locked in one call, not ${aggregateIds.length}`);
  }
  const ids = [...new Set(aggregateIds.map((id, index) => aggregateIdOf(id, index)))].sort();
  if (ids.length === 0) return;
  await queryInTransaction(tx, LOCK, [table, ids]);
}

const lockSql = (guard: string): string => `
SELECT count(pg_advisory_xact_lock(key))::text AS locked FROM (
  SELECT DISTINCT hashtextextended('millrace.aggregate.' || $1::regclass::oid || '.' || id, 0) AS key
  FROM unnest($2::text[]) AS given(id)${guard} ORDER BY key) AS keys`;

const LOCK: GuardedSql = {
  plain: lockSql(''),
  guarded: `WITH ${GUARD} SELECT open::text AS open, (${lockSql(', guard WHERE guard.open')}) AS locked FROM guard`,
};

interface Columns {
  readonly aggregateIds: string[];
  readonly msgIds: string[];
  readonly eventTypes: string[];
  readonly payloads: Buffer[];
  readonly traceparents: Array<string | null>;
}

function columnsOf(events: readonly OutboxEvent[], ids: MessageIds): Columns {
  if (!Array.isArray(events)) throw bad('the events are not an array');
  if (events.length > EVENTS_MAX)
    throw bad(`at most ${EVENTS_MAX} events are appended in one call, not ${events.length}`);
  const columns: Columns = { aggregateIds: [], msgIds: [], eventTypes: [], payloads: [], traceparents: [] };
  let bytes = 0;
  for (const [index, event] of (events as readonly OutboxEvent[]).entries()) {
    if (typeof event !== 'object' || event === null) throw bad(`event ${index} is not an object`);
    columns.aggregateIds.push(aggregateIdOf(event.aggregateId, index));
    columns.eventTypes.push(eventTypeOf(event.eventType, index));
    const payload = payloadOf(event.payload, index);
    bytes += payload.length;
    if (bytes > APPEND_BYTES_MAX)
      throw bad(`the payloads have more than ${APPEND_BYTES_MAX} bytes together`, 'append in several calls');
    columns.payloads.push(payload);
    columns.traceparents.push(traceparentOf(event.traceparent, index));
  }
  // Generates ids only after all events have passed: an id of a refused event would be wasted.
  for (const _ of columns.aggregateIds) columns.msgIds.push(ids.next());
  return columns;
}

function bad(why: string, next = 'correct the event; no row was written') {
  return outboxError('bad_event', why, { next });
}

const shown = (value: unknown): string => JSON.stringify(String(value).slice(0, 60));

function aggregateIdOf(value: unknown, index: number): string {
  const id = typeof value === 'string' ? canonicalUuid(value) : undefined;
  if (id === undefined) throw bad(`aggregateId of event ${index} is not a UUID: ${shown(value)}`);
  return id;
}

function eventTypeOf(value: unknown, index: number): string {
  if (typeof value === 'string' && EVENT_TYPE.test(value)) return value;
  throw bad(
    `eventType of event ${index} is not a text of 1 to 200 visible ASCII characters: ${shown(value)}`,
  );
}

function traceparentOf(value: unknown, index: number): string | null {
  if (value === undefined) return null;
  if (isTraceparent(value)) return value;
  throw bad(`traceparent of event ${index} is not of the form 00-TRACE-SPAN-FLAGS: ${shown(value)}`);
}

/** Copies the payload, so that later changes of the caller's buffer have no effect. */
function payloadOf(value: unknown, index: number): Buffer {
  let bytes: Buffer;
  if (value instanceof Uint8Array) {
    bytes = Buffer.from(value);
    if (bytes.length <= PAYLOAD_BYTES_MAX && !isJsonText(bytes))
      throw bad(`payload of event ${index} is not JSON in UTF-8`);
  } else {
    let text: string;
    try {
      text = jsonOf(value);
    } catch (thrown) {
      throw bad(`payload of event ${index} is not a JSON value: ${(thrown as Error).message}`);
    }
    bytes = Buffer.from(text, 'utf8');
  }
  if (bytes.length <= PAYLOAD_BYTES_MAX) return bytes;
  throw bad(
    `payload of event ${index} has ${bytes.length} bytes, at most ${PAYLOAD_BYTES_MAX} fit into a record`,
    'store large contents elsewhere and put their address into the event',
  );
}
