/** What the headers of a request say to the orders service. Pure; every value is bounded by the
 *  server's head. */
import { outboxError } from '../../errors.ts';
import { canonicalUuid } from '../../ids.ts';

const SCRATCH = Buffer.alloc(36);

/** The same text as one of its own: a piece of a request's head would keep all of the head alive
 *  for as long as the key is remembered. */
function ownText(uuid: string): string {
  SCRATCH.write(uuid, 'latin1');
  return SCRATCH.toString('latin1');
}

/** The canonical key out of the header's values; bare or quoted as a structured-field string.
 *  @throws bad_idempotency_key */
export function readIdempotencyKey(values: readonly string[]): string {
  const next = 'send one Idempotency-Key header with a UUID';
  if (values.length === 0)
    throw outboxError('bad_idempotency_key', 'the Idempotency-Key header is missing', { next });
  if (values.length > 1)
    throw outboxError('bad_idempotency_key', 'the Idempotency-Key header is given more than once', { next });
  const value = values[0] as string;
  const quoted = value.length === 38 && value.startsWith('"') && value.endsWith('"');
  const key = canonicalUuid(quoted ? value.slice(1, -1) : value);
  if (key === undefined)
    throw outboxError('bad_idempotency_key', 'the Idempotency-Key header is not a UUID', { next });
  return ownText(key);
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?$/i;

/** @throws unsupported_media_type unless the body is declared as JSON in UTF-8, not encoded any
 *  further */
export function requireJson(contentTypes: readonly string[], contentEncodings: readonly string[] = []): void {
  const type = contentTypes.length === 1 ? (contentTypes[0] as string) : '';
  if (contentEncodings.length > 0 && !contentEncodings.every((one) => /^(?:identity)?$/i.test(one))) {
    throw outboxError('unsupported_media_type', 'the body has a Content-Encoding', {
      next: 'send the body as it is',
    });
  }
  if (type === 'application/json' || JSON_TYPE.test(type)) return;
  let why = 'the body is not declared as JSON';
  if (contentTypes.length > 1) why = 'the Content-Type header is given more than once';
  else if (type === '') why = 'the Content-Type header is missing';
  throw outboxError('unsupported_media_type', why, { next: 'send one Content-Type: application/json' });
}

/** The more exact a range, the more it counts. */
const RANGES: ReadonlyMap<string, number> = new Map([
  ['*/*', 1],
  ['application/*', 2],
  ['application/json', 3],
]);

function qualityOf(parameters: readonly string[]): number {
  for (const parameter of parameters) {
    const [name, value] = parameter.split('=', 2);
    if (name?.trim().toLowerCase() === 'q') return Number(value?.trim());
  }
  return 1;
}

/** @throws not_acceptable where the client says that it takes no application/json */
export function requireAcceptsJson(accepts: readonly string[]): void {
  if (accepts.length === 0) return;
  const first = accepts[0] as string;
  if (accepts.length === 1 && (first === '*/*' || first === 'application/json' || first === '')) return;
  let ranges = 0;
  let exactness = 0;
  let quality = 0;
  for (const part of accepts.join(',').split(',')) {
    const [range = '', ...parameters] = part.split(';');
    const type = range.trim().toLowerCase();
    if (type === '') continue;
    ranges++;
    const rank = RANGES.get(type) ?? 0;
    if (rank <= exactness) continue;
    exactness = rank;
    quality = qualityOf(parameters);
  }
  // A quality that is no number says nothing against it.
  if (ranges === 0 || (exactness > 0 && quality !== 0)) return;
  throw outboxError('not_acceptable', 'the Accept header admits no application/json', {
    next: 'accept application/json',
  });
}

const TRACE_LENGTH = 55;
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
const ZEROS = /^0+$/;

/** The trace a call belongs to, in the form of version 00, or undefined for none or one that is not
 *  valid: a caller's mistake in its tracing is no reason to refuse its order. Source: W3C Trace
 *  Context, 3.2 and 4.3. */
export function readTraceparent(values: readonly string[]): string | undefined {
  if (values.length !== 1) return undefined;
  const value = values[0] as string;
  // A later version may carry more behind a dash; what is known of it is read as version 00.
  const more = value.length > TRACE_LENGTH;
  if (more && value[TRACE_LENGTH] !== '-') return undefined;
  const match = TRACEPARENT.exec(more ? value.slice(0, TRACE_LENGTH) : value);
  if (match === null) return undefined;
  const [, version, traceId = '', parentId = '', flags = ''] = match;
  if (version === 'ff' || (version === '00' && more)) return undefined;
  if (ZEROS.test(traceId) || ZEROS.test(parentId)) return undefined;
  // Of the flags only `sampled` is known.
  return version === '00'
    ? value
    : `00-${traceId}-${parentId}-${(Number.parseInt(flags, 16) & 1) === 1 ? '01' : '00'}`;
}

const REQUEST_ID = /^[A-Za-z0-9._~:/+=@-]{1,128}$/;

/** The name a client gave its request, where it can be written into a log as it is. */
export function readRequestId(values: readonly string[]): string | undefined {
  const value = values.length === 1 ? (values[0] as string) : '';
  return REQUEST_ID.test(value) ? value : undefined;
}
