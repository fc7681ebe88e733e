/** Client library: one object for a registry, with serializers and deserializers of its topics. */
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { Random, Timers } from '../../core/clock.ts';
import { Metrics } from '../../core/metrics.ts';
import { RegistryClient } from '../../serde/client.ts';
import { type RegistryRequests, RetriedRequests } from '../../serde/requests.ts';
import { SharedRequests, ThreadRequests } from '../../serde/shared-client.ts';
import { type RegistryTls, urlsTransport } from '../../serde/urls-transport.ts';
import { registryError } from '../errors.ts';
import { systemClock, systemRandom } from '../system.ts';
import { type ColumnDecoderOptions, RecordColumnDecoder } from './column-decoder.ts';
import { type ColumnEncoderOptions, RecordColumnEncoder } from './column-encoder.ts';
import { Deserializer, type DeserializerOptions } from './deserializer.ts';
import { checkConnection, demandObject } from './options.ts';
import { type Prefetched, type PrefetchOptions, prefetchTopic } from './prefetch.ts';
import { type SerdeTimes, serdeTimes } from './serde-metrics.ts';
import { Serializer, type SerializerOptions } from './serializer.ts';

/** Default of `unknownForMs`. */
const UNKNOWN_MS = 60_000;

export type RegistryAuth =
  | { readonly user: string; readonly password: string }
  /** Bearer token; a function is called for each request. */
  | { readonly token: string | (() => string) };

interface ConnectionOptions {
  /** Address of the registry: `http://host:port` or `https://host:port`. Give this or `urls`. */
  readonly url?: string;
  /** Addresses of instances of one registry, in the order of preference. */
  readonly urls?: readonly string[];
  readonly auth?: RegistryAuth;
  readonly tls?: RegistryTls;
  /** Timeout of a request to one address, ms. Default 5000. */
  readonly timeoutMs?: number;
  /** Further attempts after a 5xx, a 429 or no answer, with exponential delays. Default 3. */
  readonly retries?: number;
  /** First delay between attempts, ms. Default 200. */
  readonly retryDelayMs?: number;
  readonly random?: Pick<Random, 'fraction'>;
}

export interface SchemaRegistryOptions extends ConnectionOptions {
  /** Port from `threadPort()` of the main thread's object, in place of all settings of the
   *  connection. */
  readonly port?: MessagePort;
  /** Number of objects in this process that share one registry; they share the limit of requests
   *  for unknown ids. Default 1. */
  readonly sharers?: number;
  /** Time for which an unknown id is not requested again, ms. Default 60,000. */
  readonly unknownForMs?: number;
  /** Registry of metrics to register the client's metrics in; default: one of its own. */
  readonly metrics?: Metrics;
  readonly clock?: Timers;
}

/** Client of a schema registry for one thread: share one object, because its caches hold each
 *  schema once and concurrent requests for one id are one request. Other threads share its requests
 *  through `threadPort`. It works with Millrace's registry and with the existing ones.
 *  @example
 *  const registry = new SchemaRegistry({ url: 'http://127.0.0.1:8081' });
 *  await registry.prefetch('orders');
 *  const serializer = registry.serializer({ topic: 'orders', version: 'latest' });
 *  const deserializer = registry.deserializer({ readerSchema });
 *  const bytes = serializer.serialize({ id: 7n, note: 'a note' });
 *  const value = deserializer.deserializeSync(bytes);
 */
export class SchemaRegistry {
  /** Metrics of the client: requests (of all threads, where they were sent), cache look-ups and
   *  their times. */
  readonly metrics: Metrics;
  /** Client with the calls of the registry's HTTP interface. */
  readonly client: RegistryClient;
  private readonly times: SerdeTimes;
  private readonly clock: Timers;
  private readonly shared: SharedRequests | undefined;

  /** @throws bad_option */
  constructor(options: SchemaRegistryOptions) {
    demandObject('the argument of SchemaRegistry', options);
    const { port, clock = systemClock, unknownForMs = UNKNOWN_MS, sharers } = options;
    this.metrics = options.metrics ?? new Metrics();
    this.clock = clock;
    this.times = serdeTimes(this.metrics, clock);
    if (port === undefined) {
      const requests = requestsOf(options, clock, this.metrics);
      this.shared = new SharedRequests({ requests, clock, unknownForMs });
    } else checkPort(options);
    this.client = new RegistryClient({
      requests: this.shared ?? new ThreadRequests(port as MessagePort),
      clock,
      metrics: this.metrics,
      unknownForMs,
      ...(sharers === undefined ? {} : { sharers }),
    });
  }

  /** Makes a serializer of one schema for one topic; no request is sent before its prefetch.
   *  @throws bad_option
   */
  serializer<T = unknown>(options: SerializerOptions): Serializer<T> {
    return new Serializer<T>(this.client, options, this.times);
  }

  /** Makes a deserializer; no request is sent before its first record. @throws bad_option */
  deserializer<T = unknown>(options: DeserializerOptions = {}): Deserializer<T> {
    return new Deserializer<T>(this.client, options, this.times);
  }

  /** Makes a decoder of records into columns; no request is sent before its first batch.
   *  @throws bad_option, addon_missing, addon_mismatch
   *  @example
   *  const decoder = registry.columnDecoder({ readerVersion, fields: ['id', 'customer.city'] });
   *  const records = await decoder.decode(messages.map(({ value }) => value));
   */
  columnDecoder<T = unknown>(options: ColumnDecoderOptions = {}): RecordColumnDecoder<T> {
    return new RecordColumnDecoder<T>(this.client, options, this.times);
  }

  /** Makes an encoder of columns into records of one schema for one topic; no request is sent
   *  before its prefetch.
   *  @throws bad_option, addon_missing, addon_mismatch
   *  @example
   *  const encoder = registry.columnEncoder({ topic: 'orders', version: 'latest' });
   *  await encoder.prefetch();
   *  const framed = encoder.encode(table);
   */
  columnEncoder(options: ColumnEncoderOptions): RecordColumnEncoder {
    return new RecordColumnEncoder(this.client, options, this.times);
  }

  /** Loads the schemas of a topic, so that its serializers and deserializers are synchronous from
   *  the first record: all versions of its subjects, or the schemas of its last records.
   *  @throws bad_option, registry_unavailable, registry_protocol, unauthenticated, forbidden; with
   *    `tail` also the errors of the broker
   *  @example
   *  await registry.prefetch('orders');
   *  const broker = await openBroker();
   *  await registry.prefetch('orders', { tail: { broker, brokers: 'localhost:9092' } });
   */
  prefetch(topic: string, options: PrefetchOptions = {}): Promise<Prefetched> {
    return prefetchTopic(this.client, this.clock, topic, options);
  }

  /** Makes a port for an object of another thread, whose requests this object sends: an id is
   *  requested once for all threads. Transfer the port to the thread.
   *  @throws bad_option in an object that has such a port itself
   *  @example
   *  const port = registry.threadPort();
   *  new Worker('./worker.js', { workerData: { port }, transferList: [port] });
   *  // In worker.js: const registry = new SchemaRegistry({ port: workerData.port });
   */
  threadPort(): MessagePort {
    if (this.shared === undefined)
      throw registryError('bad_option', 'the registry of a thread makes no ports', {
        next: 'call threadPort() of the object that has the address of the registry',
      });
    const { port1, port2 } = new MessageChannel();
    this.shared.serve(port1);
    return port2;
  }
}

function requestsOf(options: ConnectionOptions, clock: Timers, metrics: Metrics): RegistryRequests {
  checkConnection(options);
  const { url, urls, auth, tls, random = systemRandom } = options;
  if ((url === undefined) === (urls === undefined))
    throw registryError('bad_option', 'a SchemaRegistry has either url or urls', {
      next: 'give one of them',
    });
  const authorization = auth === undefined ? undefined : authorizationOf(auth);
  const transport = urlsTransport({
    urls: urls ?? [url as string],
    timeoutMs: options.timeoutMs ?? 5000,
    clock,
    ...(tls === undefined ? {} : { tls }),
    ...(authorization === undefined ? {} : { authorization }),
  });
  const { retries = 3, retryDelayMs = 200 } = options;
  return new RetriedRequests({ transport, clock, random, metrics, retries, retryDelayMs });
}

const CONNECTION = ['url', 'urls', 'auth', 'tls', 'timeoutMs', 'retries', 'retryDelayMs', 'random'] as const;

/** Rejects options that have no effect with a port. */
function checkPort(options: SchemaRegistryOptions): void {
  const idle = CONNECTION.filter((name) => options[name] !== undefined);
  if (idle.length > 0)
    throw registryError('bad_option', `${idle.join(', ')} has no effect beside port`, {
      next: 'give the settings of the connection to the object of the main thread',
    });
}

function authorizationOf(auth: RegistryAuth): () => string {
  if ('token' in auth) {
    const { token } = auth;
    return () => `Bearer ${typeof token === 'string' ? token : token()}`;
  }
  const { user, password } = auth;
  if (user.includes(':'))
    throw registryError('bad_option', 'a user name of basic authentication has no colon', {
      next: 'check auth.user',
    });
  const header = `Basic ${Buffer.from(`${user}:${password}`, 'utf8').toString('base64')}`;
  return () => header;
}
