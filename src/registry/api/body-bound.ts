/** Limits a JSON text before it is parsed, because each bracket becomes an object that costs memory
 *  and garbage collection. */

/** Limit of nested brackets in a request body. */
const BODY_NESTING_MAX = 200;
/** Limit of brackets, commas and colons in a request body, outside of its strings. */
const BODY_TOKENS_MAX = 150_000;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

const OPENS = 1;
const CLOSES = 2;
const SEPARATES = 3;
const QUOTES = 4;
/** Role of a byte outside a string; 0: not counted. */
const ROLES = new Uint8Array(256);
for (const [roles, role] of [
  ['[{', OPENS],
  [']}', CLOSES],
  [',:', SEPARATES],
  ['"', QUOTES],
] as const)
  for (const char of roles) ROLES[char.charCodeAt(0)] = role;

/** Returns the reason not to parse a text, or undefined. Makes one pass over the bytes. */
export function bodyExcess(body: Uint8Array): string | undefined {
  const end = body.length;
  let depth = 0;
  let tokens = 0;
  for (let at = 0; at < end; at++) {
    const role = ROLES[body[at] as number];
    if (role === 0) continue;
    if (role === QUOTES) {
      for (at++; at < end; at++) {
        const byte = body[at];
        if (byte === QUOTE) break;
        if (byte === BACKSLASH) at++;
      }
      continue;
    }
    if (role === CLOSES) {
      depth--;
      continue;
    }
    if (role === OPENS && ++depth > BODY_NESTING_MAX)
      return `the request body nests its brackets deeper than ${BODY_NESTING_MAX} (the limit body-nesting)`;
    if (++tokens > BODY_TOKENS_MAX)
      return `the request body has more than ${BODY_TOKENS_MAX} brackets, commas and colons outside of strings (the limit body-tokens)`;
  }
  return undefined;
}
