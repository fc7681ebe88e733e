/** Problem documents (RFC 9457) of orders and of idempotent endpoints. */

export const PROBLEM_JSON = 'application/problem+json';
/** Retry-After of a request that was not processed, or is safe to repeat with its key. */
export const RETRY_AFTER_S = '1';

export interface ProblemParts {
  /** URN of the problem. */
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  /** Path of the request. */
  readonly instance: string;
  /** Additional members. */
  readonly extra?: Readonly<Record<string, unknown>> | undefined;
}

/** Returns the text of a problem document. */
export function problemText({ type, title, status, detail, instance, extra }: ProblemParts): string {
  return JSON.stringify({ type, title, status, detail, instance, ...extra });
}
