/** Reads the head of a request that uWebSockets.js parsed, copies it, and judges what its parser does not.
 *
 *  That parser takes the first of several lengths, calls any transfer encoding chunked, and drops bytes above ASCII at
 *  both ends of a header value; whatever another parser could read otherwise is refused here.
 */
import { coreError } from '../../../core/errors.ts';
import type { UwsRequest } from './load.ts';

export interface UwsHead {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  /** Names, in lower case, and values in turn. */
  readonly rawHeaders: readonly string[];
  /** A body is on its way: its length, or undefined for chunks. */
  readonly body: { readonly bytes: number | undefined } | undefined;
  /** The answer is the last of its connection. */
  readonly last: boolean;
  /** The backend itself ends the connection after the answer. */
  readonly closes: boolean;
  /** Status of a head that gets no handler. */
  readonly refused: 400 | 417 | 431 | undefined;
}

/** Blank, colon and line end of a header line, and those of the request line with its version. */
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
    // Chunks that were read wrongly must not leave bytes behind that look like another request.
    last: last || encodings > 0,
    closes,
    refused: bytes > headerBytesMax ? 431 : !sound ? 400 : expectation ? 417 : undefined,
  };
}

/** 4 or 16 bytes as text; an IPv4 address in IPv6 clothes is the IPv4 address. */
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

/** An answer's header as it may be sent: one line, in Latin-1. @throws internal */
export function checkedHeader(name: string, value: string): string | Uint8Array {
  if (!NAME.test(name) || !VALUE.test(value))
    throw coreError('internal', `the header ${JSON.stringify(name)} cannot be sent`);
  return NOT_ASCII.test(value) ? Buffer.from(value, 'latin1') : value;
}
