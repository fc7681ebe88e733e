/** Records that were set aside: without an effect, and holding nothing up. */
import type { SqlSession } from '../../io/sql/port.ts';
import type { Parked } from './port.ts';
import type { UnreadRecord } from './settle.ts';

/** Of a value or key that is larger, the table keeps the beginning, and a redrive refuses it. */
export const PARKED_BYTES_MAX = 1024 * 1024;

const bounded = (bytes: Uint8Array | null): Uint8Array | null =>
  bytes === null ? null : bytes.subarray(0, PARKED_BYTES_MAX);

/** A record that was parked before stays as it was. */
export async function insertParked(
  session: SqlSession,
  table: string,
  parked: readonly Parked<UnreadRecord>[],
): Promise<void> {
  if (parked.length === 0) return;
  const records = parked.map((one) => one.delivery);
  await session.query(
    `INSERT INTO ${table} (topic, partition, "offset", reason, detail, msg_id, key, value, headers)
     SELECT topic, partition, "offset", reason, detail, msg_id, key, value, headers::jsonb FROM unnest(
       $1::text[], $2::int[], $3::bigint[], $4::text[], $5::text[], $6::uuid[], $7::bytea[], $8::bytea[], $9::text[])
       AS given (topic, partition, "offset", reason, detail, msg_id, key, value, headers)
     ON CONFLICT (topic, partition, "offset") DO NOTHING`,
    [
      records.map((record) => record.topic),
      records.map((record) => record.partition),
      records.map((record) => record.offset),
      parked.map((one) => one.reason),
      parked.map((one) => one.detail),
      records.map((record) => record.msgId),
      records.map((record) => bounded(record.key)),
      records.map((record) => bounded(record.value)),
      records.map((record) => headersText(record)),
    ],
  );
}

/** [[name, base64 or null], …]; jsonb holds no NUL, which becomes a blank in a name. */
function headersText(record: UnreadRecord): string {
  return JSON.stringify(
    record.headers.map(([name, value]) => [
      name.replaceAll('\u0000', ' '),
      value === null ? null : Buffer.from(value).toString('base64'),
    ]),
  );
}
