/** Facts about a record that cannot be deserialized, from the details of its error. */
import { findMillraceError } from '../../core/errors.ts';
import { QUARANTINE_REASONS, type QuarantineReason } from '../../serde/errors.ts';

/** Reader schema of a deserializer: a version of a subject, or the guid of a text that the program
 *  gave. */
export type ReaderIdentity =
  | { readonly subject: string; readonly version: number; readonly schemaId: number }
  | { readonly guid: string };

export interface RecordFault {
  readonly reason: QuarantineReason;
  /** Id of the writer's schema; its guid where a header holds the guid. Absent where the frame
   *  cannot be read. */
  readonly schemaId?: number | string;
  /** Absent where each record is read with its writer's schema. */
  readonly reader?: ReaderIdentity;
  /** Path of the field, such as `Order.items[2].price`; of a record that is refused as a whole its
   *  name. Absent for errors of the frame. */
  readonly path?: string;
  /** Byte of the payload where reading failed; 0 where the record is refused as a whole. Absent for
   *  errors of the frame. */
  readonly at?: number;
  /** The same byte counted from the start of the record, or the byte of its frame. */
  readonly byte?: number;
  /** Byte of the schema id header, for an error of the header. */
  readonly headerByte?: number;
}

const KEYS = ['schemaId', 'reader', 'path', 'at', 'byte', 'headerByte'] as const;

/** Returns the facts of an error that a deserializer threw or returned; undefined for an error that
 *  says nothing about the record, such as an unreachable registry.
 *  @example
 *  const fault = recordFaultOf(error); if (fault === undefined) throw error; log.warn({ reason:
 *  fault.reason, schemaId: fault.schemaId, path: fault.path, byte: fault.byte });
 */
export function recordFaultOf(error: unknown): RecordFault | undefined {
  const found = findMillraceError(error);
  const reason = QUARANTINE_REASONS.find((one) => one === found?.row.reason);
  if (found === undefined || reason === undefined) return undefined;
  const known = KEYS.flatMap((key) => (found.details[key] === undefined ? [] : [[key, found.details[key]]]));
  return { reason, ...(Object.fromEntries(known) as Omit<RecordFault, 'reason'>) };
}
