/** An HTTP server in our words. Drivers: node:http, uWebSockets.js and our own parser over node:net, behind the same tests.
 *
 *  Guarantees of every driver: a request with a foreign Origin or Host is refused where the options say so; `admit` of
 *  a route judges the head before a byte of the body is kept; a body is read whole and bounded before the handler runs,
 *  and the bodies of all requests together are bounded too; the body of a request that no handler gets is discarded as
 *  it arrives; connections are bounded in total and by client; a handler's rejection is a 500 and never ends the process; a client that goes away aborts `signal`; answers on one connection leave in the
 *  order of their requests, or the connection closes; after `drain` no new request is accepted and those under way
 *  finish.
 */
import type { ConnectionLimit } from '../../core/connections.ts';
import type { Logger } from '../../core/log.ts';

/** A request without its body. */
export interface HttpRequestHead {
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
  /** Aborted when the client closes before the answer is sent. */
  readonly signal: AbortSignal;
  readonly remoteAddress: string;
  /** Who the client's certificate names. Only where the server asked for one and its chain was verified. */
  readonly peer?: HttpPeer;
}

export interface HttpRequest extends HttpRequestHead {
  readonly body: Uint8Array;
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
  /** Judges the head before the body is read: undefined lets the request in, a response is its answer, and its body is
   *  discarded. The handler is called with the same object. A rejection is a 500. */
  readonly admit?: (head: HttpRequestHead) => HttpAdmission | Promise<HttpAdmission>;
  readonly handler: HttpHandler;
}

export type HttpAdmission = HttpResponse | undefined;

/** The answers a server gives by itself, so that each product keeps its own error shape. */
export interface HttpFallbacks {
  /** 404 (unknown path), 405 (known path, other method; `allow` is set by the driver), 400 (malformed), 408 (slow),
   *  403 (foreign Origin or Host), 413 (body over the limit), 417 (an expectation that is none of ours), 431 (head over the
   *  limit), 500 (handler threw), 503 (draining, too many connections or held bytes).
   *  @param detail the reason and what to do next, where the status alone does not say it */
  error(status: number, request: Pick<HttpRequest, 'method' | 'path'>, detail?: string): HttpResponse;
}

/** TLS by the server itself. All texts are PEM. */
export interface HttpTls {
  readonly cert: string;
  readonly key: string;
  /** Authorities whose client certificates are believed; asked for only where this is given. */
  readonly clientCa?: string;
  /** With `clientCa`: a client without a certificate is refused. False: it is let in and has no `peer`; one whose
   *  certificate does not verify is refused either way. */
  readonly clientCertificateRequired?: boolean;
}

export interface HttpServerOptions {
  /** Absent: plain HTTP. */
  readonly tls?: HttpTls;
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
  /** Bytes that unanswered requests of all connections may hold in memory: unread heads, bodies until the answer,
   *  pipelined requests. At least `bodyBytesMax`; a request that would hold more is answered 503 with Retry-After, and
   *  its connection closes. Default HELD_BYTES_MAX. */
  readonly heldBytesMax?: number;
  /** Open connections; another one is answered 503 and closed, under TLS closed before its handshake. Default: no limit. */
  readonly connectionsMax?: number;
  /** Open connections of one client address, refused alike; an IPv6 client is its /64. 0 or absent: no limit. */
  readonly connectionsPerAddressMax?: number;
  /** Origins (`https://app.acme`, `*` for all) whose pages may use this server; a request with another Origin is answered
   *  403. On a loopback address the Host must be this machine's own name or the host of a listed origin. Absent: neither
   *  header is checked. */
  readonly allowedOrigins?: readonly string[];
  readonly log: Logger;
  /** A connection was refused; for metrics. */
  readonly onConnectionRefused?: (limit: ConnectionLimit) => void;
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
  /** Open connections; a driver without `connection_limits` counts those that have a request in flight. */
  connections(): number;
  /** Bytes counted against `heldBytesMax`. */
  heldBytes(): number;
  /** New connections are served with these files from now on. The server keeps whether it asks for client certificates.
   *  @throws bad_value for what does not fit, or where the server speaks no TLS; the old ones stay in force */
  reloadTls(tls: HttpTls): void;
  /** Stops accepting, lets requests under way finish for at most `timeoutMs`, then closes all. */
  drain(timeoutMs: number): Promise<void>;
}

/** What a backend may lack. A command names those it cannot do without; the contract tests demand of a driver that
 *  lacks one what its `limits` say instead. Whatever it lacks, a driver never answers the wrong request, and never
 *  hands a handler a request that another parser could read as two. */
export type HttpCapability =
  /** A client that shut down its sending side gets the answers under way. */
  | 'half_close'
  /** Requests pipelined on one connection are handled at the same time. */
  | 'parallel_pipeline'
  /** Requests pipelined behind one whose handler takes long wait for it. */
  | 'pipeline_waits'
  /** A malformed head is answered with 400. */
  | 'malformed_answered'
  /** Bytes above ASCII in header values arrive as they were sent. */
  | 'header_bytes'
  /** HTTP/1.0, targets in absolute form, `OPTIONS *`, methods that no HTTP library lists (405). */
  | 'rare_forms'
  /** Heads up to `headerBytesMax`, however they are cut and however many lines they have. */
  | 'long_heads'
  /** A chunked body is read exactly as RFC 9112 says. */
  | 'exact_chunks'
  /** `Expect: 100-continue` of a request that will be refused is not granted. */
  | 'continue_refused'
  /** The answer to a refused upload reaches a client that sends on without end. */
  | 'refusal_arrives'
  /** `requestTimeoutMs` for heads and answers that stall and `keepAliveTimeoutMs` hold. */
  | 'own_timeouts'
  /** Idle connections end when a drain begins, not when it ends. */
  | 'drain_ends_idle'
  /** `connectionsMax` and `connectionsPerAddressMax` count idle connections too. */
  | 'connection_limits'
  /** `tls` */
  | 'tls';

export interface HttpDriver {
  readonly name: string;
  /** What this backend cannot do, and in words what it does instead. */
  readonly limits: Readonly<Partial<Record<HttpCapability, string>>>;
  /** @throws busy_port, bad_value for `tls` that does not fit or that the driver cannot do */
  listen(options: HttpServerOptions): Promise<HttpServer>;
}
