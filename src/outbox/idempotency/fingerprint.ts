/** Fingerprint of a request: SHA-256 over the parts that make two requests the same. Pure.
 *
 *  Invariant: different lists of parts have different inputs of the hash, because each part begins
 *  with its type and its length.
 */
import { createHash } from 'node:crypto';
import { outboxError } from '../errors.ts';

/** Part of a request: bytes, text, or a JSON value. `undefined` is a part of its own: nothing. */
export type FingerprintPart = unknown;

const PREFIX = Buffer.from('millrace.idempotency.v1\n', 'latin1');
/** Maximum number of parts. */
const PARTS_MAX = 100;

function bytesOf(part: FingerprintPart, index: number): readonly [type: string, bytes: Uint8Array] {
  if (part === undefined) return ['undefined', Buffer.alloc(0)];
  if (part instanceof Uint8Array) return ['bytes', part];
  if (typeof part === 'string') return ['text', Buffer.from(part, 'utf8')];
  let text: string | undefined;
  try {
    text = JSON.stringify(part);
  } catch (thrown) {
    throw outboxError('bad_option', `part ${index} of the fingerprint is not a JSON value`, {
      next: 'select bytes, texts and JSON values',
      cause: thrown,
    });
  }
  if (text === undefined)
    throw outboxError('bad_option', `part ${index} of the fingerprint is a ${typeof part}`, {
      next: 'select bytes, texts and JSON values',
    });
  return ['json', Buffer.from(text, 'utf8')];
}

/** Returns the SHA-256 of the parts, 32 bytes. A JSON value counts with the order of its members.
 *  @throws bad_option
 *  @example
 *  const hash = fingerprint(['POST', '/orders', { amount: 5 }]);
 */
export function fingerprint(parts: readonly FingerprintPart[]): Buffer {
  if (!Array.isArray(parts) || parts.length === 0 || parts.length > PARTS_MAX)
    throw outboxError('bad_option', 'the fingerprint of a request is not a list of parts', {
      next: `return an array of 1 to ${PARTS_MAX} parts`,
    });
  const input: Uint8Array[] = [PREFIX];
  for (const [index, part] of parts.entries()) {
    const [type, bytes] = bytesOf(part, index);
    input.push(Buffer.from(`${type} ${bytes.length}\n`, 'latin1'), bytes);
  }
  return createHash('sha256').update(Buffer.concat(input)).digest();
}

/** Advisory lock of a key: the first 64 bits of a SHA-256, as the decimal text of a bigint, so that
 *  a client cannot choose keys that share a lock. */
export function lockOf(table: string, scope: string, key: string): string {
  const text = `lock\n${table}\n${scope.length} ${scope}${key}`;
  return createHash('sha256').update(text, 'utf8').digest().readBigInt64BE(0).toString();
}
