/** Reads the head of a request out of its bytes, exactly as RFC 9112 writes it, and nothing that is only near it.
 *
 *  What another parser could read otherwise is refused: a folded line, a blank before a colon, a line feed without its
 *  carriage return, two lengths, a length beside an encoding, any encoding but `chunked`. The text is Latin-1, so that
 *  each byte is one character; one pass, no regular expression over what a client sends.
 *  Source: RFC 9112 sections 2 to 6, RFC 9110 section 5.
 */
export interface WireHead {
  readonly method: string;
  /** As sent. */
  readonly url: string;
  /** Names and values in turn, blanks around a value removed. */
  readonly rawHeaders: readonly string[];
  /** Host lines that must be there: HTTP/1.0 knows none. */
  readonly hostsMin: 0 | 1;
  /** Bytes of the body, or CHUNKED. */
  readonly length: number;
  /** The connection ends with the answer. */
  readonly last: boolean;
  /** An HTTP/1.0 client is told that its connection goes on. */
  readonly saysKeepAlive: boolean;
  readonly expectsContinue: boolean;
  /** It expects something else, which nobody here can promise. */
  readonly expectsMore: boolean;
}

export const CHUNKED = -1;

const TAB = 9;
const LF = 10;
const CR = 13;
const SPACE = 32;
const COLON = 58;

function table(chars: string, ranges: ReadonlyArray<readonly [number, number]>): Uint8Array {
  const set = new Uint8Array(256);
  for (const char of chars) set[char.charCodeAt(0)] = 1;
  for (const [from, to] of ranges) set.fill(1, from, to + 1);
  return set;
}

const ALPHANUMERIC = [
  [48, 57],
  [65, 90],
  [97, 122],
] as const;
/** What a header's name is made of. */
const TOKEN = table("!#$%&'*+-.^_`|~", ALPHANUMERIC);
/** What a header's value is made of, blanks inside it included. */
const FIELD = table('\t', [
  [32, 126],
  [128, 255],
]);
const TARGET = table('', [[33, 126]]);
/** Host and port of a target in absolute form; a user name has no place in it. */
const AUTHORITY = table('-._~:[]%', ALPHANUMERIC);

/** Any token is a method, and one without a route is answered 405. Of those that begin with a capital letter, so that
 *  what is no HTTP is known by its first byte; a tunnel is never opened here. */
function isMethod(method: string): boolean {
  const first = method.charCodeAt(0);
  return first >= 65 && first <= 90 && all(method, 0, method.length, TOKEN) && method !== 'CONNECT';
}

/** More digits are no length of anything. */
const LENGTH_DIGITS_MAX = 19;

function all(text: string, from: number, to: number, set: Uint8Array): boolean {
  for (let i = from; i < to; i++) if (set[text.charCodeAt(i)] !== 1) return false;
  return true;
}

/** Origin form, `*`, or absolute form with a sound authority. */
export function isTarget(url: string): boolean {
  if (url.length === 0 || !all(url, 0, url.length, TARGET)) return false;
  if (url.charCodeAt(0) === 47 || url === '*') return true;
  const from = url.indexOf('://') + 3;
  if (from < 3) return false;
  let to = from;
  while (to < url.length && AUTHORITY[url.charCodeAt(to)] === 1) to++;
  return to === url.length || url.charCodeAt(to) === 47 || url.charCodeAt(to) === 63;
}

function lengthOf(value: string): number | undefined {
  if (value.length === 0 || value.length > LENGTH_DIGITS_MAX) return undefined;
  for (let i = 0; i < value.length; i++) {
    const digit = value.charCodeAt(i);
    if (digit < 48 || digit > 57) return undefined;
  }
  return Number(value);
}

/** What the header lines say about the message itself. */
class Framing {
  lengths = 0;
  length = 0;
  encodings = 0;
  sound = true;
  close = false;
  keepAlive = false;
  expectsContinue = false;
  expectsMore = false;

  reset(): void {
    this.lengths = 0;
    this.length = 0;
    this.encodings = 0;
    this.sound = true;
    this.close = false;
    this.keepAlive = false;
    this.expectsContinue = false;
    this.expectsMore = false;
  }

  /** Only these lengths of a name matter, so most lines cost one comparison. `blanks` stand behind the value. */
  note(name: string, value: string, blanks: string): void {
    switch (name.length) {
      case 6:
        if (name.toLowerCase() === 'expect') this.expect(value);
        break;
      case 10:
        if (name.toLowerCase() === 'connection') this.connection(value);
        break;
      case 14:
        if (name.toLowerCase() === 'content-length') this.contentLength(value, blanks);
        break;
      case 17:
        if (name.toLowerCase() === 'transfer-encoding') {
          this.encodings++;
          if (value.toLowerCase() !== 'chunked') this.sound = false;
        }
        break;
    }
  }

  private contentLength(value: string, blanks: string): void {
    this.lengths++;
    const length = lengthOf(value);
    // A tab behind a length is a blank to the specification and none to the parser of node.
    if (length === undefined || blanks.includes('\t')) this.sound = false;
    else this.length = length;
  }

  private connection(value: string): void {
    for (const part of value.toLowerCase().split(',')) {
      const token = part.trim();
      if (token === 'close') this.close = true;
      else if (token === 'keep-alive') this.keepAlive = true;
    }
  }

  private expect(value: string): void {
    if (value.toLowerCase() === '100-continue') this.expectsContinue = true;
    else this.expectsMore = true;
  }
}

/** One head is read at a time. */
const framing = new Framing();

/** @param text the head up to its empty line, each line with its end. Undefined: malformed. @cost O(text) */
export function readWireHead(text: string): WireHead | undefined {
  const methodEnd = text.indexOf(' ');
  const urlEnd = text.indexOf(' ', methodEnd + 1);
  const method = text.slice(0, methodEnd);
  if (methodEnd < 0 || urlEnd < 0 || !isMethod(method)) return undefined;
  const url = text.slice(methodEnd + 1, urlEnd);
  const old = text.startsWith('HTTP/1.0\r\n', urlEnd + 1);
  if (!(old || text.startsWith('HTTP/1.1\r\n', urlEnd + 1)) || !isTarget(url)) return undefined;

  const rawHeaders: string[] = [];
  framing.reset();
  let i = urlEnd + 11;
  while (i < text.length) {
    const nameStart = i;
    let char = text.charCodeAt(i);
    while (TOKEN[char] === 1) char = text.charCodeAt(++i);
    if (char !== COLON || i === nameStart) return undefined;
    const name = text.slice(nameStart, i);
    char = text.charCodeAt(++i);
    while (char === SPACE || char === TAB) char = text.charCodeAt(++i);
    const valueStart = i;
    let valueEnd = i;
    while (FIELD[char] === 1) {
      i++;
      if (char !== SPACE && char !== TAB) valueEnd = i;
      char = text.charCodeAt(i);
    }
    if (char !== CR || text.charCodeAt(i + 1) !== LF) return undefined;
    i += 2;
    const value = text.slice(valueStart, valueEnd);
    rawHeaders.push(name, value);
    framing.note(name, value, valueEnd === i - 2 ? '' : text.slice(valueEnd, i - 2));
  }
  const { lengths, encodings } = framing;
  if (!framing.sound || lengths + encodings > 1 || (old && encodings > 0)) return undefined;
  return {
    method,
    url,
    rawHeaders,
    hostsMin: old ? 0 : 1,
    length: encodings > 0 ? CHUNKED : framing.length,
    last: framing.close || (old && !framing.keepAlive),
    saysKeepAlive: old && framing.keepAlive && !framing.close,
    expectsContinue: !old && framing.expectsContinue,
    expectsMore: !old && framing.expectsMore,
  };
}

/** Whether bytes without an end of their head could still become one. */
export function mayBegin(bytes: Uint8Array, at: number): boolean {
  const first = bytes[at] as number;
  return (first >= 65 && first <= 90) || (first === CR && bytes.length - at === 1);
}
