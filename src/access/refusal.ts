/** Errors of access control, with the headers of their answers. Messages contain no credential. */
import {
  type ErrorOptions,
  type ErrorTable,
  errorRow,
  errorsOf,
  findMillraceError,
  type MillraceError,
} from '../core/errors.ts';

/** @param challenge value of `www-authenticate` */
export function unauthenticated(message: string, challenge: string): MillraceError {
  return accessError('unauthenticated', message, {
    next: 'send credentials that this service accepts',
    ...withHeaders({ 'www-authenticate': challenge }),
  });
}

export function forbidden(principal: string, what: string): MillraceError {
  return accessError('forbidden', `${principal} is not allowed to ${what}`, {
    next: 'ask the operator for an access rule that allows it',
  });
}

const retryAfter = (seconds: number): ReturnType<typeof withHeaders> =>
  withHeaders({ 'retry-after': String(Math.max(1, Math.ceil(seconds))) });

export function rateLimited(what: string, seconds: number): MillraceError {
  return accessError('rate_limited', `too many ${what}`, {
    next: 'wait for the time in Retry-After',
    ...retryAfter(seconds),
  });
}

export function authUnavailable(message: string, seconds: number): MillraceError {
  return accessError('auth_unavailable', message, {
    next: "see the service's log",
    ...retryAfter(seconds),
  });
}

/** Credentials that a scheme does not accept; the gate turns it into a 401. */
export class BadCredentials extends Error {
  /** Existing user that the credentials name; undefined: no such user. */
  readonly claimed: string | undefined;
  constructor(message: string, claimed?: string) {
    super(message);
    this.claimed = claimed;
  }
}

/** Errors of access control. `number` is the error_code of the registry's bodies; the other
 *  surfaces use `http` and `grpc`. */

export const ACCESS_ERRORS = {
  /** Credentials are missing but needed, or they are not accepted. */
  unauthenticated: errorRow('invalid', { http: 401, grpc: 16, number: 40101 }),
  /** The principal is authenticated, but no rule allows the operation. */
  forbidden: errorRow('invalid', { http: 403, grpc: 7, number: 40301 }),
  rate_limited: errorRow('unavailable', { http: 429, grpc: 8, number: 42901 }),
  /** Credentials cannot be checked at the moment: no key was ever loaded, or too many checks wait.
   */
  auth_unavailable: errorRow('unavailable', { number: 50302 }),
} as const satisfies ErrorTable;

const accessError = errorsOf(ACCESS_ERRORS);

/** Headers of the answers to refused requests. An error carries its own in `details`. */

type Headers = Readonly<Record<string, string>>;

const HEADERS = 'headers';
const NONE: Headers = {};

/** Builds the error details from which `refusalHeaders` reads the headers. */
export function withHeaders(headers: Headers): Required<Pick<ErrorOptions, 'details'>> {
  return { details: { [HEADERS]: headers } };
}

/** Returns `www-authenticate` of a 401, `retry-after` of a 429 or 503; nothing for any other error.
 */
export function refusalHeaders(thrown: unknown): Headers {
  return (findMillraceError(thrown)?.details[HEADERS] as Headers | undefined) ?? NONE;
}
