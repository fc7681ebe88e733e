/** Columns by which a row of an outbox chooses its record: the key, the topic, the headers and the
 *  form of the value. Orders uses the headers alone. A null leaves the choice to the relay. */
import { createHash } from 'node:crypto';

/** Columns that outboxRecordSql adds; a table has all of them or none. */
export const RECORD_COLUMNS = ['aggregate_key', 'partition_key', 'topic', 'headers', 'content_type'] as const;

/** Types that the record columns may have. */
export const RECORD_TYPES = ['text', 'json'] as const;

/** Expression that is true when a table has the record columns. @param table regclass expression */
export const hasRecordColumnsSql = (table: string): string =>
  `(SELECT count(*) = ${RECORD_COLUMNS.length} FROM pg_attribute WHERE attrelid = ${table} AND NOT attisdropped
      AND attname = ANY('{${RECORD_COLUMNS.join(',')}}'::name[]) AND atttypid = ANY('{${RECORD_TYPES.join(',')}}'::regtype[]))`;

/** Values of the record columns of one row. */
export interface RecordFields {
  /** Id of an aggregate that is not a UUID; aggregate_id is derived from it. */
  readonly aggregateKey: string | null;
  /** Key of the record, if it is not the id of the aggregate. */
  readonly partitionKey: string | null;
  readonly topic: string | null;
  /** JSON text, see headersText. */
  readonly headers: string | null;
  /** Media type of the payload, which then is the value of the record. Null: the value is a JSON
   *  object with the msg_id, the event type and the payload. */
  readonly contentType: string | null;
}

/** Values as the database returns them. */
export interface RecordCells {
  readonly aggregate_key?: string | null;
  readonly partition_key?: string | null;
  /** The column topic; other columns of that name exist in the statements of the relay. */
  readonly topic?: string | null;
  readonly headers?: string | null;
  readonly content_type?: string | null;
}

/** Expressions that read the record columns, the headers as text. */
export const RECORD_SELECT = RECORD_COLUMNS.map((column) =>
  column === 'headers' ? 'headers::text AS headers' : column,
).join(', ');

/** Returns the record fields of a row; undefined where every column is null, or all are missing. */
export function recordFieldsOf(cells: RecordCells): RecordFields | undefined {
  const { aggregate_key, partition_key = null, topic = null, headers = null, content_type = null } = cells;
  if (aggregate_key === undefined) return undefined;
  // Nearly all rows of most tables choose nothing.
  if ((aggregate_key ?? partition_key ?? topic ?? headers ?? content_type) === null) return undefined;
  return {
    aggregateKey: aggregate_key,
    partitionKey: partition_key,
    topic,
    headers,
    contentType: content_type,
  };
}

/** Media type of a payload that must be JSON, beside that of a row without a content type. */
export const JSON_TYPE = 'application/json';

/** True when the payload of a row with this content type must be JSON. */
export const isJsonContent = (contentType: string | null | undefined): boolean =>
  contentType === null || contentType === undefined || contentType === JSON_TYPE;

/** Derives the aggregate_id of an aggregate whose id is not a UUID: the first 16 bytes of the
 *  SHA-256 of its UTF-8. In SQL: encode(substr(sha256(convert_to(id, 'UTF8')), 1, 16),
 *  'hex')::uuid. The relay shares an outbox by aggregate_id and keeps the order of rows with an
 *  equal one.
 *  @example
 *  await pool.query('SELECT FROM outbox WHERE aggregate_id = $1', [derivedAggregateId('DE/4711')]);
 */
export function derivedAggregateId(id: string): string {
  const hex = createHash('sha256').update(id, 'utf8').digest('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20, 32)].join(
    '-',
  );
}

export type HeaderValue = string | Uint8Array;

/** JSON object of headers by their names. A text is a JSON text; bytes are {"base64": "…"}. */
export function headersText(headers: ReadonlyArray<readonly [name: string, value: HeaderValue]>): string {
  const entries = headers.map(([name, value]) => [
    name,
    typeof value === 'string' ? value : { base64: Buffer.from(value).toString('base64') },
  ]);
  return JSON.stringify(Object.fromEntries(entries));
}

/** The text of headersText with another header, which replaces one of its name.
 *  @param text null: no headers yet */
export function withHeader(text: string | null, name: string, value: string): string {
  const headers = text === null ? {} : (JSON.parse(text) as object);
  return JSON.stringify({ ...headers, [name]: value });
}

/** Parses the text of headersText; undefined for any other text. */
export function parseHeaders(text: string): ReadonlyMap<string, Uint8Array> | undefined {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return undefined;
  const headers = new Map<string, Uint8Array>();
  for (const [name, value] of Object.entries(parsed)) {
    const bytes = bytesOf(value);
    if (bytes === undefined) return undefined;
    headers.set(name, bytes);
  }
  return headers;
}

function bytesOf(value: unknown): Uint8Array | undefined {
  if (typeof value === 'string') return Buffer.from(value, 'utf8');
  if (typeof value !== 'object' || value === null) return undefined;
  const { base64 } = value as { readonly base64?: unknown };
  return typeof base64 === 'string' ? Buffer.from(base64, 'base64') : undefined;
}
