/** Parked (quarantined) records: they had no effect, and their partition continues. A record is
 *  identified by its place and its content, because a topic that was deleted and created again
 *  reuses its offsets. */
import { createHash } from 'node:crypto';
import type { SqlPool } from '../../io/postgres/sql/port.ts';
import type { OpenTransaction } from '../database/transaction.ts';
import { outboxError } from '../errors.ts';
import type { Parked, UnreadRecord } from './port.ts';

/** Bytes that the table keeps of a key or value. A longer one is truncated, and a redrive refuses
 *  it. */
export const PARKED_BYTES_MAX = 1024 * 1024;

/** Truncates a key or value to the bytes that the table keeps. */
export const truncate = (bytes: Uint8Array | null): Uint8Array | null =>
  bytes === null ? null : bytes.subarray(0, PARKED_BYTES_MAX);

/** Digest of a record: SHA-256 of the whole key and value, each after its length (-1 for null), and
 *  of the message id if neither contains it. parkedDigestSql and payments/sql/0003 compute the same
 *  in SQL. */
export function recordDigest(
  key: Uint8Array | null,
  value: Uint8Array | null,
  msgId: string | null = null,
): Uint8Array {
  const hash = createHash('sha256');
  for (const bytes of [key, value]) {
    const length = Buffer.alloc(4);
    length.writeInt32BE(bytes?.length ?? -1);
    hash.update(length);
    if (bytes !== null) hash.update(bytes);
  }
  if (msgId !== null) hash.update(Buffer.from(msgId.replaceAll('-', ''), 'hex'));
  return hash.digest();
}

/** Checks that the table has the column that parkedDigestSql adds.
 *  @throws tables_missing */
export async function requireDigest(pool: SqlPool, table: string): Promise<void> {
  const { rows } = await pool.query(
    `SELECT FROM pg_attribute WHERE attrelid = to_regclass($1) AND attname = 'digest' AND NOT attisdropped`,
    [table],
  );
  if (rows.length > 0) return;
  throw outboxError('tables_missing', `there is no table ${table} with a column digest`, {
    next: 'name it to Service.migrate, or apply parkedTableSql and parkedDigestSql',
  });
}

/** Inserts parked records in this transaction; a record that is parked already stays unchanged. */
export async function insertParked(
  tx: OpenTransaction,
  table: string,
  parked: readonly Parked<UnreadRecord>[],
): Promise<void> {
  if (parked.length === 0) return;
  const records = parked.map((one) => one.delivery);
  await tx.query(
    `INSERT INTO ${table} (topic, partition, "offset", reason, detail, msg_id, key, value, headers, digest)
     SELECT topic, partition, "offset", reason, detail, msg_id, key, value, headers::jsonb, digest FROM unnest(
       $1::text[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::bytea[], $8::bytea[], $9::text[], $10::bytea[])
       AS given (topic, partition, "offset", reason, detail, msg_id, key, value, headers, digest)
     ON CONFLICT (topic, partition, "offset", digest) DO NOTHING`,
    [
      records.map((record) => record.topic),
      records.map((record) => record.partition),
      records.map((record) => record.offset),
      parked.map((one) => one.reason),
      parked.map((one) => one.detail),
      records.map((record) => record.msgId),
      records.map((record) => truncate(record.key)),
      records.map((record) => truncate(record.value)),
      records.map((record) => headersText(record)),
      records.map((record) => recordDigest(record.key, record.value, record.msgId)),
    ],
  );
}

/** Returns the headers as JSON: [[name, base64 or null], …]. A NUL in a name becomes a space,
 *  because jsonb cannot hold it. */
function headersText(record: UnreadRecord): string {
  return JSON.stringify(
    record.headers.map(([name, value]) => [
      name.replaceAll('\u0000', ' '),
      value === null ? null : Buffer.from(value).toString('base64'),
    ]),
  );
}
