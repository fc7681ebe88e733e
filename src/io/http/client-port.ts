/** An HTTP client in our words: one request, one whole reply, connections kept and bounded in number. */

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
  /** Waits for a free connection, then for the whole reply.
   *  @throws unreachable, timeout; nobody knows then whether the server acted */
  send(request: HttpClientRequest): Promise<HttpClientReply>;
  /** Ends every connection; requests under way fail. */
  close(): void;
}

export interface HttpClientOptions {
  /** `http://host:port` or `https://host:port`; a path in it stands before every request's path. */
  readonly target: string;
  /** PEM of the authorities to believe, for https; absent: those of the system. */
  readonly ca?: string;
  readonly connectionsMax: number;
  /** From the hand-over of the request to the end of the reply. */
  readonly timeoutMs: number;
  readonly bodyBytesMax: number;
}

export interface HttpClientDriver {
  readonly name: string;
  /** @throws bad_value for a target that is no http address */
  open(options: HttpClientOptions): HttpClient;
}
