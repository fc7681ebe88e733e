/** Kit of the HTTP contracts: servers and raw clients that end with their test, and requests as
 *  text. */
import { afterEach } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import type {
  HttpCapability,
  HttpDriver,
  HttpRequest,
  HttpRoute,
  HttpServer,
  HttpServerOptions,
} from '../../src/io/http/port.ts';
import { until } from '../wait.ts';
import { type RawAnswer, RawClient } from './raw-client.ts';

export const HOST = 'Host: test\r\n';
export const get = (path: string, more = ''): string => `GET ${path} HTTP/1.1\r\n${HOST}${more}\r\n`;
export const post = (path: string, body: string, more = ''): string =>
  `POST ${path} HTTP/1.1\r\n${HOST}Content-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;

/** Upper limit of the bytes that the kernel buffers for an unread connection. */
export const KERNEL_BUFFERS_BYTES = 24 * 1024 * 1024;

/** Promise with its resolver: a handler waits for it. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

export const json = (body: Buffer): Record<string, unknown> =>
  JSON.parse(body.toString('utf8')) as Record<string, unknown>;

/** Answers with the request that the handler received. */
const echo = (request: HttpRequest) => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({
    method: request.method,
    path: request.path,
    params: { ...request.params },
    query: [...request.query],
    body: Buffer.from(request.body).toString('latin1'),
    x: request.header('X-Thing'),
    remote: request.remoteAddress,
  }),
});

export const ROUTES: readonly HttpRoute[] = [
  { method: 'GET', path: '/', handler: echo },
  { method: 'GET', path: '/subjects', handler: echo },
  { method: 'GET', path: '/subjects/latest', handler: () => ({ status: 200, body: 'literal' }) },
  { method: 'GET', path: '/subjects/{subject}', handler: echo },
  { method: 'DELETE', path: '/subjects/{subject}', handler: () => ({ status: 204 }) },
  { method: 'GET', path: '/subjects/{subject}/versions/{version}', handler: echo },
  {
    method: 'GET',
    path: '/subjects/latest/versions',
    handler: () => ({ status: 200, body: 'versions of latest' }),
  },
  { method: 'POST', path: '/echo', handler: echo },
  { method: 'GET', path: '/bytes', handler: () => ({ status: 200, body: Uint8Array.of(0, 255, 13, 10) }) },
  {
    method: 'GET',
    path: '/throws',
    handler: () => {
      throw new Error('a secret of the handler');
    },
  },
  { method: 'GET', path: '/rejects', handler: () => Promise.reject(new Error('a secret of the handler')) },
  {
    method: 'GET',
    path: '/bad-header',
    handler: () => ({
      status: 200,
      headers: { 'x-first': 'left over', 'x-bad': 'a\r\nset-cookie: b' },
      body: 'x',
    }),
  },
  { method: 'GET', path: '/bad-status', handler: () => ({ status: 20, body: 'x' }) },
  { method: 'GET', path: '/nothing', handler: () => undefined as never },
  { method: 'GET', path: '/nothing-later', handler: async () => undefined as never },
  { method: 'GET', path: '/utf8', handler: () => ({ status: 200, body: 'zażółć €' }) },
];

export interface HttpHarness {
  /** True when the driver has the capability; otherwise the test checks the behavior in its
   *  `limits`. */
  can(capability: HttpCapability): boolean;
  start(routes: readonly HttpRoute[], over?: Partial<HttpServerOptions>): Promise<HttpServer>;
  open(server: HttpServer): Promise<RawClient>;
  /** Sends on a separate connection and reads one answer. */
  ask(
    server: HttpServer,
    bytes: string | Uint8Array,
    options?: { readonly head?: boolean },
  ): Promise<RawAnswer>;
  /** Resolves when the server has read all bytes that clients of this process sent before: it has
   *  answered connections opened later. Servers and clients share one event loop. */
  barrier(server: HttpServer): Promise<void>;
  /** Resolves when the server reads no more from `client`: no byte leaves the client while others
   *  are answered. */
  standstill(server: HttpServer, client: RawClient): Promise<void>;
}

/** Registers the kit; call it inside a describe. Closes everything that a test opened. */
export function httpHarness(driver: HttpDriver): HttpHarness {
  const servers: HttpServer[] = [];
  const clients: RawClient[] = [];

  afterEach(async () => {
    for (const client of clients.splice(0)) client.close();
    await Promise.all(servers.splice(0).map((server) => server.drain(0)));
  });

  async function start(
    routes: readonly HttpRoute[],
    over: Partial<HttpServerOptions> = {},
  ): Promise<HttpServer> {
    const server = await driver.listen({
      host: '127.0.0.1',
      port: 0,
      routes,
      bodyBytesMax: 1024,
      headerBytesMax: 8 * 1024,
      requestTimeoutMs: 30_000,
      keepAliveTimeoutMs: 30_000,
      log: silentLogger,
      fallbacks: {
        error: (status, request) => ({
          status,
          headers: { 'content-type': 'application/problem+json' },
          body: JSON.stringify({ refused: status, path: request.path }),
        }),
      },
      ...over,
    });
    servers.push(server);
    return server;
  }

  async function open(server: HttpServer): Promise<RawClient> {
    const client = await RawClient.open(server.port);
    clients.push(client);
    return client;
  }

  async function ask(
    server: HttpServer,
    bytes: string | Uint8Array,
    options: { readonly head?: boolean } = {},
  ) {
    const client = await open(server);
    return client.send(bytes).answer(options);
  }

  async function barrier(server: HttpServer): Promise<void> {
    for (let round = 0; round < 3; round++) await ask(server, get('/barrier'));
  }

  async function standstill(server: HttpServer, client: RawClient): Promise<void> {
    await until('a connection whose bytes stand still', async () => {
      const before = client.bytesSent;
      for (let round = 0; round < 10; round++) await barrier(server);
      return client.bytesSent === before;
    });
  }

  const can = (capability: HttpCapability): boolean => driver.limits[capability] === undefined;

  return { can, start, open, ask, barrier, standstill };
}
