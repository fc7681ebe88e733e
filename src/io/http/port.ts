/** Port of an HTTP server. Drivers: node:http, uWebSockets.js, and an own parser over node:net; all
 *  pass the same contract tests.
 *
 *  Guarantees of every driver:
 *  - A request with a foreign Origin or Host is refused when the options require it.
 *  - `admit` of a route decides about the head before a byte of the body is kept.
 *  - A body is read whole and bounded before the handler runs. The bodies of all requests together
 *    are bounded too. The body of a request that no handler gets is discarded on arrival.
 *  - Connections are bounded in total and by client.
 *  - A handler's rejection is a 500 and never ends the process.
 *  - A client that disconnects aborts `signal`.
 *  - Answers on one connection are sent in the order of their requests, or the connection closes.
 *  - After `drain` no new request is accepted, and requests in flight finish. Streams end.
 */
import type { ConnectionLimit } from '../../core/connections.ts';
import type { Logger } from '../../core/log.ts';

/** A request without its body. */
export interface HttpRequestHead {
  readonly method: string;
  /** Path as sent, still percent-encoded, without the query. */
  readonly path: string;
  /** Named segments of the matched route, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** Query parameters, percent-decoded. */
  readonly query: URLSearchParams;
  /** All values of a header in their order, decoded as Latin-1, without surrounding blanks; the
   *  name is case-insensitive. Several lines of one name remain separate. */
  header(name: string): readonly string[];
  /** Signal that is aborted when the client closes before the answer is sent. */
  readonly signal: AbortSignal;
  readonly remoteAddress: string;
  /** Identity from the client's certificate; only when the server requested one and its chain was
   *  verified. */
  readonly peer?: HttpPeer;
}

export interface HttpRequest extends HttpRequestHead {
  readonly body: Uint8Array;
}

export interface HttpPeer {
  /** Subject: attributes in the certificate's order, comma-separated, such as `CN=relay,O=acme`. */
  readonly subject: string;
  /** Alternative names, such as `DNS:relay.acme` or `URI:spiffe://…`. */
  readonly altNames: readonly string[];
  /** Fingerprint of the whole certificate: pairs of hex digits with colons between. */
  readonly fingerprint256: string;
}

export interface HttpResponse {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Body; text is sent as UTF-8. Absent: empty. */
  readonly body?: string | Uint8Array;
  /** Source of a body without a known end, instead of `body`. The connection ends after it. A
   *  request with the method HEAD gets the head alone, and its source is never started. */
  readonly stream?: HttpStreamSource;
}

/** Client's side of a streamed body. */
export interface HttpStream {
  /** Sends text as UTF-8. False: the client has not taken all bytes yet, so wait for `writable`.
   *  Without effect once the stream is over. A client that takes no bytes for `requestTimeoutMs`
   *  is disconnected. */
  write(text: string): boolean;
  /** Ends the body and the connection. */
  end(): void;
}

/** Receives the events of a streamed body, none after `closed`. An error that it throws ends the
 *  stream. */
export interface HttpStreamSource {
  /** The head was sent. */
  start(out: HttpStream): void;
  /** The client has taken all bytes after a write that returned false. */
  writable(): void;
  /** The stream is over: by `end`, by the client, or because the server drains. */
  closed(): void;
}

export type HttpHandler = (request: HttpRequest) => HttpResponse | Promise<HttpResponse>;

export interface HttpRoute {
  readonly method: string;
  /** Path pattern: segments after slashes; `{name}` matches one segment, percent-decoded after the
   *  split. */
  readonly path: string;
  /** Decides about the head before the body is read: undefined admits the request; a response is
   *  its answer, and its body is discarded. The handler gets the same object. A rejection is a 500.
   */
  readonly admit?: (head: HttpRequestHead) => HttpAdmission | Promise<HttpAdmission>;
  readonly handler: HttpHandler;
}

export type HttpAdmission = HttpResponse | undefined;

/** Answers of the server itself, so that each product has its own error format. */
export interface HttpFallbacks {
  /** Answers 404 (unknown path), 405 (known path, other method; the driver sets `allow`), 400
   *  (malformed), 403 (foreign Origin or Host), 408 (slow), 413 (body over the limit), 417
   *  (unsupported expectation), 431 (head over the limit), 500 (handler threw), 503 (draining, too
   *  many connections or bytes in memory).
   *  @param detail the reason and the next step, when the status alone does not give them */
  error(status: number, request: Pick<HttpRequest, 'method' | 'path'>, detail?: string): HttpResponse;
}

/** TLS of the server. All texts are PEM. */
export interface HttpTls {
  readonly cert: string;
  readonly key: string;
  /** Trusted authorities of client certificates, which are requested only with this option. */
  readonly clientCa?: string;
  /** With `clientCa`, true (the default): a client without a certificate is refused. False: it is
   *  admitted and has no `peer`. A certificate that does not verify is refused in both cases. */
  readonly clientCertificateRequired?: boolean;
}

export interface HttpServerOptions {
  /** TLS; absent: plain HTTP. */
  readonly tls?: HttpTls;
  readonly host: string;
  /** Port; 0: any free port. */
  readonly port: number;
  readonly routes: readonly HttpRoute[];
  readonly fallbacks?: HttpFallbacks;
  readonly bodyBytesMax: number;
  readonly headerBytesMax: number;
  /** Time from the first byte of a request to its last. */
  readonly requestTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
  /** Most bytes of unanswered requests in memory over all connections: unparsed heads, bodies until
   *  the answer, pipelined requests. At least `bodyBytesMax`. A request above the limit is answered
   *  503 with Retry-After, and its connection closes. Default HELD_BYTES_MAX. */
  readonly heldBytesMax?: number;
  /** Most open connections; a further connection is answered 503 and closed, under TLS before its
   *  handshake. Default: no limit. */
  readonly connectionsMax?: number;
  /** Most open connections of one client address, refused in the same way; an IPv6 client is its
   *  /64. 0 or absent: no limit. */
  readonly connectionsPerAddressMax?: number;
  /** Origins (`https://app.acme`, `*` for all) whose pages may use this server; a request with
   *  another Origin is answered 403. On a loopback address the Host must be a name of this machine
   *  or the host of a listed origin. Absent: neither header is checked. */
  readonly allowedOrigins?: readonly string[];
  readonly log: Logger;
  /** Called after a connection was refused; for metrics. */
  readonly onConnectionRefused?: (limit: ConnectionLimit) => void;
  /** Called after each answer; for metrics. */
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
  /** Number of open connections; a driver without `connection_limits` counts connections with a
   *  request in flight. */
  connections(): number;
  /** Bytes that count against `heldBytesMax`. */
  heldBytes(): number;
  /** Uses these files for new connections. Whether client certificates are requested does not
   *  change.
   *  @throws bad_value for a faulty part, or when the server has no TLS; the old files then remain
   *  in use */
  reloadTls(tls: HttpTls): void;
  /** Stops accepting, waits up to `timeoutMs` for requests in flight, then closes all connections.
   */
  drain(timeoutMs: number): Promise<void>;
}

/** Capabilities that a backend may lack. A command names the ones it requires; the contract tests
 *  check the text in `limits` for a missing one. Independent of these, a driver never answers the
 *  wrong request, and never passes a handler a request that another parser could interpret as two.
 */
export type HttpCapability =
  /** A client that shut down its sending side gets the answers in flight. */
  | 'half_close'
  /** Requests pipelined on one connection are handled at the same time. */
  | 'parallel_pipeline'
  /** Requests that are pipelined behind a slow handler wait for it. */
  | 'pipeline_waits'
  /** A malformed head is answered with 400. */
  | 'malformed_answered'
  /** Bytes above ASCII in header values arrive unchanged. */
  | 'header_bytes'
  /** HTTP/1.0, targets in absolute form, `OPTIONS *`, methods that no HTTP library lists (405). */
  | 'rare_forms'
  /** Heads up to `headerBytesMax` arrive in any chunks and with any number of lines. */
  | 'long_heads'
  /** A chunked body is parsed exactly by RFC 9112. */
  | 'exact_chunks'
  /** `Expect: 100-continue` of a request that will be refused is not granted. */
  | 'continue_refused'
  /** The answer to a refused upload reaches a client that continues to send without end. */
  | 'refusal_arrives'
  /** `requestTimeoutMs` applies to stalled heads and answers, and `keepAliveTimeoutMs` applies. */
  | 'own_timeouts'
  /** Idle connections end when a drain begins, not when it ends. */
  | 'drain_ends_idle'
  /** `connectionsMax` and `connectionsPerAddressMax` count idle connections too. */
  | 'connection_limits'
  /** The option `tls` is supported. */
  | 'tls';

export interface HttpDriver {
  readonly name: string;
  /** Missing capabilities of this backend, each with its behavior instead. */
  readonly limits: Readonly<Partial<Record<HttpCapability, string>>>;
  /** Starts a server. @throws busy_port; bad_value for a `tls` that is faulty or not supported */
  listen(options: HttpServerOptions): Promise<HttpServer>;
}
