/** HTTP client over node:http and node:https with keep-alive connections. */
import { Agent, type ClientRequest, type IncomingMessage, request as startPlain } from 'node:http';
import { request as startTls, Agent as TlsAgent } from 'node:https';
import { coreError, type MillraceError } from '../../core/errors.ts';
import type { HttpClient, HttpClientDriver, HttpClientOptions, HttpClientReply } from './client-port.ts';

/** Idle time after which a connection is closed. It is shorter than the timeout of servers (5 s in
 *  Node): a request that crosses the server's close gets no reply, and it is unknown whether the
 *  server took it. */
const IDLE_MS = 4000;

function targetOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (
    url === undefined ||
    !/^https?:$/.test(url.protocol) ||
    url.hostname === '' ||
    url.search !== '' ||
    url.hash !== ''
  ) {
    throw coreError('bad_value', `the target ${text} is not an http address`, {
      next: 'give http://host:port or https://host:port',
    });
  }
  return url;
}

function failure(target: string, cause: Error): MillraceError {
  const code = (cause as NodeJS.ErrnoException).code ?? cause.name;
  return coreError('unreachable', `no reply from ${target}: ${code}`, { cause, details: { reason: code } });
}

export const nodeHttpClientDriver: HttpClientDriver = {
  name: 'node:http',
  open(options: HttpClientOptions): HttpClient {
    const url = targetOf(options.target);
    const prefix = url.pathname.replace(/\/$/, '');
    const tls = url.protocol === 'https:';
    const agentOptions = {
      keepAlive: true,
      maxSockets: options.connectionsMax,
      scheduling: 'fifo',
      timeout: IDLE_MS,
    } as const;
    const agent = tls
      ? new TlsAgent({ ...agentOptions, ...(options.ca === undefined ? {} : { ca: options.ca }) })
      : new Agent(agentOptions);
    const startRequest = tls ? startTls : startPlain;
    const defaultPort = tls ? 443 : 80;
    return {
      send: ({ method, path, headers, body }) =>
        new Promise<HttpClientReply>((resolve, reject) => {
          let request: ClientRequest | undefined;
          const timer = setTimeout(() => {
            reject(
              coreError('timeout', `no reply from ${options.target} within ${options.timeoutMs} ms`, {
                details: { reason: 'timeout' },
              }),
            );
            request?.destroy();
          }, options.timeoutMs);
          const fail = (cause: Error): void => {
            clearTimeout(timer);
            reject(failure(options.target, cause));
          };
          const receive = (response: IncomingMessage): void => {
            const chunks: Buffer[] = [];
            let bytes = 0;
            response.on('error', fail);
            response.on('data', (chunk: Buffer) => {
              bytes += chunk.length;
              if (bytes > options.bodyBytesMax)
                request?.destroy(new Error(`a reply over ${options.bodyBytesMax} bytes`));
              else chunks.push(chunk);
            });
            response.on('aborted', () =>
              fail(new Error('the connection closed before the end of the reply')),
            );
            response.on('end', () => {
              clearTimeout(timer);
              const first = Object.entries(response.headers).map(([name, value]) => [
                name,
                Array.isArray(value) ? (value[0] ?? '') : (value ?? ''),
              ]);
              resolve({
                status: response.statusCode ?? 0,
                headers: Object.fromEntries(first),
                body: Buffer.concat(chunks),
              });
            });
          };
          request = startRequest(
            {
              agent,
              hostname: url.hostname.replace(/^\[(.*)\]$/, '$1'),
              port: url.port === '' ? defaultPort : Number(url.port),
              method,
              path: prefix + path,
              headers: { ...headers, 'content-length': String(Buffer.byteLength(body)) },
            },
            receive,
          );
          request.on('error', fail);
          request.end(body);
        }),
      close: () => agent.destroy(),
    };
  },
};
