/** A gRPC server in our words: unary methods over bytes. The product reads and writes its messages itself; drivers:
 *  our own HTTP/2 over node:net, @grpc/grpc-js.
 *
 *  What a driver guarantees: a message is read whole and bounded before the handler runs; a handler's rejection is a
 *  status and never ends the process; a call whose deadline has passed never reaches its handler; a client that
 *  cancels, or whose deadline passes, gets no answer and the handler runs on; what all calls hold in memory is bounded, and
 *  so is how long one waits for its client, with a message that never becomes whole or an answer that is never read; server
 *  reflection (v1, v1alpha) describes the methods; grpc.health.v1 answers what `healthy` says; after `drain` begins
 *  connections are told to go away and what is under way finishes.
 */
import type { ConnectionLimit } from '../../core/connections.ts';
import type { Logger } from '../../core/log.ts';

/** The canonical codes, by the number that travels. Source: the gRPC documentation, statuscodes. */
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

/** What a failed call says beside its code, as the messages of google.rpc that clients know. */
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
  /** Values of one ASCII metadata entry in the order they came; the name is case-insensitive and none ends in `-bin`. */
  metadata(name: string): readonly string[];
  /** The bytes of the one message. */
  readonly message: Uint8Array;
  /** IP address of the client. */
  readonly remoteAddress: string;
  /** Name in the client's certificate. Only where the server asked for one and its chain was verified. */
  readonly peer?: GrpcPeer | undefined;
  /** Whether the client has gone away or its deadline has passed. */
  cancelled(): boolean;
}

export interface GrpcPeer {
  /** `CN=relay,O=acme`: attributes in the certificate's order, commas between. */
  readonly subject: string;
}

export interface GrpcReply {
  readonly code: GrpcCode;
  /** For OK; empty otherwise. */
  readonly message: Uint8Array;
  /** Metadata that ends the answer. */
  readonly trailers?: Readonly<Record<string, string>>;
  /** For a person, where the code is not OK. */
  readonly text?: string;
  /** Travels as google.rpc.Status in grpc-status-details-bin. */
  readonly details?: readonly GrpcDetail[];
}

export interface GrpcMethod {
  /** `orders.v1.Orders`. */
  readonly service: string;
  readonly name: string;
  readonly handler: (call: GrpcCall) => GrpcReply | Promise<GrpcReply>;
}

/** TLS by the server itself. All texts are PEM. */
export interface GrpcTls {
  readonly cert: string;
  readonly key: string;
  /** Authorities whose client certificates are believed; asked for only where this is given. */
  readonly clientCa?: string;
  /** With `clientCa`: a client without a certificate is refused. False: it is let in; one whose certificate does not
   *  verify is refused either way. */
  readonly clientCertificateRequired?: boolean;
}

/** Why a call was ended that waited for its client: there was no room for it (RESOURCE_EXHAUSTED), it sent on and on
 *  (RESOURCE_EXHAUSTED), its message was not whole in time (DEADLINE_EXCEEDED), its answer was not read in time (CANCELLED), or
 *  reflection or health was kept open for too long (CANCELLED or DEADLINE_EXCEEDED). */
export type GrpcCallEnd = 'memory' | 'flood' | 'incomplete' | 'unread' | 'kept_open';

/** Where the methods are described. */
export interface GrpcProtos {
  readonly folder: string;
  /** Relative to the folder. */
  readonly files: readonly string[];
}

export interface GrpcServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /** Absent: plain text (h2c with prior knowledge). */
  readonly tls?: GrpcTls;
  readonly methods: readonly GrpcMethod[];
  readonly protos: GrpcProtos;
  /** Asked every `healthIntervalMs`; the answer is the status of the server and of every service in `methods`. */
  readonly healthy: () => Promise<boolean>;
  readonly healthIntervalMs: number;
  readonly messageBytesMax: number;
  /** Open connections; another one gets GOAWAY with ENHANCE_YOUR_CALM, under TLS it is closed before its handshake. */
  readonly connectionsMax: number;
  /** Open connections of one client address, refused alike; an IPv6 client is its /64. 0 or absent: no limit. */
  readonly connectionsPerAddressMax?: number;
  /** Calls under way on one connection. */
  readonly streamsMax: number;
  /** What the calls of all connections together may hold in memory; another one is refused. */
  readonly heldBytesMax: number;
  /** A call's message must be complete this long after its headers, its answer read this long after it was given, and TLS
   *  stand this long after the connection. */
  readonly requestTimeoutMs: number;
  /** A connection without a call for so long is told to go away. */
  readonly idleTimeoutMs: number;
  /** A connection is asked for a sign of life after so long, and closed when none comes within `requestTimeoutMs`. */
  readonly keepAliveMs: number;
  readonly log: Logger;
  /** After each answer of a method; for metrics. */
  readonly onAnswer?: (answer: {
    readonly method: string;
    readonly code: GrpcCode;
    readonly seconds: number;
  }) => void;
  readonly onEnd?: (why: GrpcCallEnd) => void;
  /** A connection was refused; for metrics. */
  readonly onConnectionRefused?: (limit: ConnectionLimit) => void;
}

export interface GrpcServer {
  readonly host: string;
  readonly port: number;
  /** Calls that reached their handler and are not answered yet. */
  inFlight(): number;
  connections(): number;
  /** What all calls are counted to hold. */
  heldBytes(): number;
  /** New connections are served with these files from now on. The server keeps whether it asks for client certificates.
   *  @throws bad_value for what does not fit, or where the server speaks no TLS; the old ones stay in force */
  reloadTls(tls: GrpcTls): void;
  /** Asks `healthy` at once. */
  askHealth(): Promise<void>;
  /** Says NOT_SERVING, stops accepting, sends GOAWAY, lets calls under way finish for at most `timeoutMs`, then closes
   *  all. */
  drain(timeoutMs: number): Promise<void>;
}

export interface GrpcDriver {
  readonly name: string;
  /** @throws busy_port, bad_value for `tls` that does not fit */
  listen(options: GrpcServerOptions): Promise<GrpcServer>;
}
