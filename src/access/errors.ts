/** Refusals of the gate. `number` is the error_code of the registry's bodies; the other surfaces use `http` and `grpc`. */
import { type ErrorTable, errorRow, errorsOf } from '../core/errors.ts';

export const ACCESS_ERRORS = {
  /** No credentials where some are needed, or ones that are not accepted. */
  unauthenticated: errorRow('invalid', { http: 401, grpc: 16, number: 40101 }),
  /** The principal is known, and no rule allows what it asks for. */
  forbidden: errorRow('invalid', { http: 403, grpc: 7, number: 40301 }),
  rate_limited: errorRow('unavailable', { http: 429, grpc: 8, number: 42901 }),
  /** Credentials cannot be checked at the moment: no key was ever loaded, or too many checks wait. */
  auth_unavailable: errorRow('unavailable', { number: 50302 }),
} as const satisfies ErrorTable;

export const accessError = errorsOf(ACCESS_ERRORS);
