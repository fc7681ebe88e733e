/** Copies the head of a request that uWebSockets.js parsed, and adds checks that its parser lacks.
 *
 *  That parser uses the first of several lengths, treats any transfer encoding as chunked, and
 *  drops bytes above ASCII at both ends of a header value. Everything that another parser could
 *  interpret differently is refused here.
 */
import { coreError } from '../../../core/errors.ts';
import type { UwsRequest } from './load.ts';

export interface UwsHead {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Header names, in lower case, and values in turn. */
  readonly rawHeaders: readonly string[];
  /** Announced body: its length, or undefined for chunks. */
  readonly body: { readonly bytes: number | undefined } | undefined;
  /** True when the answer is the last of its connection. */
  readonly last: boolean;
  /** True when the backend closes the connection after the answer by itself. */
  readonly closes: boolean;
  /** Status that refuses the head before a handler. */
  readonly refused: 400 | 417 | 431 | undefined;
}

/** Bytes of a header line beside name and value (blank, colon, line end), and of the request line
 *  beside method and target. */
const LINE_BYTES = 4;
const FIRST_LINE_BYTES = 12;
const NOT_ASCII = /[^\t\x20-\x7e]/;
const LENGTH = /^\d{1,15}$/;

export function readHead(request: UwsRequest, headerBytesMax: number): UwsHead {
  const method = request.getCaseSensitiveMethod();
  const path = request.getUrl();
  const query = request.getQuery();
  const url = query === undefined ? path : `${path}?${query}`;
  const rawHeaders: string[] = [];
  let bytes = FIRST_LINE_BYTES + method.length + url.length;
  let lengths = 0;
  let length = '';
  let encodings = 0;
  let chunked = false;
  let last = false;
  let closes = false;
  let connections = 0;
  let sound = true;
  let expectation = false;
  request.forEach((name, value) => {
    rawHeaders.push(name, value);
    bytes += name.length + value.length + LINE_BYTES;
    if (NOT_ASCII.test(value)) sound = false;
    switch (name) {
      case 'content-length':
        lengths++;
        length = value;
        break;
      case 'transfer-encoding':
        encodings++;
        chunked = value.toLowerCase() === 'chunked';
        break;
      case 'connection':
        if (/(^|,)[ \t]*close[ \t]*(,|$)/i.test(value)) last = true;
        closes = connections++ === 0 && value.length === 'close'.length && last;
        break;
      case 'expect':
        if (value.toLowerCase() !== '100-continue') expectation = true;
        break;
    }
  });
  if (lengths + encodings > 1 || (lengths === 1 && !LENGTH.test(length))) sound = false;
  if (encodings > 0 && !chunked) sound = false;
  const hasBody = encodings > 0 || Number(length) > 0;
  return {
    method,
    url,
    rawHeaders,
    body: hasBody ? { bytes: encodings > 0 ? undefined : Number(length) } : undefined,
    // Bytes after a wrongly parsed chunked body must not be treated as another request.
    last: last || encodings > 0,
    closes,
    refused: bytes > headerBytesMax ? 431 : !sound ? 400 : expectation ? 417 : undefined,
  };
}

/** Text of an address of 4 or 16 bytes; an IPv4-mapped IPv6 address becomes the IPv4 address. */
export function addressText(raw: ArrayBuffer): string {
  const bytes = new Uint8Array(raw);
  if (bytes.length === 4) return bytes.join('.');
  if (bytes.length !== 16) return '';
  const words = Array.from(
    { length: 8 },
    (_, i) => ((bytes[2 * i] as number) << 8) | (bytes[2 * i + 1] as number),
  );
  if (words.slice(0, 5).every((word) => word === 0) && words[5] === 0xffff) return bytes.slice(12).join('.');
  return new URL(`http://[${words.map((word) => word.toString(16)).join(':')}]`).hostname.slice(1, -1);
}

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Header value for an answer: one line, in Latin-1. @throws internal */
export function checkedHeader(name: string, value: string): string | Uint8Array {
  if (!NAME.test(name) || !VALUE.test(value))
    throw coreError('internal', `the header ${JSON.stringify(name)} cannot be sent`);
  return NOT_ASCII.test(value) ? Buffer.from(value, 'latin1') : value;
}
