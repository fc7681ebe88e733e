/** Parses the value of an order.events record:
 *
 *    {"msg_id":uuid,"event_type":text,
 *     "payload":{"order_id":uuid,"account_id":int64,"amount_cents":int64,"created_at":time}}
 *
 *  Strict where a charge depends on it: valid UTF-8 and JSON, no duplicate member, ids are UUIDs,
 *  int64 is exact as a number or as a decimal string, the amount is above zero. Unknown members are
 *  ignored, and so is the payload of an unknown event type.
 */
import { canonicalUuid } from '../ids.ts';

const ORDER_CREATED_EVENT = 'order.created.v1';

/** Largest value of an order event; a larger one is parked without being parsed. */
export const VALUE_BYTES_MAX = 64 * 1024;
const EVENT_TYPE_CHARS_MAX = 200;
const INT64_MAX = 2n ** 63n - 1n;
const INT64_MIN = -(2n ** 63n);
/** At most 19 digits and a sign. */
const INTEGER = /^-?(?:0|[1-9]\d{0,18})$/;

export interface OrderEvent {
  readonly kind: 'order';
  readonly msgId: string;
  readonly orderId: string;
  readonly amountCents: bigint;
  /** Commit time that the event states, ms since the epoch; undefined if it is no valid time. */
  readonly createdMs: number | undefined;
}

export type PaymentEvent =
  | OrderEvent
  | { readonly kind: 'other'; readonly eventType: string }
  | { readonly kind: 'poison'; readonly why: string };

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

const poison = (why: string): PaymentEvent => ({ kind: 'poison', why });

export function readPaymentEvent(value: Uint8Array | null): PaymentEvent {
  if (value === null) return poison('the record has no value');
  if (value.length > VALUE_BYTES_MAX)
    return poison(`the value has ${value.length} bytes, at most ${VALUE_BYTES_MAX} are read`);
  let text: string;
  try {
    text = utf8.decode(value);
  } catch {
    return poison('the value is not UTF-8');
  }
  try {
    JSON.parse(text);
  } catch {
    return poison('the value is not JSON');
  }
  const envelope = membersOf(text);
  if (typeof envelope === 'string') return poison(`the value ${envelope}`);
  const msgId = canonicalUuid(stringAt(envelope, 'msg_id') ?? '');
  if (msgId === undefined) return poison('msg_id is not a UUID');
  const eventType = stringAt(envelope, 'event_type');
  if (eventType === undefined || eventType === '' || eventType.length > EVENT_TYPE_CHARS_MAX)
    return poison(`event_type is not a text of 1 to ${EVENT_TYPE_CHARS_MAX} characters`);
  const payload = membersOf(envelope.get('payload') ?? '');
  if (eventType !== ORDER_CREATED_EVENT) return { kind: 'other', eventType };
  if (typeof payload === 'string') return poison(`the payload ${payload}`);
  return readOrder(msgId, payload);
}

function readOrder(msgId: string, payload: ReadonlyMap<string, string>): PaymentEvent {
  const orderId = canonicalUuid(stringAt(payload, 'order_id') ?? '');
  if (orderId === undefined) return poison('order_id is not a UUID');
  if (int64At(payload, 'account_id') === undefined) return poison('account_id is not a 64-bit integer');
  const amountCents = int64At(payload, 'amount_cents');
  if (amountCents === undefined) return poison('amount_cents is not a 64-bit integer');
  if (amountCents <= 0n) return poison('amount_cents is not above zero');
  const createdMs = Date.parse(stringAt(payload, 'created_at') ?? '');
  return {
    kind: 'order',
    msgId,
    orderId,
    amountCents,
    createdMs: Number.isNaN(createdMs) ? undefined : createdMs,
  };
}

/** Returns the members of an object with the source text of their values, so that no digit is lost,
 *  or the error as text. `text` must be valid JSON or empty. */
function membersOf(text: string): ReadonlyMap<string, string> | string {
  let at = skipBlanks(text, 0);
  if (text[at] !== '{') return 'is not an object';
  const members = new Map<string, string>();
  at = skipBlanks(text, at + 1);
  while (text[at] === '"') {
    const nameEnd = stringEnd(text, at);
    const name = JSON.parse(text.slice(at, nameEnd)) as string;
    const start = skipBlanks(text, skipBlanks(text, nameEnd) + 1);
    const end = valueEnd(text, start);
    if (members.has(name)) return `has ${JSON.stringify(name.slice(0, 40))} twice`;
    members.set(name, text.slice(start, end).trimEnd());
    at = text[end] === ',' ? skipBlanks(text, end + 1) : end;
  }
  return members;
}

function skipBlanks(text: string, from: number): number {
  let at = from;
  while (at < text.length && text.charCodeAt(at) <= 0x20) at++;
  return at;
}

/** Position behind the closing quote of the string at `from`. */
function stringEnd(text: string, from: number): number {
  let at = from + 1;
  while (at < text.length && text[at] !== '"') at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** Position of the comma or brace behind the value at `from`. */
function valueEnd(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const char = text[at];
    if (char === '"') {
      at = stringEnd(text, at);
      continue;
    }
    if (depth === 0 && (char === ',' || char === '}')) return at;
    if (char === '{' || char === '[') depth++;
    else if (char === '}' || char === ']') depth--;
    at++;
  }
  return at;
}

function stringAt(members: ReadonlyMap<string, string>, name: string): string | undefined {
  const source = members.get(name);
  return source?.startsWith('"') === true ? (JSON.parse(source) as string) : undefined;
}

function int64At(members: ReadonlyMap<string, string>, name: string): bigint | undefined {
  const text = stringAt(members, name) ?? members.get(name) ?? '';
  if (!INTEGER.test(text)) return undefined;
  const value = BigInt(text);
  return value >= INT64_MIN && value <= INT64_MAX ? value : undefined;
}
