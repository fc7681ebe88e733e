/** How the client reaches a registry: a port with one driver over `fetch`, and what a test puts in its place. */
import { registryError } from '../errors.ts';

export interface TransportAnswer {
  readonly status: number;
  readonly body: string;
}

export interface RegistryTransport {
  /** @throws registry_unavailable when no answer comes */
  request(method: 'GET' | 'POST' | 'PUT', path: string, body?: unknown): Promise<TransportAnswer>;
}

export interface FetchTransportOptions {
  /** `http://host:port`, with or without a path. */
  readonly url: string;
  readonly timeoutMs: number;
  /** Value of the Authorization header, asked for each request: a token may be replaced while the process runs. */
  readonly authorization?: () => string | undefined;
}

const CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';
/** A schema and its envelope; anything longer is not from a registry. */
const ANSWER_CHARS_MAX = 16 << 20;

export function fetchTransport(options: FetchTransportOptions): RegistryTransport {
  const base = options.url.replace(/\/+$/, '');
  return {
    async request(method, path, body) {
      const authorization = options.authorization?.();
      try {
        const response = await fetch(`${base}${path}`, {
          method,
          headers: {
            accept: `${CONTENT_TYPE}, application/json; q=0.5`,
            ...(body === undefined ? {} : { 'content-type': CONTENT_TYPE }),
            ...(authorization === undefined ? {} : { authorization }),
          },
          signal: AbortSignal.timeout(options.timeoutMs),
          redirect: 'error',
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        const text = await response.text();
        if (text.length > ANSWER_CHARS_MAX) throw new Error(`an answer of ${text.length} characters`);
        return { status: response.status, body: text };
      } catch (cause) {
        throw registryError(
          'registry_unavailable',
          `the registry at ${base} cannot be reached: ${reasonOf(cause)}`,
          {
            next: 'check -registry, and that the registry runs',
            cause,
          },
        );
      }
    },
  };
}

/** fetch hides the reason in its cause. */
function reasonOf(thrown: unknown): string {
  const { cause } = thrown as { cause?: { code?: string; message?: string } };
  return cause?.code ?? cause?.message ?? (thrown as Error).message;
}
