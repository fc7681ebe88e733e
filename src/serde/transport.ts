/** HTTP transport of the registry client: a port with one driver over `fetch`; tests replace it. */
import type { Timers } from '../core/clock.ts';
import { serdeError } from './errors.ts';

export interface TransportAnswer {
  readonly status: number;
  readonly body: string;
}

export interface RegistryTransport {
  /** @throws registry_unavailable when no answer comes in time, registry_protocol when it is too
   *  long */
  request(method: 'GET' | 'POST' | 'PUT', path: string, body?: unknown): Promise<TransportAnswer>;
}

export interface FetchTransportOptions {
  /** `http://host:port`, with or without a path. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly clock: Timers;
  /** Returns the Authorization header. It is called for each request, because a token may be
   *  replaced while the process runs. */
  readonly authorization?: () => string | undefined;
}

export const CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';
/** Most bytes of an answer: a schema and its envelope. A longer answer is not from a registry. */
export const ANSWER_BYTES_MAX = 16 << 20;
/** Initial bytes of the buffer for an answer. */
const BUFFER_BYTES = 64 << 10;

/** Transport of a RegistryClient over HTTP or HTTPS, on the keep-alive connections of `fetch`. One
 *  timeout covers a whole exchange; an answer has at most 16 MiB.
 *  @example
 *  const url = 'http://127.0.0.1:8081';
 *  const transport = fetchTransport({ url, timeoutMs: 5000, clock: systemClock });
 */
export function fetchTransport(options: FetchTransportOptions): RegistryTransport {
  const base = options.url.replace(/\/+$/, '');
  return {
    async request(method, path, body) {
      const authorization = options.authorization?.();
      // The timeout covers the whole exchange: a registry that sends a byte now and then must not
      // extend it.
      const late = new AbortController();
      const cancel = options.clock.after(options.timeoutMs, () =>
        late.abort(new Error(`no whole answer within ${options.timeoutMs} ms`)),
      );
      try {
        const response = await fetch(`${base}${path}`, {
          method,
          headers: {
            accept: `${CONTENT_TYPE}, application/json; q=0.5`,
            ...(body === undefined ? {} : { 'content-type': CONTENT_TYPE }),
            ...(authorization === undefined ? {} : { authorization }),
          },
          signal: late.signal,
          redirect: 'error',
          ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        });
        const bytes = await bytesOf(response, late.signal);
        if (bytes !== undefined) return { status: response.status, body: new TextDecoder().decode(bytes) };
      } catch (cause) {
        throw serdeError(
          'registry_unavailable',
          `the registry at ${base} cannot be reached: ${reasonOf(cause)}`,
          {
            next: 'check -registry, and that the registry runs',
            cause,
          },
        );
      } finally {
        cancel();
      }
      throw serdeError(
        'registry_protocol',
        `an answer of ${base} is longer than ${ANSWER_BYTES_MAX} bytes, so it is none of a registry`,
        { next: 'check that -registry is the address of a schema registry' },
      );
    },
  };
}

/** Reads a body up to ANSWER_BYTES_MAX. Undefined: the body is longer. @throws the reason of `late`
 */
async function bytesOf(response: Response, late: AbortSignal): Promise<Uint8Array | undefined> {
  const reader = (response.body as ReadableStream<Uint8Array> | null)?.getReader();
  if (reader === undefined) return new Uint8Array(0);
  const stop = (): void => void reader.cancel().catch(() => {});
  late.addEventListener('abort', stop);
  try {
    // One growing buffer: a list of small chunks would cost far more memory than their bytes.
    let buffer = new Uint8Array(BUFFER_BYTES);
    let length = 0;
    for (;;) {
      const { done, value } = await reader.read();
      late.throwIfAborted();
      if (done) return buffer.subarray(0, length);
      if (length + value.length > ANSWER_BYTES_MAX) return undefined;
      if (length + value.length > buffer.length) {
        const larger = new Uint8Array(Math.max(length + value.length, buffer.length * 2));
        larger.set(buffer.subarray(0, length));
        buffer = larger;
      }
      buffer.set(value, length);
      length += value.length;
    }
  } finally {
    late.removeEventListener('abort', stop);
    stop();
  }
}

/** `fetch` puts the reason into the cause. */
function reasonOf(thrown: unknown): string {
  const { cause } = thrown as { cause?: { code?: string; message?: string } };
  return cause?.code ?? cause?.message ?? (thrown as Error).message;
}
