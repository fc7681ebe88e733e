/** The refusals of the gate, each with the headers its answer needs. Messages name no credential. */
import type { MillraceError } from '../core/errors.ts';
import { accessError } from './errors.ts';
import { withHeaders } from './headers.ts';

/** @param challenge what `www-authenticate` offers */
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
    next: 'wait as long as Retry-After says',
    ...retryAfter(seconds),
  });
}

export function authUnavailable(message: string, seconds: number): MillraceError {
  return accessError('auth_unavailable', message, {
    next: "see the service's log",
    ...retryAfter(seconds),
  });
}

/** What a scheme says of credentials it does not accept; the gate makes the answer of it. */
export class BadCredentials extends Error {
  /** The user whom the credentials name, where there is one of that name. */
  readonly claimed: string | undefined;
  constructor(message: string, claimed?: string) {
    super(message);
    this.claimed = claimed;
  }
}
