/** What the node:http driver hands to a handler, and how it reads a request's head. */
import type { IncomingMessage } from 'node:http';
import type { HttpRequest } from './port.ts';

export interface Target {
  readonly path: string;
  readonly query: string;
}

/** Path and query of a request target: origin form, absolute form or `*`. Undefined for anything else, raw bytes that
 *  should have been percent-encoded included. */
export function targetOf(url: string): Target | undefined {
  if (/[^\x21-\x7e]|#/.test(url)) return undefined;
  let rest = url;
  const absolute = /^https?:\/\/[^/?]*/i.exec(url);
  if (absolute !== null) {
    rest = url.slice(absolute[0].length);
    if (!rest.startsWith('/')) rest = `/${rest}`;
  }
  if (rest !== '*' && !rest.startsWith('/')) return undefined;
  const mark = rest.indexOf('?');
  return mark < 0 ? { path: rest, query: '' } : { path: rest.slice(0, mark), query: rest.slice(mark + 1) };
}

/** All lines of one header, in the order sent. */
export function headerValues(raw: readonly string[], name: string): string[] {
  const wanted = name.toLowerCase();
  const values: string[] = [];
  for (let i = 0; i + 1 < raw.length; i += 2) {
    if ((raw[i] as string).toLowerCase() === wanted) {
      values.push((raw[i + 1] as string).replace(/^[ \t]+|[ \t]+$/g, ''));
    }
  }
  return values;
}

export class NodeRequest implements HttpRequest {
  readonly method: string;
  readonly path: string;
  readonly params: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  readonly remoteAddress: string;
  private readonly rawQuery: string;
  private readonly rawHeaders: readonly string[];
  private parsedQuery: URLSearchParams | undefined;
  private controller: AbortController | undefined;
  private gone = false;

  constructor(
    target: Target,
    params: Readonly<Record<string, string>>,
    body: Uint8Array,
    incoming: IncomingMessage,
  ) {
    this.method = incoming.method ?? '';
    this.path = target.path;
    this.rawQuery = target.query;
    this.params = params;
    this.body = body;
    this.rawHeaders = incoming.rawHeaders;
    this.remoteAddress = incoming.socket.remoteAddress ?? '';
  }

  get query(): URLSearchParams {
    this.parsedQuery ??= new URLSearchParams(this.rawQuery);
    return this.parsedQuery;
  }

  /** Made on first use: most handlers never ask. */
  get signal(): AbortSignal {
    if (this.controller === undefined) {
      this.controller = new AbortController();
      if (this.gone) this.controller.abort();
    }
    return this.controller.signal;
  }

  header(name: string): readonly string[] {
    return headerValues(this.rawHeaders, name);
  }

  /** The client has gone. */
  abort(): void {
    this.gone = true;
    this.controller?.abort();
  }
}
