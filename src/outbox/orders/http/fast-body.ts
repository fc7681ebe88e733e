/** Fast path of flat-json.ts: parses the usual form of a body from its bytes. That form has the two
 *  members in any order, optional whitespace, and plain integers of at most 15 digits, bare or
 *  quoted. Undefined for every other body, which then goes to the full parser. So this parser never
 *  refuses a body. Cost: O(body), no allocation but the result. */

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const ZERO = 0x30;
const COLON = 0x3a;
const OPEN = 0x7b;
const CLOSE = 0x7d;
/** Numbers of up to 15 digits are exact in a double. */
const DIGITS_MAX = 15;

const ACCOUNT = Buffer.from('"account_id"', 'latin1');
const AMOUNT = Buffer.from('"amount_cents"', 'latin1');

export interface FastBody {
  readonly accountId: number;
  readonly amountCents: number;
}

function blank(body: Uint8Array, from: number): number {
  let at = from;
  for (;;) {
    const byte = body[at];
    if (byte !== SPACE && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    at++;
  }
}

/** Returns the position after the name; -1 if another name is at `at`. */
function named(body: Uint8Array, at: number, name: Uint8Array): number {
  for (let i = 0; i < name.length; i++) if (body[at + i] !== name[i]) return -1;
  return at + name.length;
}

class Reader {
  private readonly body: Uint8Array;
  at = 0;
  value = 0;

  constructor(body: Uint8Array) {
    this.body = body;
  }

  punctuation(byte: number): boolean {
    this.at = blank(this.body, this.at);
    if (this.body[this.at] !== byte) return false;
    this.at++;
    return true;
  }

  /** Reads a colon and an integer. */
  integer(): boolean {
    if (!this.punctuation(COLON)) return false;
    const { body } = this;
    let at = blank(body, this.at);
    const quoted = body[at] === QUOTE;
    if (quoted) at++;
    const negative = body[at] === MINUS;
    if (negative) at++;
    const from = at;
    let value = 0;
    let digit = (body[at] ?? 0) - ZERO;
    while (digit >= 0 && digit <= 9 && at - from <= DIGITS_MAX) {
      value = value * 10 + digit;
      digit = (body[++at] ?? 0) - ZERO;
    }
    const digits = at - from;
    if (digits === 0 || digits > DIGITS_MAX || (digits > 1 && body[from] === ZERO)) return false;
    if (quoted && body[at++] !== QUOTE) return false;
    this.at = at;
    // Avoids -0, which is not equal to 0 in every comparison.
    this.value = negative && value !== 0 ? -value : value;
    return true;
  }

  ended(): boolean {
    return blank(this.body, this.at) === this.body.length;
  }
}

export function readBodyFast(body: Uint8Array): FastBody | undefined {
  const reader = new Reader(body);
  if (!reader.punctuation(OPEN)) return undefined;
  let accountId: number | undefined;
  let amountCents: number | undefined;
  for (let member = 0; member < 2; member++) {
    if (member === 1 && !reader.punctuation(COMMA)) return undefined;
    const at = blank(body, reader.at);
    const account = named(body, at, ACCOUNT);
    const end = account >= 0 ? account : named(body, at, AMOUNT);
    if (end < 0) return undefined;
    reader.at = end;
    if (!reader.integer()) return undefined;
    if (account >= 0) accountId = reader.value;
    else amountCents = reader.value;
  }
  if (accountId === undefined || amountCents === undefined) return undefined;
  return reader.punctuation(CLOSE) && reader.ended() ? { accountId, amountCents } : undefined;
}
