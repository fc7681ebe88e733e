/** Names a value in an error message. */

const SHOWN_CHARS_MAX = 64;

/** Objects are shown by their kind: they may be large, circular, or contain values that JSON lacks.
 */
export function shownOf(value: unknown): string {
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'string') return JSON.stringify(value.slice(0, SHOWN_CHARS_MAX));
  if (typeof value !== 'object' || value === null) return String(value).slice(0, SHOWN_CHARS_MAX);
  if (Array.isArray(value)) return 'a list';
  return value instanceof Uint8Array ? `${value.length} bytes` : 'an object';
}
