/** Errors of schema texts, and of values written and read with schemas. Columns:
 *  src/core/errors.ts; `number` is the error_code in the registry's HTTP body. */
import { type ErrorTable, errorRow, errorsOf } from '../core/errors.ts';

export const FORMAT_ERRORS = {
  invalid_schema: errorRow('invalid', { http: 422, number: 42201 }),
  schema_too_large: errorRow('invalid', { http: 413, number: 413 }),
  /** The rules of a schema are invalid. Rules are stored; clients run them. */
  invalid_rule_set: errorRow('invalid', { http: 422, number: 42210 }),
  malformed_request: errorRow('invalid', { number: 400 }),
  /** A value does not fit the schema that it is written with. */
  value_refused: errorRow('invalid'),
  /** A requested field is not in the reader's schema. */
  unknown_field: errorRow('invalid'),
  bad_message_index: errorRow('corrupt', { reason: 'bad_message_index' }),
  incompatible_schema: errorRow('corrupt', { reason: 'incompatible_schema' }),
  malformed_payload: errorRow('corrupt', { reason: 'malformed_payload' }),
} as const satisfies ErrorTable;

export const formatError = errorsOf(FORMAT_ERRORS);
