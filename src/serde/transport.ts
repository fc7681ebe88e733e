/** How the client reaches a registry: a port with one driver over `fetch`, and what a test puts in its place. */
import type { Timers } from '../core/clock.ts';
import { serdeError } from './errors.ts';

export interface TransportAnswer {
  readonly status: number;
  readonly body: string;
}

export interface RegistryTransport {
  /** @throws registry_unavailable when no answer comes in time, registry_protocol when it does not end */
  request(method: 'GET' | 'POST' | 'PUT', path: string, body?: unknown): Promise<TransportAnswer>;
}

export interface FetchTransportOptions {
  /** `http://host:port`, with or without a path. */
  readonly url: string;
  readonly timeoutMs: number;
  readonly clock: Timers;
  /** Value of the Authorization header, asked for each request: a token may be replaced while the process runs. */
  readonly authorization?: () => string | undefined;
}

const CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';
/** Bytes of an answer: a schema and its envelope; anything longer is not from a registry. */
const ANSWER_BYTES_MAX = 16 << 20;
/** Bytes of the room that an answer is read into at first. */
const ROOM_BYTES = 64 << 10;

export function fetchTransport(options: FetchTransportOptions): RegistryTransport {
  const base = options.url.replace(/\/+$/, '');
  return {
    async request(method, path, body) {
      const authorization = options.authorization?.();
      // Of the whole exchange: a registry that sends a byte now and then has not answered.
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

/** Reads no further than the bound. Undefined: the body is longer. @throws the reason of `late` */
async function bytesOf(response: Response, late: AbortSignal): Promise<Uint8Array | undefined> {
  const reader = (response.body as ReadableStream<Uint8Array> | null)?.getReader();
  if (reader === undefined) return new Uint8Array(0);
  const stop = (): void => void reader.cancel().catch(() => {});
  late.addEventListener('abort', stop);
  try {
    // One room that grows: chunks kept one by one would each cost far more than a byte that it brings.
    let room = new Uint8Array(ROOM_BYTES);
    let length = 0;
    for (;;) {
      const { done, value } = await reader.read();
      late.throwIfAborted();
      if (done) return room.subarray(0, length);
      if (length + value.length > ANSWER_BYTES_MAX) return undefined;
      if (length + value.length > room.length) {
        const wider = new Uint8Array(Math.max(length + value.length, room.length * 2));
        wider.set(room.subarray(0, length));
        room = wider;
      }
      room.set(value, length);
      length += value.length;
    }
  } finally {
    late.removeEventListener('abort', stop);
    stop();
  }
}

/** fetch hides the reason in its cause. */
function reasonOf(thrown: unknown): string {
  const { cause } = thrown as { cause?: { code?: string; message?: string } };
  return cause?.code ?? cause?.message ?? (thrown as Error).message;
}
