/** Stored answers: status, allow-listed headers and the exact bytes of the body. Pure.
 *
 *  Invariant: a header that is stored or replayed has a token as its name and a value without
 *  control characters, so no stored text can add a header or end the head. Source: RFC 9110, 5.5.
 */
import { coreError } from '../../core/errors.ts';
import { outboxError } from '../errors.ts';

export type Header = readonly [name: string, value: string];

/** Answer of an endpoint. The names of headers are in lower case. */
export interface EndpointAnswer {
  readonly status: number;
  readonly headers: readonly Header[];
  readonly body: Uint8Array;
}

/** Columns of a stored answer. */
export interface AnswerColumns {
  readonly status: number;
  /** JSON: pairs of name and value. */
  readonly headers: string;
  readonly body: Buffer;
}

/** Default of the largest stored answer, bytes of its headers and its body. */
export const ANSWER_BYTES_MAX = 1024 * 1024;
/** Highest value of that limit: an answer is held in memory until its transaction has committed. */
export const ANSWER_BYTES_LIMIT = 64 * 1024 * 1024;
const HEADERS_MAX = 100;

/** Headers that a replay repeats by default. */
export const REPLAYED_HEADERS: readonly string[] = [
  'content-type',
  'content-language',
  'content-location',
  'content-disposition',
  'location',
  'etag',
  'last-modified',
  'cache-control',
  'link',
];

/** Headers of one connection or one message; the server writes its own for each answer. */
const FRAMING = new Set(
  'connection content-length date keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade'.split(
    ' ',
  ),
);
const TOKEN = /^[a-z0-9!#$%&'*+.^_`|~-]{1,100}$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Statuses below 500 that describe the moment of the request and not its outcome. */
const PASSING = new Set([401, 403, 408, 409, 425, 429]);

/** Default filter: an answer is stored unless it is a server error or asks for another attempt. */
export const storedByDefault = (status: number): boolean => status < 500 && !PASSING.has(status);

/** Returns the allow-list in lower case. @throws bad_option */
export function allowedHeaders(names: readonly string[]): ReadonlySet<string> {
  const allowed = new Set(names.map((name) => String(name).toLowerCase()));
  for (const name of allowed) {
    if (TOKEN.test(name) && !FRAMING.has(name)) continue;
    throw outboxError('bad_option', `the header ${JSON.stringify(name.slice(0, 60))} cannot be replayed`, {
      next: 'list names of headers that describe the answer, not its connection or its length',
    });
  }
  return allowed;
}

const isSafe = ([name, value]: Header): boolean => TOKEN.test(name) && VALUE.test(value);

/** Returns the columns of an answer.
 *  @throws answer_too_large; internal if it has no valid status or header */
export function encodeAnswer(
  answer: EndpointAnswer,
  allowed: ReadonlySet<string>,
  bytesMax: number,
): AnswerColumns {
  const { status, body } = answer;
  if (!Number.isInteger(status) || status < 0 || status > 999)
    throw coreError('internal', `the endpoint answered with status ${status}`);
  const kept = answer.headers.filter(([name]) => allowed.has(name));
  const unsafe = kept.find((header) => !isSafe(header));
  if (unsafe !== undefined || kept.length > HEADERS_MAX)
    throw coreError('internal', `the header ${unsafe?.[0] ?? ''} of the answer cannot be replayed`, {
      next: `answer with at most ${HEADERS_MAX} replayed headers, without control characters`,
    });
  const headers = JSON.stringify(kept);
  const bytes = Buffer.byteLength(headers) + body.length;
  if (bytes > bytesMax) throw answerTooLarge(bytesMax);
  return { status, headers, body: Buffer.from(body.buffer, body.byteOffset, body.byteLength) };
}

export const answerTooLarge = (bytesMax: number): Error =>
  outboxError('answer_too_large', `the answer is larger than ${bytesMax} bytes, so it cannot be replayed`, {
    next: 'nothing was written; answer with less, such as a link to the content, or raise answerBytesMax',
  });

/** Reads a stored answer. Headers outside the allow-list of today are left out.
 *  @throws internal if the stored text is invalid */
export function decodeAnswer(columns: AnswerColumns, allowed: ReadonlySet<string>): EndpointAnswer {
  let headers: unknown;
  try {
    headers = JSON.parse(columns.headers);
  } catch {
    headers = undefined;
  }
  const valid =
    Array.isArray(headers) &&
    headers.every(
      (pair): pair is Header =>
        Array.isArray(pair) &&
        pair.length === 2 &&
        pair.every((one) => typeof one === 'string') &&
        isSafe(pair as unknown as Header),
    );
  if (!valid)
    throw coreError('internal', 'the stored headers of an answer are invalid', {
      next: 'compare the table of idempotency keys with a backup',
    });
  return {
    status: columns.status,
    headers: (headers as readonly Header[]).filter(([name]) => allowed.has(name)),
    body: columns.body,
  };
}
