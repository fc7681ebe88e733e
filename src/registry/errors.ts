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
  /** Records that the broker deleted before a replay had read them. */
  records_deleted: errorRow('conflict'),
} as const satisfies ErrorTable;

export const registryError = errorsOf(REGISTRY_ERRORS);
