/** Reads and checks the request headers of the orders service. Pure. The server bounds the size of
 *  the head. */
import { outboxError } from '../../errors.ts';
import { isTracestate } from '../../given-values.ts';
import { KEY_CHARS_MAX, readKey } from '../../idempotency/key.ts';
import { canonicalUuid } from '../../ids.ts';

const SCRATCH = Buffer.alloc(KEY_CHARS_MAX);

/** Copies the text: a substring would keep the whole request head in memory for as long as the key
 *  is cached. */
function copyOf(key: string): string {
  const length = SCRATCH.write(key, 'latin1');
  return SCRATCH.toString('latin1', 0, length);
}

/** Reads the key of an order: a UUID in its canonical form, any other key as it is.
 *  @throws bad_idempotency_key */
export function readIdempotencyKey(
  values: readonly string[],
  where: 'header' | 'metadata' = 'header',
): string {
  const value = values.length === 1 ? (values[0] as string) : '';
  const quoted = value.length === 38 && value.startsWith('"') && value.endsWith('"');
  const uuid = canonicalUuid(quoted ? value.slice(1, -1) : value);
  return copyOf(uuid ?? readKey(values, where));
}

const JSON_TYPE = /^application\/json[ \t]*(?:;[ \t]*charset=(?:utf-8|"utf-8")[ \t]*)?$/i;

/** Checks that the body is declared as JSON in UTF-8, without a content encoding.
 *  @throws unsupported_media_type */
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

/** Precedence of the accepted ranges: the more specific one wins. */
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

/** Checks that the Accept header admits application/json.
 *  @throws not_acceptable */
export function requireAcceptsJson(accepts: readonly string[]): void {
  if (accepts.length === 0) return;
  const first = accepts[0] as string;
  if (accepts.length === 1 && (first === '*/*' || first === 'application/json' || first === '')) return;
  let ranges = 0;
  let specificity = 0;
  let quality = 0;
  for (const part of accepts.join(',').split(',')) {
    const [range = '', ...parameters] = part.split(';');
    const type = range.trim().toLowerCase();
    if (type === '') continue;
    ranges++;
    const rank = RANGES.get(type) ?? 0;
    if (rank <= specificity) continue;
    specificity = rank;
    quality = qualityOf(parameters);
  }
  // An invalid quality counts as acceptable.
  if (ranges === 0 || (specificity > 0 && quality !== 0)) return;
  throw outboxError('not_acceptable', 'the Accept header admits no application/json', {
    next: 'accept application/json',
  });
}

const TRACE_LENGTH = 55;
const TRACEPARENT = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
const ZEROS = /^0+$/;

/** Returns the W3C trace context of a call in the form of version 00; undefined if absent or
 *  invalid. An invalid trace context is no reason to refuse an order. Source: W3C Trace Context,
 *  3.2 and 4.3. */
export function readTraceparent(values: readonly string[]): string | undefined {
  if (values.length !== 1) return undefined;
  const value = values[0] as string;
  // A later version may have more fields after a dash; its known part is read as version 00.
  const more = value.length > TRACE_LENGTH;
  if (more && value[TRACE_LENGTH] !== '-') return undefined;
  const match = TRACEPARENT.exec(more ? value.slice(0, TRACE_LENGTH) : value);
  if (match === null) return undefined;
  const [, version, traceId = '', parentId = '', flags = ''] = match;
  if (version === 'ff' || (version === '00' && more)) return undefined;
  if (ZEROS.test(traceId) || ZEROS.test(parentId)) return undefined;
  // `sampled` is the only known flag.
  return version === '00'
    ? value
    : `00-${traceId}-${parentId}-${(Number.parseInt(flags, 16) & 1) === 1 ? '01' : '00'}`;
}

const REQUEST_ID = /^[A-Za-z0-9._~:/+=@-]{1,128}$/;

/** Returns the request id of the client if it is safe to log. */
export function readRequestId(values: readonly string[]): string | undefined {
  const value = values.length === 1 ? (values[0] as string) : '';
  return REQUEST_ID.test(value) ? value : undefined;
}

/** Returns the W3C tracestate of a call; undefined if absent or invalid. It may come in several
 *  headers, whose lists are joined. Source: W3C Trace Context, 3.3. */
export function readTracestate(values: readonly string[]): string | undefined {
  const value = values.length === 1 ? values[0] : values.join(',');
  return isTracestate(value) ? value : undefined;
}
