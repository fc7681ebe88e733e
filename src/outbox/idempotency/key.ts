/** Syntax of an idempotency key: 1 to 255 visible ASCII characters, bare or quoted as a structured
 *  field string. Pure; the endpoints of this module and of orders share it. Sources: the IETF draft
 *  of the Idempotency-Key header, 2.1; RFC 9651, 3.3.3. */
import type { MillraceError } from '../../core/errors.ts';
import { outboxError } from '../errors.ts';

export const KEY_CHARS_MAX = 255;
export const KEY_NAME = 'idempotency-key';
/** Longest value of the header: each character escaped, between two quotes. */
const VALUE_CHARS_MAX = 2 * KEY_CHARS_MAX + 2;

const VISIBLE = /^[\x21-\x7e]{1,255}$/;
const QUOTED = /^"(?:[^"\\]|\\["\\])*"$/;

/** Place of the key in the request, for error texts. */
const PLACES = {
  header: { noun: 'the Idempotency-Key header', next: 'send one Idempotency-Key header' },
  metadata: { noun: 'the metadata idempotency-key', next: 'send idempotency-key once, as ASCII metadata' },
} as const;

function refused(where: keyof typeof PLACES, why: string): MillraceError {
  const { noun, next } = PLACES[where];
  return outboxError('bad_idempotency_key', `${noun} ${why}`, {
    next: `${next} of 1 to ${KEY_CHARS_MAX} visible characters`,
    details: where === 'metadata' ? { field: KEY_NAME } : {},
  });
}

/** True for 1 to 255 visible ASCII characters. */
export const isKey = (text: unknown): boolean => typeof text === 'string' && VISIBLE.test(text);

/** Reads the key from all values of the header or the metadata. Two lines that a server joined into
 *  one value contain a blank, so they are refused too.
 *  @throws bad_idempotency_key
 *  @example
 *  const key = readKey(['"order-7"']);
 */
export function readKey(values: readonly string[], where: keyof typeof PLACES = 'header'): string {
  const [value] = values;
  if (value === undefined) throw refused(where, 'is missing');
  if (values.length > 1) throw refused(where, 'is given more than once');
  if (value === '') throw refused(where, 'is empty');
  if (value.length > VALUE_CHARS_MAX)
    throw refused(where, `has more than the ${KEY_CHARS_MAX} characters of a key`);
  let key = value;
  if (value.startsWith('"')) {
    if (!QUOTED.test(value)) throw refused(where, 'is not one quoted string');
    key = value.slice(1, -1).replace(/\\(["\\])/g, '$1');
  }
  if (VISIBLE.test(key)) return key;
  if (key.length > KEY_CHARS_MAX)
    throw refused(where, `has a key of ${key.length} characters, more than ${KEY_CHARS_MAX}`);
  throw refused(where, key === '' ? 'is empty' : 'has a blank or an invisible character');
}
