/** Answers of refused requests: problem documents over HTTP, statuses over gRPC. */
import { findMillraceError, type MillraceError } from '../../core/errors.ts';
import { OUTBOX_ERRORS } from '../errors.ts';
import { PROBLEM_JSON, problemText, RETRY_AFTER_S } from '../problem-document.ts';
import { HandlerFailure } from './single.ts';
import { isLost } from './source.ts';

const PREFIX = 'urn:millrace:problem:';

/** Type and title of each problem, by error code. */
const PROBLEMS = {
  bad_idempotency_key: ['bad-idempotency-key', 'Idempotency-Key is missing or malformed'],
  idempotency_key_reused: ['idempotency-key-reuse', 'Idempotency-Key was used with a different request'],
  in_flight: ['idempotency-in-flight', 'A request with this key is in flight'],
  body_too_large: ['body-too-large', 'The body is too large'],
  answer_too_large: ['answer-too-large', 'The answer is too large to be replayed'],
  request_taken_over: ['request-taken-over', 'Another process has resumed this request'],
  database_unavailable: ['database-unavailable', 'The service cannot reach its database'],
  internal: ['internal', 'The service failed'],
} as const;
type Code = keyof typeof PROBLEMS;

const isCode = (code: string | undefined): code is Code =>
  code !== undefined && Object.hasOwn(PROBLEMS, code);

/** Errors of this module that are thrown while a handler runs. */
const WITHIN_HANDLER: ReadonlySet<string> = new Set([
  'request_taken_over',
  'answer_too_large',
  'database_unavailable',
]);

/** Answer of a refused request. */
export interface KeyRefusal {
  readonly code: Code;
  readonly status: number;
  /** gRPC status. */
  readonly grpc: number;
  readonly detail: string;
  /** Delay before the same request may be sent again, seconds. */
  readonly retryAfterS: string | undefined;
  readonly extra: Readonly<Record<string, unknown>> | undefined;
}

const textOf = ({ message, next }: MillraceError): string =>
  next === undefined ? message : `${message}; ${next}`;

/** Status of a refusal: 409 for a key in flight where requests do not wait, so that 503 means that
 *  the wait was over. */
function statusOf(error: MillraceError, reusedStatus: number): number {
  if (error.code === 'idempotency_key_reused') return reusedStatus;
  if (error.code === 'in_flight' && error.details['waits'] === false) return 409;
  return error.row.http;
}

/** Returns the answer of a refused request; undefined for an error of the handler or of the
 *  service, which its framework handles. */
export function refusalOf(thrown: unknown, reusedStatus: number): KeyRefusal | undefined {
  const fromHandler = thrown instanceof HandlerFailure;
  const error = findMillraceError(fromHandler ? thrown.thrown : thrown);
  if (error !== undefined && isCode(error.code) && (!fromHandler || WITHIN_HANDLER.has(error.code))) {
    if (error.code === 'internal') return undefined;
    const status = statusOf(error, reusedStatus);
    const { idempotency_key: key } = error.details;
    return {
      code: error.code,
      status,
      grpc: error.row.grpc,
      detail: textOf(error),
      retryAfterS: status === 503 || error.code === 'in_flight' ? RETRY_AFTER_S : undefined,
      extra: key === undefined ? undefined : { idempotency_key: key },
    };
  }
  if (fromHandler || !isLost(thrown)) return undefined;
  return {
    code: 'database_unavailable',
    status: OUTBOX_ERRORS.database_unavailable.http,
    grpc: OUTBOX_ERRORS.database_unavailable.grpc,
    detail: 'the database did not confirm the request; send the same request with the same key again',
    retryAfterS: RETRY_AFTER_S,
    extra: undefined,
  };
}

/** Answer for an error that no framework handles. It has no text of the error, which may contain
 *  values of the service. */
export const INTERNAL: KeyRefusal = {
  code: 'internal',
  status: 500,
  grpc: 13,
  detail: 'the request could not be handled; nothing was stored under its key',
  retryAfterS: undefined,
  extra: undefined,
};

/** Returns headers and body of the problem document of a refusal. */
export function problemOf(
  { code, status, detail, retryAfterS, extra }: KeyRefusal,
  instance: string,
): { readonly headers: Readonly<Record<string, string>>; readonly body: string } {
  const [type, title] = PROBLEMS[code];
  return {
    headers: {
      'content-type': PROBLEM_JSON,
      'cache-control': 'no-store',
      ...(retryAfterS === undefined ? {} : { 'retry-after': retryAfterS }),
    },
    body: problemText({ type: PREFIX + type, title, status, detail, instance, extra }),
  };
}
