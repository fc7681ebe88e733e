/** Checks of values that a service gives to `append` and `effect`. */

const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

/** True for a W3C trace context of the form 00-TRACE-SPAN-FLAGS that is not all zeros.
 *  Source: W3C Trace Context, 3.2. */
export const isTraceparent = (value: unknown): value is string =>
  typeof value === 'string' && TRACEPARENT.test(value);

/** Longest tracestate that is carried, characters; longer ones may be dropped by the specification.
 *  Source: W3C Trace Context, 3.3.1.5. */
const TRACESTATE_CHARS_MAX = 512;
const TRACESTATE_MEMBERS_MAX = 32;
const TRACESTATE_MEMBER =
  /^[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** True for a W3C tracestate with at least one member. Source: W3C Trace Context, 3.3.1. */
export function isTracestate(value: unknown): value is string {
  if (typeof value !== 'string' || value.length > TRACESTATE_CHARS_MAX) return false;
  const members = value.split(',').map((member) => member.replace(/^[ \t]+|[ \t]+$/g, ''));
  const named = members.filter((member) => member !== '');
  if (named.length === 0 || members.length > TRACESTATE_MEMBERS_MAX) return false;
  return named.every((member) => TRACESTATE_MEMBER.test(member));
}

/** Returns the JSON text of a value.
 *  @throws Error with the reason, if JSON cannot hold the value */
export function jsonOf(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value, lossless);
  } catch (thrown) {
    throw new Error((thrown as Error).message.split('\n')[0]);
  }
  if (text === undefined) throw new Error(typeof value);
  return text;
}

/** Refuses values that JSON.stringify writes as null, as an empty object or as an object of
 *  indexes. */
function lossless(_name: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) throw new Error(`${value} is not a JSON number`);
  if (value instanceof Map || value instanceof Set || ArrayBuffer.isView(value))
    throw new Error(`JSON cannot represent a ${value.constructor.name}`);
  return value;
}
