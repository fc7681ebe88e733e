/** Port of an HTTP client: one request, one whole reply, over kept connections of a bounded number.
 */

export interface HttpClientRequest {
  readonly method: string;
  /** Path and query, as sent. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

export interface HttpClientReply {
  readonly status: number;
  /** First value of a header by its lower-case name. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

export interface HttpClient {
  /** Sends over a free connection and waits for the whole reply.
   *  @throws unreachable, timeout; it is then unknown whether the server acted */
  send(request: HttpClientRequest): Promise<HttpClientReply>;
  /** Closes every connection; requests in flight fail. */
  close(): void;
}

export interface HttpClientOptions {
  /** Server address: `http://host:port` or `https://host:port`; a path in it is put before every
   *  request's path. */
  readonly target: string;
  /** PEM of the trusted authorities, for https; absent: those of the system. */
  readonly ca?: string;
  readonly connectionsMax: number;
  /** Timeout from the call to the end of the reply. */
  readonly timeoutMs: number;
  readonly bodyBytesMax: number;
}

export interface HttpClientDriver {
  readonly name: string;
  /** Opens a client. @throws bad_value for a target that is no http address */
  open(options: HttpClientOptions): HttpClient;
}
