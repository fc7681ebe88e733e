/** Appends events to an outbox, in the transaction that makes them true.
 *
 *  Ordering rule: an id is assigned when a row is inserted, and the row becomes visible when its
 *  transaction commits. So events of one aggregate are published in order only if every transaction
 *  that appends for it takes a common lock first, in a separate statement. The lock is the INSERT
 *  of the aggregate's row, SELECT … FOR UPDATE of that row, or `lockAggregates` where no such row
 *  exists. Then the second transaction appends after the first has committed.
 */

import { findMillraceError } from '../../core/errors.ts';
import { hasColumn } from '../database/column-check.ts';
import { GUARD, type GuardedSql, type OpenTransaction, queryInTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import { sqlstateOf } from '../inbox/client-transaction.ts';
import { plainTableName } from '../inbox/names.ts';
import { systemIds } from '../system.ts';
import { activeTrace, startSpan, type TraceContext } from '../tracing.ts';
import { aggregateIdOf, bad, type CheckedEvent, checkedEvent, type OutboxEvent } from './event.ts';
import { RECORD_COLUMNS, withHeader } from './record-columns.ts';

/** Generator of msg_ids. */
export interface MessageIds {
  next(): string;
}

/** Maximum number of events in one call. */
export const EVENTS_MAX = 10_000;
/** Maximum sum of the payloads in one call. */
export const APPEND_BYTES_MAX = 64 * 1024 * 1024;
const LOCKS_MAX = 1000;
const UNDEFINED_COLUMN = '42703';

/** Inserts one row for each event, in their order, in one statement.
 *  @param tx an open transaction: our SqlSession, a `pg` client, or an adapter of
 *    `millrace/outbox/adapters`
 *  @param table `name` or `schema.name`
 *  @param events one event or several
 *  @param ids default: UUIDv7 from this machine's clock and random generator
 *  @returns the msg_ids, in the order of the events
 *  @throws bad_table_name, bad_event, not_in_transaction, errors of a serializer, all before
 *    anything is written; table_unusable where the table lacks a column; errors of the client
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
  events: OutboxEvent | readonly OutboxEvent[],
  ids: MessageIds = systemIds,
): Promise<readonly string[]> {
  plainTableName(table, 'a plain name of an outbox table');
  const given: readonly unknown[] = Array.isArray(events) ? events : [events];
  if (given.length > EVENTS_MAX)
    throw bad(`at most ${EVENTS_MAX} events are appended in one call, not ${given.length}`);
  await loadSchemas(given);
  const checked = checkedEvents(given);
  if (checked.length === 0) return [];
  // Generates ids only after all events have passed: an id of a refused event would be wasted.
  const msgIds = checked.map(() => ids.next());
  const span = startSpan(`append ${table}`, 'producer', {
    'messaging.operation.name': 'append',
    'messaging.operation.type': 'create',
    'messaging.batch.message_count': checked.length,
    'millrace.outbox.table': table,
  });
  try {
    const cause = await keptTrace(tx, table, span ?? activeTrace());
    await insert(tx, table, checked, msgIds, cause);
    span?.end();
  } catch (thrown) {
    span?.fail(thrown);
    throw thrown;
  }
  return msgIds;
}

/** Loads the schemas of the events before any row is checked; a loaded one costs no request. */
async function loadSchemas(events: readonly unknown[]): Promise<void> {
  const schemas = new Set<unknown>();
  for (const event of events) {
    const schema = (event as { readonly schema?: unknown } | null)?.schema;
    if (typeof schema === 'object' && schema !== null) schemas.add(schema);
  }
  for (const schema of schemas) await (schema as { prefetch?(): Promise<unknown> }).prefetch?.();
}

function checkedEvents(events: readonly unknown[]): readonly CheckedEvent[] {
  let bytes = 0;
  return events.map((event, index) => {
    const checked = checkedEvent(event, index);
    bytes += checked.payload.length;
    if (bytes > APPEND_BYTES_MAX)
      throw bad(`the payloads have more than ${APPEND_BYTES_MAX} bytes together`, 'append in several calls');
    return checked;
  });
}

/** The part of a trace context that the columns of the table can hold: a table of the service's own
 *  may lack them. */
async function keptTrace(
  tx: OpenTransaction,
  table: string,
  cause: TraceContext | undefined,
): Promise<TraceContext | undefined> {
  if (cause === undefined || !(await hasColumn(tx, table, 'traceparent'))) return undefined;
  if (cause.tracestate === undefined || (await hasColumn(tx, table, 'headers'))) return cause;
  return { traceparent: cause.traceparent };
}

/** @param cause trace context of events without one of their own */
async function insert(
  tx: OpenTransaction,
  table: string,
  events: readonly CheckedEvent[],
  msgIds: readonly string[],
  cause: TraceContext | undefined,
): Promise<void> {
  const column = <K extends keyof CheckedEvent>(name: K): Array<CheckedEvent[K]> =>
    events.map((event) => event[name]);
  const given = [column('aggregateId'), msgIds, column('eventType'), column('payload')];
  const traceparents = events.map(({ traceparent }) => traceparent ?? cause?.traceparent ?? null);
  const headers = events.map(({ headers, traceparent, tracestate }) => {
    const state = traceparent === null ? cause?.tracestate : tracestate;
    return typeof state === 'string' ? withHeader(headers, 'tracestate', state) : headers;
  });
  const chosen = [
    column('aggregateKey'),
    column('partitionKey'),
    column('topic'),
    headers,
    column('contentType'),
  ];
  // A table without the optional columns accepts events that leave them open.
  const optional = chosen.some((values) => values.some((value) => value !== null))
    ? [traceparents, ...chosen]
    : traceparents.some((value) => value !== null)
      ? [traceparents]
      : [];
  try {
    await queryInTransaction(tx, insertSql(table, optional.length), [...given, ...optional]);
  } catch (thrown) {
    const state = findMillraceError(thrown)?.details['sqlstate'] ?? sqlstateOf(thrown);
    if (state !== UNDEFINED_COLUMN || optional.length === 0) throw thrown;
    throw outboxError(
      'table_unusable',
      `the table ${table} lacks a column that the events need: ${(thrown as Error).message}`,
      { next: 'run Service.migrate, or the script outboxRecordSql', cause: thrown },
    );
  }
}

const OPTIONAL_COLUMNS = ['traceparent', ...RECORD_COLUMNS];

/** Assigns ids in the order of the rows: the sort runs before the column defaults.
 *  @param optional number of the columns of OPTIONAL_COLUMNS that the rows have */
function insertSql(table: string, optional: number): GuardedSql {
  const names = OPTIONAL_COLUMNS.slice(0, optional);
  const listed = (cast: string) => names.map((name) => `, ${name}${name === 'headers' ? cast : ''}`).join('');
  const parameters = names.map((_, i) => `, $${5 + i}::text[]`).join('');
  const insert = (guard: string): string => `
INSERT INTO ${table} (aggregate_id, msg_id, event_type, payload${listed('')})
SELECT aggregate_id, msg_id, event_type, payload${listed('::json')}
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bytea[]${parameters})
  WITH ORDINALITY AS given (aggregate_id, msg_id, event_type, payload${listed('')}, place)${guard} ORDER BY place`;
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
