/** Errors of framed records and of the registry's client. Columns: src/core/errors.ts. */
import { ACCESS_ERRORS } from '../access/refusal.ts';
import { type ErrorTable, errorRow, errorsOf } from '../core/errors.ts';
import { FORMAT_ERRORS } from '../formats/errors.ts';

export const SERDE_ERRORS = {
  ...FORMAT_ERRORS,
  ...ACCESS_ERRORS,
  schema_not_found: errorRow('not_found', { number: 40403 }),
  /** The registry cannot be reached or answers 5xx: a reason to wait, never a fact about a record. */
  registry_unavailable: errorRow('unavailable'),
  /** The registry answers something that is not its protocol. */
  registry_protocol: errorRow('unavailable'),
  bad_magic: errorRow('corrupt', { reason: 'bad_magic' }),
  truncated_frame: errorRow('corrupt', { reason: 'truncated_frame' }),
  unknown_schema_id: errorRow('corrupt', { reason: 'unknown_schema_id' }),
} as const satisfies ErrorTable;

export const serdeError = errorsOf(SERDE_ERRORS);

/** Why a record was quarantined. The list is closed: a dashboard may rely on it. */
export const QUARANTINE_REASONS = [
  'bad_magic',
  'truncated_frame',
  'unknown_schema_id',
  'bad_message_index',
  'incompatible_schema',
  'malformed_payload',
] as const;

export type QuarantineReason = (typeof QUARANTINE_REASONS)[number];
