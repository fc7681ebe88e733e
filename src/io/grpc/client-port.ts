/** Port of a gRPC client: unary calls over bytes; the caller encodes its own messages. */

export interface GrpcClientRequest {
  /** `/package.Service/Method`. */
  readonly path: string;
  readonly message: Uint8Array;
  /** ASCII metadata by lower-case name. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface GrpcClientReply {
  /** Status number, an index of GRPC_CODES. */
  readonly code: number;
  /** Text of a status that is not OK. */
  readonly text: string;
  /** Bytes of the response message; empty unless the status is OK. */
  readonly message: Uint8Array;
  /** First value of each ASCII entry of the trailing metadata. */
  readonly trailers: Readonly<Record<string, string>>;
}

export interface GrpcClient {
  /** Makes one call and waits for its status.
   *  @throws unreachable, timeout for UNAVAILABLE and DEADLINE_EXCEEDED, which the client itself
   *  reports for a lost connection; it is then unknown whether the server acted */
  call(request: GrpcClientRequest): Promise<GrpcClientReply>;
  /** Closes the connection; calls in flight fail. */
  close(): void;
}

export interface GrpcClientOptions {
  /** Server address: `http://host:port` or `https://host:port`. */
  readonly target: string;
  /** Timeout of a call, which the server is told as its deadline. */
  readonly timeoutMs: number;
  readonly messageBytesMax: number;
}

export interface GrpcClientDriver {
  readonly name: string;
  /** Opens a client, which connects with its first call. @throws bad_value */
  open(options: GrpcClientOptions): GrpcClient;
}
