/** Request object of all HTTP drivers, and functions that read a request's head. */
import type { HttpPeer, HttpRequest } from './port.ts';

export interface Target {
  readonly path: string;
  readonly query: string;
}

const NOT_IN_A_TARGET = /[^\x21-\x7e]|#/;

/** Path and query of a request target: origin form, absolute form or `*`. Undefined for anything
 *  else, including raw bytes that need percent-encoding. */
export function targetOf(url: string): Target | undefined {
  if (NOT_IN_A_TARGET.test(url)) return undefined;
  let rest = url;
  if (!url.startsWith('/')) {
    const absolute = /^https?:\/\/[^/?]*/i.exec(url);
    if (absolute !== null) {
      rest = url.slice(absolute[0].length);
      if (!rest.startsWith('/')) rest = `/${rest}`;
    } else if (url !== '*') return undefined;
  }
  const mark = rest.indexOf('?');
  return mark < 0 ? { path: rest, query: '' } : { path: rest.slice(0, mark), query: rest.slice(mark + 1) };
}

const isBlank = (char: number): boolean => char === 0x20 || char === 0x09;

/** Value without surrounding blanks; most values have none. */
function trimmed(value: string): string {
  let from = 0;
  let to = value.length;
  while (from < to && isBlank(value.charCodeAt(from))) from++;
  while (to > from && isBlank(value.charCodeAt(to - 1))) to--;
  return to - from === value.length ? value : value.slice(from, to);
}

/** All values of a header in their order; `raw` has names and values in turn. */
export function headerValues(raw: readonly string[], name: string): readonly string[] {
  const wanted = name.toLowerCase();
  let values: string[] | undefined;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const given = raw[i] as string;
    if (given.length !== wanted.length || given.toLowerCase() !== wanted) continue;
    const value = trimmed(raw[i + 1] as string);
    if (values === undefined) values = [value];
    else values.push(value);
  }
  return values ?? NO_VALUES;
}

const NO_VALUES: readonly string[] = Object.freeze([]);
export const EMPTY = new Uint8Array(0);

/** Number of lines of a header. */
export function headerLines(raw: readonly string[], lowerName: string): number {
  let lines = 0;
  for (let i = 0; i + 1 < raw.length; i += 2) {
    const given = raw[i] as string;
    if (given.length === lowerName.length && given.toLowerCase() === lowerName) lines++;
  }
  return lines;
}

export interface RequestHead {
  readonly method: string;
  readonly target: Target;
  /** Header names and values in turn, as sent. */
  readonly rawHeaders: readonly string[];
  /** Reads the client's address; called at most once and while the connection is open: by a
   *  handler's access or by `keepAddress`. */
  readonly remoteAddress: () => string;
  readonly peer: HttpPeer | undefined;
}

/** Request; its body is empty until it has arrived. */
export class WholeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  body: Uint8Array = EMPTY;
  declare readonly peer?: HttpPeer;
  private readonly askAddress: () => string;
  private address: string | undefined;
  private readonly rawQuery: string;
  private readonly rawHeaders: readonly string[];
  private parsedQuery: URLSearchParams | undefined;
  private controller: AbortController | undefined;
  private isAborted = false;

  constructor(head: RequestHead, params: Readonly<Record<string, string>>) {
    this.method = head.method;
    this.path = head.target.path;
    this.rawQuery = head.target.query;
    this.params = params;
    this.rawHeaders = head.rawHeaders;
    this.askAddress = head.remoteAddress;
    if (head.peer !== undefined) this.peer = head.peer;
  }

  get remoteAddress(): string {
    this.address ??= this.askAddress();
    return this.address;
  }

  /** Saves the address before a handler waits: the connection may be closed at a later access. */
  keepAddress(): void {
    this.address ??= this.askAddress();
  }

  get query(): URLSearchParams {
    this.parsedQuery ??= new URLSearchParams(this.rawQuery);
    return this.parsedQuery;
  }

  /** Created at first use: most handlers do not need it. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.isAborted) this.controller.abort();
    }
    return this.controller.signal;
  }

  header(name: string): readonly string[] {
    return headerValues(this.rawHeaders, name);
  }

  /** Aborts the signal: the client disconnected. */
  abort(): void {
    this.isAborted = true;
    this.controller?.abort();
  }
}
