/** Transport of a registry client over several addresses of one registry, with TLS of its own.
 *
 *  A request goes to the address that answered last. An address that does not answer, or answers
 *  502, 503 or 504, passes the request on to the next one; each address is tried at most once a
 *  request. A write may therefore reach two instances: registering a schema twice gives one id.
 */
import { Agent, type IncomingMessage, request as startPlain } from 'node:http';
import { request as startTls, Agent as TlsAgent } from 'node:https';
import type { Timers } from '../core/clock.ts';
import { serdeError } from './errors.ts';
import { ANSWER_BYTES_MAX, CONTENT_TYPE, type RegistryTransport, type TransportAnswer } from './transport.ts';

/** PEM texts, as node:tls takes them. */
export interface RegistryTls {
  /** Certificates of the authorities to trust; default: those of Node.js. */
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  /** Passphrase of `key`. */
  readonly passphrase?: string;
  /** Name in the server's certificate; default: the host of the address. */
  readonly servername?: string;
}

export interface UrlsTransportOptions {
  /** `http://host:port` or `https://host:port`, with or without a path; at least one. */
  readonly urls: readonly string[];
  /** Timeout of a whole exchange with one address, ms. */
  readonly timeoutMs: number;
  readonly clock: Timers;
  readonly tls?: RegistryTls;
  /** Returns the Authorization header; called for each request. */
  readonly authorization?: () => string | undefined;
}

interface Address {
  readonly url: URL;
  readonly path: string;
  readonly agent: Agent | TlsAgent;
}

const PASSES_ON = new Set([502, 503, 504]);

/** @throws bad_value for an address that is not an http or https URL */
export function urlsTransport(options: UrlsTransportOptions): RegistryTransport {
  const addresses = options.urls.map((text) => addressOf(text, options.tls));
  if (addresses.length === 0)
    throw serdeError('bad_option', 'a registry client needs an address', {
      next: 'give url or urls',
    });
  let preferred = 0;
  return {
    async request(method, path, body) {
      let failure: unknown;
      let answered: TransportAnswer | undefined;
      for (let i = 0; i < addresses.length; i++) {
        const at = (preferred + i) % addresses.length;
        try {
          const answer = await exchange(addresses[at] as Address, options, method, path, body);
          if (!PASSES_ON.has(answer.status)) {
            preferred = at;
            return answer;
          }
          answered = answer;
        } catch (thrown) {
          failure = thrown;
        }
      }
      if (answered !== undefined) return answered;
      throw failure;
    },
  };
}

function addressOf(text: string, tls: RegistryTls | undefined): Address {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw serdeError('bad_option', `${JSON.stringify(text.slice(0, 200))} is not the address of a registry`, {
      next: 'give http://host:port or https://host:port',
    });
  if (url.username !== '' || url.password !== '')
    throw serdeError('bad_option', 'the address of a registry contains credentials, which logs would show', {
      next: 'give them as auth: { user, password }',
    });
  const agent =
    url.protocol === 'https:' ? new TlsAgent({ keepAlive: true, ...tls }) : new Agent({ keepAlive: true });
  return { url, path: url.pathname.replace(/\/+$/, ''), agent };
}

function exchange(
  { url, path: base, agent }: Address,
  { timeoutMs, clock, authorization }: UrlsTransportOptions,
  method: string,
  path: string,
  body: unknown,
): Promise<TransportAnswer> {
  const secret = authorization?.();
  const bytes = body === undefined ? undefined : Buffer.from(JSON.stringify(body), 'utf8');
  return new Promise((resolve, reject) => {
    const fail = (cause: unknown): void => {
      cancel();
      const why = cause instanceof Error ? cause.message : String(cause);
      reject(
        serdeError('registry_unavailable', `the registry at ${url.origin} is unreachable: ${why}`, {
          next: 'check the address, and that the registry runs',
          cause,
        }),
      );
    };
    const start = url.protocol === 'https:' ? startTls : startPlain;
    const request = start(
      new URL(`${base}${path}`, url.origin),
      {
        method,
        agent,
        headers: {
          accept: `${CONTENT_TYPE}, application/json; q=0.5`,
          ...(bytes === undefined ? {} : { 'content-type': CONTENT_TYPE, 'content-length': bytes.length }),
          ...(secret === undefined ? {} : { authorization: secret }),
        },
      },
      (response) =>
        void textOf(response).then((text) => {
          cancel();
          if (text !== undefined) resolve({ status: response.statusCode ?? 0, body: text });
          else reject(tooLong(url));
        }, fail),
    );
    const cancel = clock.after(timeoutMs, () =>
      request.destroy(new Error(`no complete answer within ${timeoutMs} ms`)),
    );
    request.on('error', fail);
    request.end(bytes);
  });
}

/** Undefined: the body is longer than ANSWER_BYTES_MAX. */
async function textOf(response: IncomingMessage): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of response) {
    length += (chunk as Buffer).length;
    if (length > ANSWER_BYTES_MAX) {
      response.destroy();
      return undefined;
    }
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks, length).toString('utf8');
}

const tooLong = (url: URL): Error =>
  serdeError(
    'registry_protocol',
    `an answer of ${url.origin} is longer than ${ANSWER_BYTES_MAX} bytes, so it is not from a registry`,
    { next: 'check that the address is that of a schema registry' },
  );
