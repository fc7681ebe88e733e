/** Helpers of the tests of decimals: values of a column that an input decodes, and the bytes of
 *  decimals in each format. */
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { knownValues } from '../../../../src/engine/aggregate/values.ts';
import type { TopicInput } from '../../../../src/engine/source/input/topic-input.ts';

const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));

/** Unscaled values of the first aggregated field, in a job that needs no place; null for null, and
 *  the status of a row that is no event. */
export async function valuesIn(
  input: Pick<TopicInput, 'decode'>,
  records: RecordBatch,
): Promise<ReadonlyArray<bigint | null | string>> {
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  const values = knownValues(events);
  return Array.from({ length: events.rowCount }, (_, row) => {
    const status = events.columns.status[row] as number;
    if (status !== EVENT_STATUS.OK) return NAMES.get(status) as string;
    return values?.valid[row] === 1 ? (values.cells[row] as bigint) : null;
  });
}

/** Big-endian bytes in two's complement. @param size exactly so many; absent: as few as needed */
export function twos(value: bigint, size?: number): Buffer {
  let length = size ?? 1;
  while (size === undefined && BigInt.asIntN(8 * length, value) !== value) length++;
  const bytes = Buffer.alloc(length);
  for (let at = length - 1, rest = value; at >= 0; at--, rest >>= 8n) bytes[at] = Number(rest & 0xffn);
  return bytes;
}

/** Import of the file that defines a decimal message. */
export const GOOGLE = 'import "google/type/decimal.proto";';
export const CONFLUENT = 'import "confluent/type/decimal.proto";';
export const proto = (head: string, body: string): string => `syntax = "proto3"; ${head} ${body}`;
