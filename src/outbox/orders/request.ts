/** Request to create an order: parses the body and computes the hash that guards the key.
 *
 *  Pure. The size of the body is checked first. The body is a flat JSON object whose integers keep
 *  all 64 bits.
 */
import { createHash } from 'node:crypto';
import { outboxError } from '../errors.ts';
import { readBodyFast } from './http/fast-body.ts';
import { type FlatMember, readFlatObject } from './http/flat-json.ts';

export const BODY_BYTES_MAX = 64 * 1024;
const INT64_MIN = -(2n ** 63n);
const INT64_MAX = 2n ** 63n - 1n;

export interface CreateRequest {
  readonly accountId: bigint;
  readonly amountCents: bigint;
}

/** Properties of the call that matter to the order. */
export interface CallFacts {
  /** Hash that guards the key instead of that of the canonical fields (`-hash=raw`). */
  readonly hash?: Uint8Array;
  /** W3C Trace Context of the call; stored with the outbox row. */
  readonly traceparent?: string | undefined;
  /** Data of tracing systems, for this traceparent only. */
  readonly tracestate?: string | undefined;
}

const FIELDS = ['account_id', 'amount_cents'] as const;
type FieldName = (typeof FIELDS)[number];

/** True for decimal digits without leading zeros, with an optional minus. */
function isInteger(text: string): boolean {
  const from = text.startsWith('-') ? 1 : 0;
  if (text.length === from || (text[from] === '0' && text.length > from + 1)) return false;
  for (let i = from; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (char < 0x30 || char > 0x39) return false;
  }
  return true;
}

function int64(name: FieldName, member: FlatMember): bigint {
  const integer = (member.kind === 'number' || member.kind === 'string') && isInteger(member.text);
  if (!integer) {
    throw outboxError('bad_body', `${name} is not an integer`, {
      next: 'send a whole number, or its decimal digits as a string',
      details: { field: name },
    });
  }
  // Every int64 has at most 20 characters; longer text is out of range and never reaches BigInt.
  const value = member.text.length <= 20 ? BigInt(member.text) : INT64_MAX + 1n;
  if (value < INT64_MIN || value > INT64_MAX) {
    throw outboxError('value_out_of_range', `${name} does not fit 64 bits`, { details: { field: name } });
  }
  return value;
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses the body of a create request.
 *  @throws bad_body, body_too_large, value_out_of_range */
export function readCreateBody(body: Uint8Array): CreateRequest {
  if (body.length > BODY_BYTES_MAX)
    throw outboxError('body_too_large', `the body is over ${BODY_BYTES_MAX} bytes`);
  const fast = readBodyFast(body);
  if (fast !== undefined) return withPositive(BigInt(fast.accountId), BigInt(fast.amountCents));
  let text: string;
  try {
    text = UTF8.decode(body);
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
  return withPositive(fields.get('account_id') as bigint, fields.get('amount_cents') as bigint);
}

function withPositive(accountId: bigint, amountCents: bigint): CreateRequest {
  if (amountCents > 0n) return { accountId, amountCents };
  throw outboxError('value_out_of_range', 'amount_cents is not above zero', {
    details: { field: 'amount_cents' },
  });
}

/** SHA-256 of the operation and its canonical fields: independent of whitespace, member order and
 *  transport. */
export function requestHash(request: CreateRequest): Uint8Array {
  const text = `orders.create.v1\naccount_id=${request.accountId}\namount_cents=${request.amountCents}\n`;
  return createHash('sha256').update(text, 'utf8').digest();
}

/** SHA-256 of the operation and the bytes of the body, for `-hash=raw`: only identical bytes count
 *  as a retry. */
export function rawRequestHash(body: Uint8Array): Uint8Array {
  return createHash('sha256').update('orders.create.raw.v1\n', 'utf8').update(body).digest();
}
