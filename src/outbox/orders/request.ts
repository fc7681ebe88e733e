/** What a client sends to create an order: the idempotency key, the body, and the hash that guards the key.
 *
 *  Pure. Bytes are bounded before they are read; the body is one flat JSON object whose integers keep all 64 bits.
 */
import { createHash } from 'node:crypto';
import { outboxError } from '../errors.ts';
import { canonicalUuid } from '../ids.ts';
import { type JsonMember, readFlatObject } from './flat-json.ts';

export const BODY_BYTES_MAX = 64 * 1024;
const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;

export interface CreateRequest {
  readonly accountId: bigint;
  readonly amountCents: bigint;
}

/** What of the call around a request matters to the order. */
export interface CallFacts {
  /** Guards the key instead of the hash of the canonical fields (`-hash=raw`). */
  readonly hash?: Uint8Array;
  /** The trace that the order belongs to, in the form of W3C Trace Context; kept with its outbox row. */
  readonly traceparent?: string;
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
  return key;
}

/** @throws unsupported_media_type unless the body is declared as JSON in UTF-8 */
export function requireJson(contentTypes: readonly string[]): void {
  const type = contentTypes.length === 1 ? (contentTypes[0] as string) : '';
  if (/^application\/json\s*(;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(type)) return;
  let why = 'the body is not declared as JSON';
  if (contentTypes.length > 1) why = 'the Content-Type header is given more than once';
  else if (type === '') why = 'the Content-Type header is missing';
  throw outboxError('unsupported_media_type', why, { next: 'send one Content-Type: application/json' });
}

const FIELDS = ['account_id', 'amount_cents'] as const;
type FieldName = (typeof FIELDS)[number];

function int64(name: FieldName, member: JsonMember): bigint {
  const integer =
    member.kind === 'number' || member.kind === 'string' ? /^-?(?:0|[1-9]\d*)$/.test(member.text) : false;
  if (!integer) {
    throw outboxError('bad_body', `${name} is not an integer`, {
      next: 'send a whole number, or its decimal digits as a string',
      details: { field: name },
    });
  }
  // 20 characters hold every int64; more are out of range before BigInt reads them.
  const value = member.text.length <= 20 ? BigInt(member.text) : INT64_MAX + 1n;
  if (value < INT64_MIN || value > INT64_MAX) {
    throw outboxError('value_out_of_range', `${name} does not fit 64 bits`, { details: { field: name } });
  }
  return value;
}

/** @throws bad_body, body_too_large, value_out_of_range */
export function readCreateBody(body: Uint8Array): CreateRequest {
  if (body.length > BODY_BYTES_MAX)
    throw outboxError('body_too_large', `the body is over ${BODY_BYTES_MAX} bytes`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    throw outboxError('bad_body', 'the body is not UTF-8');
  }
  const read = readFlatObject(text, FIELDS);
  if (!read.ok) throw outboxError('bad_body', read.why, { details: { at: read.at } });
  const fields = new Map<FieldName, bigint>();
  for (const name of FIELDS) {
    const member = read.members.get(name);
    if (member === undefined)
      throw outboxError('bad_body', `${name} is missing`, { details: { field: name } });
    fields.set(name, int64(name, member));
  }
  const amountCents = fields.get('amount_cents') as bigint;
  if (amountCents <= 0n) {
    throw outboxError('value_out_of_range', 'amount_cents is not above zero', {
      details: { field: 'amount_cents' },
    });
  }
  return { accountId: fields.get('account_id') as bigint, amountCents };
}

/** SHA-256 over the operation and its canonical fields, so blanks, member order and transport do not matter. */
export function requestHash(request: CreateRequest): Uint8Array {
  const text = `orders.create.v1\naccount_id=${request.accountId}\namount_cents=${request.amountCents}\n`;
  return createHash('sha256').update(text, 'utf8').digest();
}

/** SHA-256 over the operation and the body as it was sent, for those who want a retry to be the same bytes. */
export function rawRequestHash(body: Uint8Array): Uint8Array {
  return createHash('sha256').update('orders.create.raw.v1\n', 'utf8').update(body).digest();
}
