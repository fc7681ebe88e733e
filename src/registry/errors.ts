/** Errors of the registry: those that it answers over HTTP (src/serde/errors.ts), and those that
 *  only commands print.
 */
import { type ErrorTable, errorRow, errorsOf } from '../core/errors.ts';
import { SERDE_ERRORS } from '../serde/errors.ts';

export const REGISTRY_ERRORS = {
  ...SERDE_ERRORS,
  /** File that is not a complete export of a registry. */
  malformed_export: errorRow('invalid'),
  /** Import that would change existing records of a store. */
  store_not_empty: errorRow('conflict'),
  /** Records that could not be published or quarantined; the run stops before it loses a record. */
  not_delivered: errorRow('unavailable'),
  /** Another redrive of the same quarantine started; this one writes nothing any more. */
  redrive_fenced: errorRow('fenced'),
  /** More records were redriven than one run can know. */
  too_many_redriven: errorRow('invalid'),
  /** The topic of the progress can lose records, or has several partitions. */
  progress_unfit: errorRow('invalid'),
} as const satisfies ErrorTable;

export const registryError = errorsOf(REGISTRY_ERRORS);
