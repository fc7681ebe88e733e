/** Client library: one object for a registry, with serializers and deserializers of its topics. */
import type { Random, Timers } from '../../core/clock.ts';
import { Metrics } from '../../core/metrics.ts';
import { RegistryClient } from '../../serde/client.ts';
import { type RegistryTls, urlsTransport } from '../../serde/urls-transport.ts';
import { registryError } from '../errors.ts';
import { systemClock, systemRandom } from '../system.ts';
import { Deserializer, type DeserializerOptions } from './deserializer.ts';
import { type SerdeTimes, serdeTimes } from './serde-metrics.ts';
import { Serializer, type SerializerOptions } from './serializer.ts';

export type RegistryAuth =
  | { readonly user: string; readonly password: string }
  /** Bearer token; a function is called for each request. */
  | { readonly token: string | (() => string) };

export interface SchemaRegistryOptions {
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
  /** Time for which an unknown id is not requested again, ms. Default 60,000. */
  readonly unknownForMs?: number;
  /** Registry of metrics to register the client's metrics in; default: one of its own. */
  readonly metrics?: Metrics;
  readonly clock?: Timers;
  readonly random?: Pick<Random, 'fraction'>;
}

/** Client of a schema registry for one process: share one object, because its caches hold each
 *  schema once and concurrent requests for one id are one request. It works with Millrace's
 *  registry and with the existing ones.
 *  @example
 *  const registry = new SchemaRegistry({ url: 'http://127.0.0.1:8081' }); const serializer = await
 *  registry.serializer({ topic: 'orders', version: 'latest' }).prefetch(); const deserializer =
 *  registry.deserializer({ readerSchema }); const bytes = serializer.serialize({ id: 7n, note: 'a
 *  note' }); const value = await deserializer.deserialize(bytes);
 */
export class SchemaRegistry {
  /** Metrics of the client: requests, cache look-ups and their times. */
  readonly metrics: Metrics;
  /** Client with the calls of the registry's HTTP interface. */
  readonly client: RegistryClient;
  private readonly times: SerdeTimes;

  /** @throws bad_option */
  constructor(options: SchemaRegistryOptions) {
    const { url, urls, auth, tls, clock = systemClock, random = systemRandom } = options;
    if ((url === undefined) === (urls === undefined))
      throw registryError('bad_option', 'a SchemaRegistry has either url or urls', {
        next: 'give one of them',
      });
    this.metrics = options.metrics ?? new Metrics();
    this.times = serdeTimes(this.metrics, clock);
    const authorization = auth === undefined ? undefined : authorizationOf(auth);
    this.client = new RegistryClient({
      transport: urlsTransport({
        urls: urls ?? [url as string],
        timeoutMs: options.timeoutMs ?? 5000,
        clock,
        ...(tls === undefined ? {} : { tls }),
        ...(authorization === undefined ? {} : { authorization }),
      }),
      clock,
      random,
      metrics: this.metrics,
      unknownForMs: options.unknownForMs ?? 60_000,
      retries: options.retries ?? 3,
      retryDelayMs: options.retryDelayMs ?? 200,
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
