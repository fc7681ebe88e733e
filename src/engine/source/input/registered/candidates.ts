/** Writers of the first records: their schemas, and of Protobuf the messages that the frames name.
 */
import type { MillraceError } from '../../../../core/errors.ts';
import { FRAME } from '../../../../core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../core/layout/record-batch.ts';
import type { ProtoFile, ProtoMessage } from '../../../../formats/protobuf/tree.ts';
import type { Schema } from '../../../../formats/schema.ts';
import { readMessage } from '../../../../serde/frame.ts';
import { isFrame } from '../judge.ts';

/** Schema, and message of a Protobuf schema, that some of the first records have. */
export interface Candidate {
  readonly schema: Schema;
  /** Undefined: the format has no messages. */
  readonly message: ProtoMessage | undefined;
  readonly records: number;
}

/** Schema id of a framed value; undefined: it is no frame. */
export const schemaIdOf = (value: Uint8Array | null): number | undefined =>
  value !== null && isFrame(value)
    ? new DataView(value.buffer, value.byteOffset).getUint32(1, false)
    : undefined;

/** Schema ids of the first records with their number of records.
 *  @param rows number of records that are judged */
export function schemaIds(records: RecordBatch, rows: number): ReadonlyMap<number, number> {
  const counts = new Map<number, number>();
  for (let row = 0; row < rows; row++) {
    const id = schemaIdOf(records.value(row));
    if (id !== undefined) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

/** Writers of the first records, those of most records first; of equally many, the writer whose
 *  record is first. The versions of a Protobuf message count together, and are neighbours. A record
 *  without a known schema or message has no writer. */
export function candidatesOf(
  records: RecordBatch,
  rows: number,
  found: ReadonlyMap<number, Schema | MillraceError>,
): readonly Candidate[] {
  const counts = new Map<string, Candidate & { readonly kind: string }>();
  const totals = new Map<string, number>();
  for (let row = 0; row < rows; row++) {
    const value = records.value(row);
    const id = schemaIdOf(value);
    const schema = id === undefined ? undefined : found.get(id);
    if (value === null || id === undefined || schema === undefined || schema instanceof Error) continue;
    const message = schema.format === 'PROTOBUF' ? messageOf(schema.tree, id, value) : undefined;
    if (schema.format === 'PROTOBUF' && message === undefined) continue;
    const name = `${id} ${message?.path.join() ?? ''}`;
    const kind = message?.name ?? name;
    counts.set(name, { schema, message, kind, records: (counts.get(name)?.records ?? 0) + 1 });
    totals.set(kind, (totals.get(kind) ?? 0) + 1);
  }
  const kinds = [...totals].sort(([, a], [, b]) => b - a).map(([kind]) => kind);
  const rank = new Map(kinds.map((kind, at) => [kind, at]));
  return [...counts.values()].sort(
    (a, b) => (rank.get(a.kind) as number) - (rank.get(b.kind) as number) || b.records - a.records,
  );
}

function messageOf({ messages }: ProtoFile, id: number, value: Uint8Array): ProtoMessage | undefined {
  try {
    const { path } = readMessage({ id, bytes: value, end: FRAME.HEADER_BYTES }, true);
    return messages.find((one) => one.path.join() === path.join());
  } catch {
    // Its message indexes are cut short or out of range.
    return undefined;
  }
}
