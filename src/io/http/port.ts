/** An HTTP server in our words. Drivers: node:http here, uWebSockets.js behind the same tests later.
 *
 *  What every driver guarantees: a body is read whole and bounded before the handler runs; a handler's rejection is a
 *  500 and never ends the process; a client that goes away aborts `signal`; answers on one connection leave in the
 *  order of their requests, or the connection closes; after `drain` no new request is accepted and those under way
 *  finish.
 */
import type { Logger } from '../../core/log.ts';

export interface HttpRequest {
  readonly method: string;
  /** Path as sent, percent-encoding untouched, without the query. */
  readonly path: string;
  /** Named parts of the matched route, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** First value of each query parameter, percent-decoded, and all of them on demand. */
  readonly query: URLSearchParams;
  /** All values of a header in the order they came, each decoded as Latin-1, surrounding blanks removed; the name is
   *  case-insensitive. Several lines of one name stay apart. */
  header(name: string): readonly string[];
  readonly body: Uint8Array;
  /** Aborted when the client closes before the answer is sent. */
  readonly signal: AbortSignal;
  readonly remoteAddress: string;
  /** Who the client's certificate names. Only where the server asked for one and its chain was verified. */
  readonly peer?: HttpPeer;
}

export interface HttpPeer {
  /** `CN=relay,O=acme`: attributes in the certificate's order, commas between. */
  readonly subject: string;
  /** `DNS:relay.acme`, `URI:spiffe://…`. */
  readonly altNames: readonly string[];
  /** Of the whole certificate, hex digits in pairs with colons between. */
  readonly fingerprint256: string;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Text is sent as UTF-8. Absent: an empty body. */
  readonly body?: string | Uint8Array;
}

export type HttpHandler = (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;

export interface HttpRoute {
  readonly method: string;
  /** Segments after slashes; `{name}` matches one segment, percent-decoded after the split. */
  readonly path: string;
  readonly handler: HttpHandler;
}

/** The answers a server gives by itself, so that each product keeps its own error shape. */
export interface HttpFallbacks {
  /** 404 (unknown path), 405 (known path, other method; `allow` is set by the driver), 400 (malformed), 408 (slow),
   *  413 (body over the limit), 417 (an expectation that is none of ours), 431 (head over the limit), 500 (handler threw), 503 (draining). */
  error(status: number, request: Pick<HttpRequest, 'method' | 'path'>): HttpResponse;
}

export interface HttpServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly routes: readonly HttpRoute[];
  readonly fallbacks?: HttpFallbacks;
  readonly bodyBytesMax: number;
  readonly headerBytesMax: number;
  /** A request must be complete this long after its first byte. */
  readonly requestTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly log: Logger;
  /** After each answer; for metrics. */
  readonly onAnswer?: (answer: {
    readonly method: string;
    readonly route: string;
    readonly status: number;
    readonly seconds: number;
  }) => void;
}

export interface HttpServer {
  readonly host: string;
  readonly port: number;
  /** Requests accepted and not yet answered. */
  inFlight(): number;
  /** Stops accepting, lets requests under way finish for at most `timeoutMs`, then closes all. */
  drain(timeoutMs: number): Promise<void>;
}

export interface HttpDriver {
  readonly name: string;
  /** What this backend cannot do, in words for the documents. */
  readonly limits: readonly string[];
  /** @throws busy_port */
  listen(options: HttpServerOptions): Promise<HttpServer>;
}
