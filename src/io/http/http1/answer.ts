/** Serializes answers; a short answer is one chunk of bytes. */
import { STATUS_CODES } from 'node:http';
import { coreError } from '../../../core/errors.ts';
import { BYTES, TEXT } from '../front.ts';
import type { HttpResponse } from '../port.ts';
import { EMPTY } from '../request.ts';

/** Longest body that is joined with its head. */
const JOINED_BYTES_MAX = 16 * 1024;

const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const NOT_A_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/** Header names that only the driver sets; a handler's values are ignored. */
const OWN: ReadonlySet<string> = new Set(['content-length', 'date', 'connection', 'transfer-encoding']);

type NameKind = 'type' | 'own' | 'other';
/** Bound of the cache of header names; handlers use few. */
const KNOWN_NAMES_MAX = 256;
const knownNames = new Map<string, NameKind>();

/** Kind of a header name. @throws internal for an invalid name */
function kindOf(name: string): NameKind {
  const known = knownNames.get(name);
  if (known !== undefined) return known;
  if (!NAME.test(name)) throw coreError('internal', `the header ${JSON.stringify(name)} cannot be sent`);
  const lower = name.toLowerCase();
  const kind = lower === 'content-type' ? 'type' : OWN.has(lower) ? 'own' : 'other';
  if (knownNames.size < KNOWN_NAMES_MAX) knownNames.set(name, kind);
  return kind;
}

/** Date header line, formatted once a second. */
export class DateLine {
  private text = '';
  private untilMs = 0;

  at(monotonicMs: number): string {
    if (monotonicMs >= this.untilMs) {
      const wallMs = Date.now();
      this.text = `date: ${new Date(wallMs).toUTCString()}\r\n`;
      this.untilMs = monotonicMs + 1000 - (wallMs % 1000);
    }
    return this.text;
  }
}

const FIRST_LINES: readonly string[] = Array.from(
  { length: 1000 },
  (_, status) => `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`,
);

export interface WireAnswer {
  /** Latin-1 text, or bytes. */
  readonly first: string | Buffer;
  /** Bytes that follow; empty when `first` is the whole answer. */
  readonly rest: Uint8Array;
}

/** Serializes an answer. @param connection the Connection line with its line end, or empty @throws
 *  internal for an answer that HTTP cannot express */
export function wireAnswer(
  response: HttpResponse,
  method: string,
  connection: string,
  date: string,
): WireAnswer {
  const { status, headers, body = EMPTY } = response;
  if (!Number.isInteger(status) || status < 200 || status > 999)
    throw coreError('internal', `the handler answered with the invalid status ${status}`);
  const bodiless = status === 204 || status === 304;
  let typed = bodiless || body.length === 0;
  let head = FIRST_LINES[status] as string;
  for (const name in headers) {
    const value = headers[name] as string;
    const kind = kindOf(name);
    if (kind === 'own') continue;
    if (kind === 'type') typed = true;
    if (typeof value !== 'string' || NOT_A_VALUE.test(value))
      throw coreError('internal', `the header ${JSON.stringify(name)} cannot be sent`);
    head += `${name}: ${value}\r\n`;
  }
  if (!typed) head += `content-type: ${typeof body === 'string' ? TEXT : BYTES}\r\n`;
  const size = Buffer.byteLength(body);
  const length = bodiless || response.stream !== undefined ? '' : `content-length: ${size}\r\n`;
  head += `${length}${date}${connection}\r\n`;
  if (bodiless || size === 0 || method === 'HEAD') return { first: head, rest: EMPTY };
  if (typeof body === 'string') {
    // Equal numbers of bytes and characters mean ASCII, which is Latin-1 too.
    if (size === body.length && size <= JOINED_BYTES_MAX) return { first: head + body, rest: EMPTY };
    return joined(head, Buffer.from(body, 'utf8'));
  }
  return joined(head, body);
}

function joined(head: string, body: Uint8Array): WireAnswer {
  if (body.length > JOINED_BYTES_MAX) return { first: head, rest: body };
  const bytes = Buffer.allocUnsafe(head.length + body.length);
  bytes.write(head, 0, 'latin1');
  bytes.set(body, head.length);
  return { first: bytes, rest: EMPTY };
}
