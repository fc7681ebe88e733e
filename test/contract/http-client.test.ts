/** Contract of the HTTP client port, over real sockets. */
import { once } from 'node:events';
import { createServer as createHttpServer, type Server as HttpServer, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';
import { nodeHttpClientDriver } from '../../src/io/http/client.ts';
import type { HttpClient, HttpClientOptions } from '../../src/io/http/client-port.ts';
import { turns, until } from '../wait.ts';
import { certificate } from '../../src/devstack/certificates.ts';
import { gate } from './http-harness.ts';

const closers: Array<() => void> = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function listening(server: Server | HttpServer): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Server that answers each connection by a function. */
function rawServer(answer: (socket: Socket) => void): Promise<string> {
  return listening(
    createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => answer(socket));
    }),
  );
}

function open(target: string, over: Partial<HttpClientOptions> = {}): HttpClient {
  const client = nodeHttpClientDriver.open({
    target,
    connectionsMax: 4,
    timeoutMs: 60_000,
    bodyBytesMax: 100_000,
    ...over,
  });
  closers.push(() => client.close());
  return client;
}

const POST = {
  method: 'POST',
  path: '/orders',
  headers: { 'content-type': 'application/json' },
  body: '{"a":"ß"}',
};

async function failureOf(sent: Promise<unknown>): Promise<MillraceError> {
  const thrown = await sent.then(
    () => undefined,
    (error: unknown) => error,
  );
  expect(thrown).toBeInstanceOf(MillraceError);
  return thrown as MillraceError;
}

describe('HTTP client', () => {
  test('the client sends method, path, headers and body and returns the whole reply', async () => {
    const target = await listening(
      createHttpServer((request, response) => {
        const chunks: Buffer[] = [];
        request.on('data', (chunk: Buffer) => chunks.push(chunk));
        request.on('end', () => {
          response.writeHead(201, { 'X-Thing': 'one', 'set-cookie': ['a', 'b'] });
          response.write('first ');
          void turns(5).then(() =>
            response.end(
              `${request.method} ${request.url} ${request.headers['content-length']} ${Buffer.concat(chunks)}`,
            ),
          );
        });
      }),
    );
    const reply = await open(`${target}/api/`).send(POST);
    expect(reply.status).toBe(201);
    expect(reply.headers).toMatchObject({ 'x-thing': 'one', 'set-cookie': 'a' });
    expect(Buffer.from(reply.body).toString()).toBe('first POST /api/orders 10 {"a":"ß"}');
  });

  test('the client uses https only with a server whose certificate authority it trusts', async () => {
    const authority = certificate({ subject: [['CN', 'test authority']], authority: true });
    const own = certificate({ subject: [['CN', 'server']], issuer: authority, ips: ['127.0.0.1'] });
    const server = createTlsServer({ cert: own.cert, key: own.key }, (request, response) =>
      response.end(`${request.method} ${request.url}`),
    );
    const target = (await listening(server)).replace('http:', 'https:');
    const reply = await open(target, { ca: authority.cert }).send(POST);
    expect(Buffer.from(reply.body).toString()).toBe('POST /orders');
    const failure = await failureOf(open(target).send(POST));
    expect(failure.code).toBe('unreachable');
    expect(String(failure.details['reason'])).toMatch(/UNABLE_TO|SELF_SIGNED/);
  });

  test('the client reuses connections and opens no more than its limit', async () => {
    const sockets = new Set<Socket>();
    let most = 0;
    const held: ServerResponse[] = [];
    const server = createHttpServer(async (request, response) => {
      sockets.add(request.socket);
      held.push(response);
      most = Math.max(most, held.length);
      if (held.length < 3) return;
      // A client with more connections would send on another one meanwhile.
      await turns(20);
      for (const one of held.splice(0)) one.end('ok');
    });
    const client = open(await listening(server), { connectionsMax: 3 });
    const replies = await Promise.all(Array.from({ length: 60 }, () => client.send(POST)));
    expect(replies.every((reply) => reply.status === 200)).toBe(true);
    expect(sockets.size).toBe(3);
    expect(most).toBe(3);
  });

  test('the client closes an idle connection before servers do, and waits as long as a reply takes', async () => {
    const ended: Array<Promise<unknown>> = [];
    let reply: (() => void) | undefined;
    const server = createHttpServer((request, response) => {
      if (request.url === '/slow') reply = () => response.end('late');
      else {
        ended.push(once(request.socket, 'close'));
        response.end('soon');
      }
    });
    server.keepAliveTimeout = 0;
    const client = open(await listening(server));
    const slow = client.send({ ...POST, path: '/slow' });
    const answer = await until('a slow request at the server', () => reply);
    // This connection becomes idle after the other one; its close proves that the idle time has
    // passed.
    expect(Buffer.from((await client.send(POST)).body).toString()).toBe('soon');
    await Promise.all(ended);
    answer();
    expect(Buffer.from((await slow).body).toString()).toBe('late');
    expect(Buffer.from((await client.send(POST)).body).toString()).toBe('soon');
  });

  test('a request times out, including its wait for a connection', async () => {
    const client = open(await rawServer(() => {}), { connectionsMax: 1, timeoutMs: 100 });
    const [first, second] = [client.send(POST), client.send(POST)];
    expect((await failureOf(first)).code).toBe('timeout');
    expect((await failureOf(second)).code).toBe('timeout');
  });

  test.each<[string, (socket: Socket) => void]>([
    ['closes without a word', (socket) => socket.end()],
    ['resets', (socket) => socket.resetAndDestroy()],
    ['stops in the header', (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-')],
    ['stops in the body', (socket) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc')],
    ['does not speak HTTP', (socket) => socket.end('220 mail.example.com\r\n')],
    [
      'floods',
      (socket) => socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n${'x'.repeat(200_000)}`),
    ],
  ])('a server that %s is unreachable, with a reason', async (_what, answer) => {
    const failure = await failureOf(open(await rawServer(answer)).send(POST));
    expect(failure.code).toBe('unreachable');
    expect(String(failure.details['reason'])).toMatch(/\w/);
  });

  test('an address without a listener is unreachable', async () => {
    const failure = await failureOf(open('http://127.0.0.1:1').send(POST));
    expect(failure).toMatchObject({ code: 'unreachable', details: { reason: 'ECONNREFUSED' } });
  });

  test('requests in flight fail when the client is closed', async () => {
    const received = gate();
    const client = open(await rawServer(received.open));
    const failure = failureOf(client.send(POST));
    await received.opened;
    client.close();
    expect((await failure).code).toBe('unreachable');
  });

  test.each(['localhost:8080', 'https://', 'http://', 'ftp://a', 'http://a?b=1', ''])(
    'the client refuses the target %j',
    (target) => {
      expect(() => open(target)).toThrow('is not an http address');
    },
  );
});
