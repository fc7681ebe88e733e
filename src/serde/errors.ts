/** Errors of framed records and of a registry's HTTP interface. The client finds an error by
 *  `number`, whose first three digits are the HTTP status.
 *  The columns are described in src/core/errors.ts. */
import { ACCESS_ERRORS } from '../access/refusal.ts';
import { type ErrorTable, EXIT, errorRow, errorsOf } from '../core/errors.ts';
import { FORMAT_ERRORS } from '../formats/errors.ts';

export const SERDE_ERRORS = {
  ...FORMAT_ERRORS,
  ...ACCESS_ERRORS,
  schema_not_found: errorRow('not_found', { number: 40403 }),
  /** The registry cannot be reached or answers 5xx: a reason to wait, never a fact about a record.
   */
  registry_unavailable: errorRow('unavailable'),
  /** The answer does not follow the registry's protocol. */
  registry_protocol: errorRow('unavailable'),
  /** A synchronous call needs a schema that was not loaded before. */
  schema_not_cached: errorRow('invalid'),
  /** A setting of a serializer, deserializer or client is missing or contradicts another. */
  bad_option: errorRow('invalid'),
  bad_magic: errorRow('corrupt', { reason: 'bad_magic' }),
  truncated_frame: errorRow('corrupt', { reason: 'truncated_frame' }),
  unknown_schema_id: errorRow('corrupt', { reason: 'unknown_schema_id' }),
  /** On a command line these two mean a wrong -subject or version, so the exit code is that of
   *  wrong usage. */
  subject_not_found: errorRow('not_found', { number: 40401, exit: EXIT.usage }),
  version_not_found: errorRow('not_found', { number: 40402, exit: EXIT.usage }),
  /** A part of the path should be a number and is not, so no resource has the path. */
  path_not_found: errorRow('not_found', { number: 404, exit: EXIT.usage }),
  subject_soft_deleted: errorRow('not_found', { number: 40404 }),
  subject_not_soft_deleted: errorRow('not_found', { number: 40405 }),
  version_soft_deleted: errorRow('not_found', { number: 40406 }),
  version_not_soft_deleted: errorRow('not_found', { number: 40407 }),
  /** No version has the requested metadata. */
  metadata_not_found: errorRow('not_found', { number: 40402 }),
  subject_level_not_set: errorRow('not_found', { number: 40408 }),
  subject_mode_not_set: errorRow('not_found', { number: 40409 }),
  association_not_found: errorRow('not_found', { number: 40410 }),
  incompatible: errorRow('conflict', { number: 409 }),
  invalid_version: errorRow('invalid', { http: 422, number: 42202 }),
  invalid_level: errorRow('invalid', { http: 422, number: 42203 }),
  invalid_mode: errorRow('invalid', { http: 422, number: 42204 }),
  not_permitted: errorRow('invalid', { http: 422, number: 42205 }),
  reference_exists: errorRow('conflict', { http: 422, number: 42206 }),
  id_mismatch: errorRow('invalid', { http: 422, number: 42207 }),
  invalid_subject: errorRow('invalid', { http: 422, number: 42208 }),
  /** The check exceeds the limit of steps of one request, over all versions that it compares. */
  check_too_long: errorRow('invalid', { http: 422, number: 42201 }),
  /** Too many checks of large schemas wait for the worker thread. */
  checks_busy: errorRow('unavailable', { number: 50305 }),
  /** The requested page exceeds the limit of one answer. */
  page_too_large: errorRow('invalid', { number: 400 }),
  not_acceptable: errorRow('invalid', { http: 406, number: 406 }),
  unsupported_media_type: errorRow('invalid', { http: 415, number: 415 }),
  store_failed: errorRow('unavailable', { http: 500, number: 50001 }),
  /** The outcome of the write is unknown; the registry reads its log before it writes again. */
  store_unknown: errorRow('unavailable', { http: 500, number: 50001 }),
  store_timeout: errorRow('unavailable', { http: 500, number: 50002 }),
  forwarding_failed: errorRow('unavailable', { http: 500, number: 50003 }),
  leader_unknown: errorRow('unavailable', { http: 500, number: 50004 }),
  /** The leader's address is not one to which credentials may be sent. */
  leader_untrusted: errorRow('unavailable', { number: 50303 }),
  /** This instance lost, or never had, the right to write. */
  not_leader: errorRow('unavailable', { http: 500, number: 50003 }),
  store_corrupt: errorRow('corrupt', { http: 500, number: 50001 }),
  /** The topic cannot keep schemas: it has several partitions, or deletes records by age. */
  store_unfit: errorRow('invalid', { http: 500, number: 50001 }),
  store_locked: errorRow('unavailable', { http: 503, number: 50001 }),
  /** The registry is still reading its log. */
  starting: errorRow('unavailable', { number: 503 }),
} as const satisfies ErrorTable;

export const serdeError = errorsOf(SERDE_ERRORS);

/** Quarantine reasons. The list is closed: a dashboard may rely on it. */
export const QUARANTINE_REASONS = [
  'bad_magic',
  'truncated_frame',
  'unknown_schema_id',
  'bad_message_index',
  'incompatible_schema',
  'malformed_payload',
] as const;

export type QuarantineReason = (typeof QUARANTINE_REASONS)[number];

/** Further reasons of the window engine: the record can be decoded and is no event of its job. */
export const EVENT_REASONS = ['missing_field', 'bad_key', 'bad_time', 'bad_value', 'bad_list'] as const;

export type EventReason = (typeof EVENT_REASONS)[number];
