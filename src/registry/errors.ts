/** Errors of the registry: what it answers over HTTP (src/serde/errors.ts), and what only a command prints. */
import { type ErrorTable, errorRow, errorsOf } from '../core/errors.ts';
import { SERDE_ERRORS } from '../serde/errors.ts';

export const REGISTRY_ERRORS = {
  ...SERDE_ERRORS,
  /** A file that is not, or not wholly, an export of a registry. */
  malformed_export: errorRow('invalid'),
  /** An import would change what a store already says. */
  store_not_empty: errorRow('conflict'),
  /** Records that could not be published or parked; the run stops before it loses one. */
  not_delivered: errorRow('unavailable'),
} as const satisfies ErrorTable;

export const registryError = errorsOf(REGISTRY_ERRORS);
