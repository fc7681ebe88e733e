/** Port of a gRPC server: unary methods over bytes; the product encodes its own messages. The
 *  driver is an own HTTP/2 implementation over node:net.
 *
 *  Guarantees of a driver:
 *  (a) A message is read whole and bounded before the handler runs.
 *  (b) A handler's rejection is a status and never ends the process.
 *  (c) A call whose deadline has passed never reaches its handler.
 *  (d) A client that cancels, or whose deadline passes, gets no answer; its handler continues.
 *  (e) The memory of all calls together is bounded. So is the time that a call waits for its
 *  client, with an incomplete message or an unread answer.
 *  (f) Server reflection (v1, v1alpha) describes the methods; grpc.health.v1 reports `healthy`.
 *  (g) `drain` sends GOAWAY to every connection, and calls in flight finish.
 */
import type { ConnectionLimit } from '../../core/connections.ts';
import type { Logger } from '../../core/log.ts';

/** Canonical status codes; the index is the number on the wire. Source: the gRPC documentation,
 *  statuscodes. */
export const GRPC_CODES = [
  'OK',
  'CANCELLED',
  'UNKNOWN',
  'INVALID_ARGUMENT',
  'DEADLINE_EXCEEDED',
  'NOT_FOUND',
  'ALREADY_EXISTS',
  'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED',
  'FAILED_PRECONDITION',
  'ABORTED',
  'OUT_OF_RANGE',
  'UNIMPLEMENTED',
  'INTERNAL',
  'UNAVAILABLE',
  'DATA_LOSS',
  'UNAUTHENTICATED',
] as const;

export type GrpcCode = (typeof GRPC_CODES)[number];

/** Details of a failed call beside its code, as google.rpc messages that clients know. */
export type GrpcDetail =
  | {
      readonly kind: 'bad_request';
      readonly violations: ReadonlyArray<{ readonly field: string; readonly description: string }>;
    }
  | {
      readonly kind: 'error_info';
      readonly reason: string;
      readonly domain: string;
      readonly metadata: Readonly<Record<string, string>>;
    }
  | { readonly kind: 'retry_info'; readonly delayMs: number }
  | { readonly kind: 'request_info'; readonly requestId: string };

export interface GrpcCall {
  /** Values of one ASCII metadata entry in their order; the name is case-insensitive and does not
   *  end in `-bin`. */
  metadata(name: string): readonly string[];
  /** Bytes of the request message. */
  readonly message: Uint8Array;
  /** IP address of the client. */
  readonly remoteAddress: string;
  /** Identity from the client's certificate; only when the server requested one and its chain was
   *  verified. */
  readonly peer?: GrpcPeer | undefined;
  /** True when the client disconnected or cancelled, or its deadline has passed. */
  cancelled(): boolean;
}

export interface GrpcPeer {
  /** Subject: attributes in the certificate's order, comma-separated, such as `CN=relay,O=acme`. */
  readonly subject: string;
}

export interface GrpcReply {
  readonly code: GrpcCode;
  /** Answer message for OK; empty otherwise. */
  readonly message: Uint8Array;
  /** Trailing metadata of the answer. */
  readonly trailers?: Readonly<Record<string, string>>;
  /** Message for a person when the code is not OK. */
  readonly text?: string;
  /** Details, sent as google.rpc.Status in grpc-status-details-bin. */
  readonly details?: readonly GrpcDetail[];
}

export interface GrpcMethod {
  /** Full name of the service, such as `orders.v1.Orders`. */
  readonly service: string;
  readonly name: string;
  readonly handler: (call: GrpcCall) => GrpcReply | Promise<GrpcReply>;
}

/** TLS of the server. All texts are PEM. */
export interface GrpcTls {
  readonly cert: string;
  readonly key: string;
  /** Trusted authorities of client certificates, which are requested only with this option. */
  readonly clientCa?: string;
  /** With `clientCa`, true (the default): a client without a certificate is refused. False: it is
   *  admitted. A certificate that does not verify is refused in both cases. */
  readonly clientCertificateRequired?: boolean;
}

/** Reason that a call was ended while it waited for its client. `memory`: no room
 *  (RESOURCE_EXHAUSTED). `flood`: it sent too many bytes (RESOURCE_EXHAUSTED). `incomplete`: its
 *  message was not complete in time (DEADLINE_EXCEEDED). `unread`: its answer was not read in time
 *  (CANCELLED). `kept_open`: reflection or health was open for too long (CANCELLED or
 *  DEADLINE_EXCEEDED). */
export type GrpcCallEnd = 'memory' | 'flood' | 'incomplete' | 'unread' | 'kept_open';

/** Proto files that describe the methods. */
export interface GrpcProtos {
  readonly folder: string;
  /** File names relative to the folder. */
  readonly files: readonly string[];
}

export interface GrpcServerOptions {
  readonly host: string;
  /** Port; 0: any free port. */
  readonly port: number;
  /** TLS; absent: plain text (h2c with prior knowledge). */
  readonly tls?: GrpcTls;
  readonly methods: readonly GrpcMethod[];
  readonly protos: GrpcProtos;
  /** Health check, run every `healthIntervalMs`; its result is the status of the server and of
   *  every service in `methods`. */
  readonly healthy: () => Promise<boolean>;
  readonly healthIntervalMs: number;
  readonly messageBytesMax: number;
  /** Most open connections; a further connection gets GOAWAY with ENHANCE_YOUR_CALM, or is closed
   *  before its TLS handshake. */
  readonly connectionsMax: number;
  /** Most open connections of one client address, refused in the same way; an IPv6 client is its
   *  /64. 0 or absent: no limit. */
  readonly connectionsPerAddressMax?: number;
  /** Most calls in flight on one connection. */
  readonly streamsMax: number;
  /** Most bytes of all calls in memory; a call above the limit is refused. */
  readonly heldBytesMax: number;
  /** Timeout of three waits: from a call's headers to its complete message, from its answer to the
   *  client's read, and from a connection to the end of its TLS handshake. */
  readonly requestTimeoutMs: number;
  /** Time without a call after which a connection gets GOAWAY. */
  readonly idleTimeoutMs: number;
  /** Silence after which a connection gets a PING; without an answer within `requestTimeoutMs` it
   *  is closed. */
  readonly keepAliveMs: number;
  readonly log: Logger;
  /** Called after each answer of a method; for metrics. */
  readonly onAnswer?: (answer: {
    readonly method: string;
    readonly code: GrpcCode;
    readonly seconds: number;
  }) => void;
  readonly onEnd?: (why: GrpcCallEnd) => void;
  /** Called after a connection was refused; for metrics. */
  readonly onConnectionRefused?: (limit: ConnectionLimit) => void;
}

export interface GrpcServer {
  readonly host: string;
  readonly port: number;
  /** Number of calls whose handler has not answered. */
  inFlight(): number;
  connections(): number;
  /** Counted bytes of all calls in memory. */
  heldBytes(): number;
  /** Uses these files for new connections. Whether client certificates are requested does not
   *  change.
   *  @throws bad_value for a faulty part, or when the server has no TLS; the old files then remain
   *  in use */
  reloadTls(tls: GrpcTls): void;
  /** Runs `healthy` immediately. */
  askHealth(): Promise<void>;
  /** Reports NOT_SERVING, stops accepting, sends GOAWAY, waits up to `timeoutMs` for calls in
   *  flight, then closes all connections. */
  drain(timeoutMs: number): Promise<void>;
}

export interface GrpcDriver {
  readonly name: string;
  /** Starts a server. @throws busy_port; bad_value for a faulty `tls` */
  listen(options: GrpcServerOptions): Promise<GrpcServer>;
}
