/** Test kit for gRPC: a stock client (grpc-js with the proto file), a decoder for google.rpc
 *  details by another library, and bare HTTP/2 for requests that no stock client sends. */
import { type ClientHttp2Session, connect, type OutgoingHttpHeaders, type Settings } from 'node:http2';
import { join } from 'node:path';
import {
  type ChannelCredentials,
  type Client,
  credentials,
  loadPackageDefinition,
  Metadata,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { protoPath as HEALTH_PROTO } from 'grpc-health-check';
import protobuf from 'protobufjs';
import { afterAll } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { realClock, until } from '../wait.ts';
import { logOf, type Service } from './orders-kit.ts';

export const PROTOS = join(packageRoot(), 'src', 'outbox', 'orders', 'proto');
export const METHOD = '/orders.v1.Orders/Create';
export const ORDER_MESSAGE = { account_id: '7', amount_cents: '1999' } as const;

export interface Outcome {
  readonly code: keyof typeof status;
  readonly value: Readonly<Record<string, unknown>> | undefined;
  readonly text: string;
  readonly details: readonly unknown[];
  /** Value of `idempotency-replayed` in the trailing metadata. */
  readonly replayed: string | undefined;
}

const RPC = protobuf.parse(`
  syntax = "proto3";
  message Any { string type_url = 1; bytes value = 2; }
  message Status { int32 code = 1; string message = 2; repeated Any details = 3; }
  message FieldViolation { string field = 1; string description = 2; }
  message BadRequest { repeated FieldViolation field_violations = 1; }
  message ErrorInfo { string reason = 1; string domain = 2; map<string, string> metadata = 3; }
  message Duration { int64 seconds = 1; int32 nanos = 2; }
  message RetryInfo { Duration retry_delay = 1; }
  message RequestInfo { string request_id = 1; string serving_data = 2; }
`).root;

/** Decodes the details of a google.rpc.Status, each with the name of its type. */
export function readDetails(bytes: Uint8Array): readonly Record<string, unknown>[] {
  const type = RPC.lookupType('Status');
  const read = type.toObject(type.decode(bytes), { defaults: true }) as {
    details: ReadonlyArray<{ type_url?: string; typeUrl: string; value: Uint8Array }>;
  };
  return read.details.map(({ typeUrl, value }) => {
    const name = typeUrl.slice(typeUrl.lastIndexOf('.') + 1);
    const detail = RPC.lookupType(name);
    return { type: name, ...detail.toObject(detail.decode(value), { longs: Number, enums: String }) };
  });
}

type Unary = (
  request: unknown,
  metadata: Metadata,
  options: { deadline?: number },
  answer: (error: ServiceError | null, value?: Record<string, unknown>) => void,
) => { on(event: 'status', listener: (status: { metadata: Metadata }) => void): void; cancel(): void };

export interface OrdersClient {
  create(key: string | undefined, message?: unknown, options?: CallOptions): Promise<Outcome>;
  get(orderId: string): Promise<Outcome>;
  health(service?: string): Promise<string>;
  /** Calls `onStatus` with each status of a Watch until the returned function is called. */
  watch(onStatus: (status: string) => void): () => void;
  close(): void;
}

export interface CallOptions {
  readonly timeoutMs?: number;
  readonly metadata?: Readonly<Record<string, string | Buffer>>;
  /** Cancels the call. */
  readonly signal?: AbortSignal;
}

const LOADED = loadPackageDefinition(
  loadSync(['orders/v1/orders.proto', HEALTH_PROTO], {
    includeDirs: [PROTOS],
    keepCase: true,
    longs: String,
    enums: String,
    defaults: true,
  }),
) as unknown as Record<
  string,
  Record<string, Record<string, new (at: string, creds: ChannelCredentials) => Client>>
>;

const open: Array<{ close(): void }> = [];
afterAll(() => {
  for (const one of open) one.close();
});

export function ordersClient(
  address: string,
  creds: ChannelCredentials = credentials.createInsecure(),
): OrdersClient {
  const Orders = LOADED['orders']?.['v1']?.['Orders'] as new (
    at: string,
    creds: ChannelCredentials,
  ) => Client;
  const health = (LOADED['grpc'] as unknown as Record<string, Record<string, Record<string, typeof Orders>>>)[
    'health'
  ]?.['v1']?.['Health'] as typeof Orders;
  const clients = [new Orders(address, creds), new health(address, creds)] as const;
  open.push(...clients);
  const call = (client: Client, method: string, request: unknown, key?: string, options: CallOptions = {}) =>
    new Promise<Outcome>((resolve) => {
      const metadata = new Metadata();
      if (key !== undefined) metadata.set('idempotency-key', key);
      for (const [name, value] of Object.entries(options.metadata ?? {})) metadata.add(name, value);
      const deadline = { deadline: realClock.wallNowMs() + (options.timeoutMs ?? 60_000) };
      let outcome: Outcome | undefined;
      const unary = (client as unknown as Record<string, Unary>)[method] as Unary;
      const sent = unary.call(client, request, metadata, deadline, (error, value) => {
        const bytes = error?.metadata?.get('grpc-status-details-bin')[0];
        outcome = {
          code: error === null ? 'OK' : (status[error.code] as keyof typeof status),
          value,
          text: error?.details ?? '',
          details: bytes instanceof Uint8Array ? readDetails(bytes) : [],
          replayed: undefined,
        };
      });
      options.signal?.addEventListener('abort', () => sent.cancel(), { once: true });
      sent.on('status', ({ metadata: trailers }) => {
        // The client calls back with the answer right after the status event.
        setImmediate(() => {
          const replayed = trailers.get('idempotency-replayed')[0];
          resolve({
            ...(outcome as Outcome),
            replayed: replayed === undefined ? undefined : String(replayed),
          });
        });
      });
    });
  return {
    create: (key, message = ORDER_MESSAGE, options) => call(clients[0], 'Create', message, key, options),
    get: (orderId) => call(clients[0], 'Get', { order_id: orderId }),
    health: async (service = '') => {
      const { code, value } = await call(clients[1], 'Check', { service });
      return code === 'OK' ? String(value?.['status']) : code;
    },
    watch(onStatus) {
      const stream = (
        clients[1] as unknown as {
          Watch(request: unknown): NodeJS.EventEmitter & { cancel(): void };
        }
      ).Watch({ service: '' });
      stream.on('data', (answer: { status: string }) => onStatus(answer.status));
      stream.on('error', () => {});
      return () => stream.cancel();
    },
    close: () => {
      for (const client of clients) client.close();
    },
  };
}

/** Returns the gRPC address that the service logs. */
export async function grpcAddress(service: Pick<Service, 'process'>): Promise<string> {
  return until('the gRPC address', async () => /listening on grpcs?:\/\/(\S+)/.exec(logOf(service))?.[1]);
}

export interface BareAnswer {
  readonly status: string | undefined;
  readonly text: string;
  readonly details: readonly Record<string, unknown>[];
}

/** Frames one message for gRPC: compression flag 0, length, bytes. */
export function framed(message: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}

/** Makes a call with these headers and this body, without any validation. */
export function bareCall(
  session: ClientHttp2Session,
  headers: OutgoingHttpHeaders,
  body: Uint8Array,
): Promise<BareAnswer> {
  return new Promise((resolve, reject) => {
    const stream = session.request({
      ':method': 'POST',
      ':path': METHOD,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    });
    let seen: Record<string, unknown> = {};
    stream.on('response', (answer) => {
      seen = { ...seen, ...answer };
    });
    stream.on('trailers', (trailers) => {
      seen = { ...seen, ...trailers };
    });
    stream.on('error', reject);
    stream.on('close', () => {
      const bytes = seen['grpc-status-details-bin'];
      resolve({
        status: seen['grpc-status'] === undefined ? undefined : String(seen['grpc-status']),
        text: decodeURIComponent(String(seen['grpc-message'] ?? '')),
        details: typeof bytes === 'string' ? readDetails(Buffer.from(bytes, 'base64')) : [],
      });
    });
    stream.resume();
    stream.end(body);
  });
}

export function bareSession(address: string, settings: Settings = {}): ClientHttp2Session {
  const session = connect(`http://${address}`, { settings });
  session.on('error', () => {});
  open.push({ close: () => session.destroy() });
  return session;
}
