/** Strict parser of a request head (RFC 9112).
 *
 *  Everything that another parser could interpret differently is refused: a folded line, a blank
 *  before a colon, a line feed without its carriage return, two lengths, a length beside an
 *  encoding, any encoding except `chunked`. The text is Latin-1, one character a byte. One pass
 *  without regular expressions over client bytes.
 *  Source: RFC 9112 sections 2 to 6, RFC 9110 section 5.
 */
export interface WireHead {
  readonly method: string;
  /** Request target as sent. */
  readonly url: string;
  /** Header names and values in turn, without blanks around a value. */
  readonly rawHeaders: readonly string[];
  /** Least number of Host lines; HTTP/1.0 requires none. */
  readonly hostsMin: 0 | 1;
  /** Bytes of the body, or CHUNKED. */
  readonly length: number;
  /** True when the connection ends after the answer. */
  readonly last: boolean;
  /** True when the answer needs `connection: keep-alive`, for an HTTP/1.0 client. */
  readonly needsKeepAliveHeader: boolean;
  readonly expectsContinue: boolean;
  /** True for an expectation other than `100-continue`, which is refused. */
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
/** Characters of a header name. */
const TOKEN = table("!#$%&'*+-.^_`|~", ALPHANUMERIC);
/** Characters of a header value, including blanks inside it. */
const FIELD = table('\t', [
  [32, 126],
  [128, 255],
]);
const TARGET = table('', [[33, 126]]);
/** Characters of host and port in an absolute-form target; user information is refused. */
const AUTHORITY = table('-._~:[]%', ALPHANUMERIC);

/** True for a valid method. Any token that begins with a capital letter is a method (405 without a
 *  route), so the first byte identifies bytes that are not HTTP. CONNECT is refused: there are no
 *  tunnels. */
function isMethod(method: string): boolean {
  const first = method.charCodeAt(0);
  return first >= 65 && first <= 90 && all(method, 0, method.length, TOKEN) && method !== 'CONNECT';
}

/** Most digits of a Content-Length. */
const LENGTH_DIGITS_MAX = 19;

function all(text: string, from: number, to: number, set: Uint8Array): boolean {
  for (let i = from; i < to; i++) if (set[text.charCodeAt(i)] !== 1) return false;
  return true;
}

/** True for origin form, `*`, or absolute form with a valid authority. */
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

/** Framing of a message, collected from its header lines. */
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

  /** Records a header line. The switch over name lengths makes most lines cost one comparison.
   *  @param blanks blanks after the value */
  record(name: string, value: string, blanks: string): void {
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
    // RFC 9112 allows a tab after a length, but Node's parser does not.
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

/** Shared instance: parsing is synchronous, one head at a time. */
const framing = new Framing();

/** Parses a head. @param text the head up to its empty line, each line with its end. @returns
 *  undefined when malformed. @cost O(text) */
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
    framing.record(name, value, valueEnd === i - 2 ? '' : text.slice(valueEnd, i - 2));
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
    needsKeepAliveHeader: old && framing.keepAlive && !framing.close,
    expectsContinue: !old && framing.expectsContinue,
    expectsMore: !old && framing.expectsMore,
  };
}

/** True when bytes without the end of a head can still become a head. */
export function mayBegin(bytes: Uint8Array, at: number): boolean {
  const first = bytes[at] as number;
  return (first >= 65 && first <= 90) || (first === CR && bytes.length - at === 1);
}
