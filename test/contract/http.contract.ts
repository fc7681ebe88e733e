/** What any HTTP driver must do, asked over raw sockets. */
import { afterEach, describe, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type {
  HttpDriver,
  HttpRequest,
  HttpRoute,
  HttpServer,
  HttpServerOptions,
} from '../../src/io/http/port.ts';
import { RawClient } from './raw-client.ts';

const HOST = 'Host: test\r\n';
const get = (path: string, more = ''): string => `GET ${path} HTTP/1.1\r\n${HOST}${more}\r\n`;
const post = (path: string, body: string, more = ''): string =>
  `POST ${path} HTTP/1.1\r\n${HOST}Content-Length: ${Buffer.byteLength(body)}\r\n${more}\r\n${body}`;

/** A promise and its resolver: a handler that waits for the test. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

export function httpContract(driver: HttpDriver): void {
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
      requestTimeoutMs: 5000,
      keepAliveTimeoutMs: 5000,
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

  /** Answers with what the handler was given. */
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

  const ROUTES: readonly HttpRoute[] = [
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
      handler: () => ({ status: 200, headers: { 'x-bad': 'a\r\nset-cookie: b' }, body: 'x' }),
    },
    { method: 'GET', path: '/bad-status', handler: () => ({ status: 20, body: 'x' }) },
    { method: 'GET', path: '/utf8', handler: () => ({ status: 200, body: 'zażółć €' }) },
  ];

  async function ask(
    server: HttpServer,
    bytes: string | Uint8Array,
    options: { readonly head?: boolean } = {},
  ) {
    const client = await open(server);
    return client.send(bytes).answer(options);
  }
  const json = (body: Buffer): Record<string, unknown> =>
    JSON.parse(body.toString('utf8')) as Record<string, unknown>;

  describe('routing', () => {
    test('a named part is decoded after the split, so an encoded slash stays in it', async () => {
      const server = await start(ROUTES);
      const answer = await ask(server, get('/subjects/a%2Fb%20c/versions/%C3%A9?x=1&x=2&y=%20+z'));
      expect(answer.status).toBe(200);
      expect(json(answer.body)).toMatchObject({
        path: '/subjects/a%2Fb%20c/versions/%C3%A9',
        params: { subject: 'a/b c', version: 'é' },
        query: [
          ['x', '1'],
          ['x', '2'],
          ['y', '  z'],
        ],
      });
    });

    test('a literal part wins, and a named one is tried where the literal leads nowhere', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/subjects/latest'))).body.toString()).toBe('literal');
      expect((await ask(server, get('/subjects/latest/versions'))).body.toString()).toBe(
        'versions of latest',
      );
      const answer = await ask(server, get('/subjects/latest/versions/1'));
      expect(json(answer.body)['params']).toEqual({ subject: 'latest', version: '1' });
    });

    test('one trailing slash means nothing, an empty part matches nothing', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/subjects/'))).status).toBe(200);
      expect((await ask(server, get('/subjects//'))).status).toBe(404);
      expect((await ask(server, get('/subjects//versions/1'))).status).toBe(404);
    });

    test('an encoded literal is the literal; keys of every object are ordinary names', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/%73ubjects'))).status).toBe(200);
      const answer = await ask(server, get('/subjects/__proto__'));
      expect(json(answer.body)['params']).toEqual({ subject: '__proto__' });
      expect((await ask(server, get('/__proto__'))).status).toBe(404);
      expect((await ask(server, get('/constructor'))).status).toBe(404);
    });

    test('unknown path 404, other method 405 with Allow, each in the product’s own form', async () => {
      const server = await start(ROUTES);
      const missing = await ask(server, get('/nowhere?x=1'));
      expect(missing.status).toBe(404);
      expect(missing.headers['content-type']).toBe('application/problem+json');
      expect(json(missing.body)).toEqual({ refused: 404, path: '/nowhere' });
      const wrong = await ask(server, post('/subjects/x', ''));
      expect(wrong.status).toBe(405);
      expect(wrong.headers['allow']).toBe('DELETE, GET, HEAD, OPTIONS');
      expect(json(wrong.body)['refused']).toBe(405);
    });

    test('HEAD is GET without the body', async () => {
      const server = await start(ROUTES);
      const full = await ask(server, get('/subjects/x'));
      const client = await open(server);
      client.send(get('/subjects/x').replace('GET', 'HEAD'));
      const head = await client.answer({ head: true });
      expect(head.status).toBe(200);
      expect(Number(head.headers['content-length'])).toBe(full.body.length + 1); // HEAD is one letter longer than GET
      client.send(get('/subjects/latest'));
      expect((await client.answer()).body.toString()).toBe('literal');
      client.send(get('/nowhere').replace('GET', 'HEAD'));
      expect((await client.answer({ head: true })).status).toBe(404);
    });

    test('OPTIONS answers 204 with Allow', async () => {
      const server = await start(ROUTES);
      const answer = await ask(server, get('/echo').replace('GET', 'OPTIONS'));
      expect([answer.status, answer.headers['allow'], answer.headers['content-length']]).toEqual([
        204,
        'OPTIONS, POST',
        undefined,
      ]);
      expect((await ask(server, get('*').replace('GET', 'OPTIONS'))).status).toBe(204);
      expect((await ask(server, get('/nowhere').replace('GET', 'OPTIONS'))).status).toBe(404);
    });

    test('an absolute target means its path', async () => {
      const server = await start(ROUTES);
      const answer = await ask(server, get('http://test/subjects/x?q=1'));
      expect(json(answer.body)).toMatchObject({ path: '/subjects/x', query: [['q', '1']] });
      expect((await ask(server, get('http://test'))).status).toBe(200);
    });

    test('a percent sign that begins no character is malformed', async () => {
      const server = await start(ROUTES);
      for (const path of ['/subjects/%', '/subjects/%zz', '/subjects/%ff', '/subjects/%C3']) {
        expect((await ask(server, get(path))).status, path).toBe(400);
      }
    });
  });

  describe('headers and bodies', () => {
    test('several lines of one header stay apart, in order, trimmed, in Latin-1', async () => {
      const server = await start(ROUTES);
      const head = Buffer.from(get('/', 'X-Thing:  a, b \t\r\nx-thing:\r\nX-THING: caf\u00e9\r\n'), 'latin1');
      expect(json((await ask(server, head)).body)['x']).toEqual(['a, b', '', 'café']);
    });

    test('a body arrives whole whether it has a length, chunks, or trickles in', async () => {
      const server = await start(ROUTES);
      expect(json((await ask(server, post('/echo', 'hello'))).body)['body']).toBe('hello');
      const chunked = `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nX-Trailer: t\r\n\r\n`;
      expect(json((await ask(server, chunked)).body)['body']).toBe('hello!');
      const client = await open(server);
      for (const byte of post('/echo', 'slowly')) {
        client.send(byte);
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      expect(json((await client.answer()).body)['body']).toBe('slowly');
    });

    test('bytes and text leave as they are', async () => {
      const server = await start(ROUTES);
      const bytes = await ask(server, get('/bytes'));
      expect([...bytes.body]).toEqual([0, 255, 13, 10]);
      const text = await ask(server, get('/utf8'));
      expect(text.body.toString('utf8')).toBe('zażółć €');
      expect(text.headers['content-type']).toBe('text/plain; charset=utf-8');
      const none = await ask(server, get('/subjects/x').replace('GET', 'DELETE'));
      expect([none.status, none.headers['content-length']]).toEqual([204, undefined]);
    });

    test('the limit itself passes; one byte more is 413 without a handler, and the connection closes', async () => {
      let handled = 0;
      const server = await start([
        { method: 'POST', path: '/echo', handler: () => ({ status: 200, body: `${++handled}` }) },
      ]);
      expect((await ask(server, post('/echo', 'x'.repeat(1024)))).status).toBe(200);
      const declared = await open(server);
      declared.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 1025\r\n\r\n`);
      const answer = await declared.answer();
      expect([answer.status, answer.headers['connection']]).toEqual([413, 'close']);
      expect(json(answer.body)).toEqual({ refused: 413, path: '/echo' });
      expect(await declared.closed()).toBe('');
      const chunked = await open(server);
      chunked.send(`POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n`);
      for (let i = 0; i < 3; i++) chunked.send(`200\r\n${'x'.repeat(512)}\r\n`);
      expect((await chunked.answer()).status).toBe(413);
      await chunked.closed();
      expect(handled).toBe(1);
      expect(server.inFlight()).toBe(0);
    });

    test('a client that goes on uploading after 413 is cut off, and not read to the end', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 100000000\r\n\r\n`);
      const feed = setInterval(() => client.send(Buffer.alloc(64 * 1024)), 1);
      try {
        expect((await client.answer()).status).toBe(413);
        await client.closed();
      } finally {
        clearInterval(feed);
      }
      expect(client.socket.bytesWritten - client.socket.writableLength).toBeLessThan(90_000_000);
    });

    test('Expect: 100-continue is granted to a good request and refused to a bad one before its body', async () => {
      const server = await start(ROUTES);
      const expects = 'Expect: 100-continue\r\n';
      const good = await open(server);
      good.send(`POST /echo HTTP/1.1\r\n${HOST}${expects}Content-Length: 2\r\n\r\n`);
      expect((await good.answer()).status).toBe(100);
      expect(json((await good.send('ok').answer()).body)['body']).toBe('ok');
      for (const [path, length, status] of [
        ['/echo', 5000, 413],
        ['/nowhere', 2, 404],
        ['/', 2, 405],
      ] as const) {
        const bad = await open(server);
        bad.send(`POST ${path} HTTP/1.1\r\n${HOST}${expects}Content-Length: ${length}\r\n\r\n`);
        expect((await bad.answer()).status).toBe(status);
        await bad.closed();
      }
    });

    test('a body sent to an unknown path is read within the limit and the connection lives on', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.send(post('/nowhere', 'x'.repeat(1000)));
      expect((await client.answer()).status).toBe(404);
      client.send(get('/subjects/latest'));
      expect((await client.answer()).body.toString()).toBe('literal');
    });
  });

  describe('failures of a handler', () => {
    test('a throw and a rejection are 500 without a word of the cause', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      for (const path of ['/throws', '/rejects']) {
        const answer = await client.send(get(path)).answer();
        expect(answer.status).toBe(500);
        expect(answer.body.toString()).not.toContain('secret');
      }
      expect((await client.send(get('/subjects/latest')).answer()).status).toBe(200);
    });

    test('an answer that cannot be written is 500, not a split header', async () => {
      const server = await start(ROUTES);
      const bad = await ask(server, get('/bad-header'));
      expect([bad.status, bad.headers['set-cookie']]).toEqual([500, undefined]);
      expect((await ask(server, get('/bad-status'))).status).toBe(500);
    });

    test('a fallback that throws still gives the status', async () => {
      const fallbacks = {
        error: () => {
          throw new Error('no form');
        },
      };
      const server = await start(ROUTES, { fallbacks });
      expect((await ask(server, get('/nowhere'))).status).toBe(404);
    });
  });

  describe('connections', () => {
    test('keep-alive serves many requests; Connection: close and HTTP/1.0 end it', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      for (let i = 0; i < 20; i++)
        expect((await client.send(get('/subjects/latest')).answer()).status).toBe(200);
      await client.send(get('/', 'Connection: close\r\n')).answer();
      await client.closed();
      const old = await open(server);
      expect((await old.send('GET / HTTP/1.0\r\n\r\n').answer()).status).toBe(200);
      await old.closed();
    });

    test('an idle connection ends after the keep-alive time, a slow handler does not', async () => {
      const routes: HttpRoute[] = [
        {
          method: 'GET',
          path: '/slow',
          handler: async () => {
            await new Promise((resolve) => setTimeout(resolve, 500));
            return { status: 200, body: 'late' };
          },
        },
      ];
      const server = await start(routes, { keepAliveTimeoutMs: 100, requestTimeoutMs: 200 });
      const client = await open(server);
      client.send(get('/slow') + get('/slow'));
      expect((await client.answer()).body.toString()).toBe('late');
      expect((await client.answer()).body.toString()).toBe('late');
      await client.closed();
    });

    test('pipelined requests are answered in their order, however long each takes', async () => {
      const waits = [30, 0, 15, 0];
      const server = await start([
        {
          method: 'POST',
          path: '/wait/{n}',
          handler: async (request) => {
            await new Promise((resolve) => setTimeout(resolve, waits[Number(request.params['n'])]));
            return { status: 200, body: `${request.params['n']}:${Buffer.from(request.body).toString()}` };
          },
        },
      ]);
      const client = await open(server);
      client.send(waits.map((_, n) => post(`/wait/${n}`, `body${n}`)).join(''));
      const seen: string[] = [];
      for (const _ of waits) seen.push((await client.answer()).body.toString());
      expect(seen).toEqual(['0:body0', '1:body1', '2:body2', '3:body3']);
    });

    test('garbage behind pipelined requests is answered after them, then the connection closes', async () => {
      const server = await start([
        {
          method: 'GET',
          path: '/wait',
          handler: async () => {
            await new Promise((resolve) => setTimeout(resolve, 20));
            return { status: 200, body: 'good' };
          },
        },
      ]);
      const client = await open(server);
      client.send(`${get('/wait')}${get('/wait')}\x00\x01 garbage\r\n\r\n`);
      const statuses = [await client.answer(), await client.answer(), await client.answer()].map(
        (one) => one.status,
      );
      expect(statuses).toEqual([200, 200, 400]);
      expect(await client.closed()).toBe('');
      expect(server.inFlight()).toBe(0);
    });

    test('a flood of pipelined requests is bounded: answers stay in order until the connection closes', async () => {
      let handled = 0;
      const first = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/n',
          handler: async () => {
            await first.opened;
            return { status: 200, body: `${handled++}` };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/n').repeat(1000));
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(server.inFlight()).toBeLessThan(500);
      first.open();
      const seen: string[] = [];
      for (;;) {
        const answer = await client.answer().catch(() => undefined);
        if (answer?.status !== 200) break;
        seen.push(answer.body.toString());
      }
      await client.closed();
      expect(seen).toEqual(seen.map((_, index) => `${index}`));
      expect(seen.length).toBe(handled);
    });

    test('a client that goes away aborts the signal of the request under way', async () => {
      const aborted = gate();
      const begun = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/long',
          handler: async (request) => {
            expect(request.signal.aborted).toBe(false);
            request.signal.addEventListener('abort', () => aborted.open());
            begun.open();
            await aborted.opened;
            return { status: 200, body: 'for nobody' };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/long'));
      await begun.opened;
      expect(server.inFlight()).toBe(1);
      client.close();
      await aborted.opened;
      await new Promise((resolve) => setTimeout(resolve, 10));
      expect(server.inFlight()).toBe(0);
    });

    test('a request that stays incomplete is 408 and closed', async () => {
      const server = await start(ROUTES, { requestTimeoutMs: 100 });
      const head = await open(server);
      head.send('GET / HTTP/1.1\r\nHost: te');
      expect((await head.answer()).status).toBe(408);
      await head.closed();
      const body = await open(server);
      body.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 10\r\n\r\nhalf`);
      expect((await body.answer()).status).toBe(408);
      await body.closed();
      expect(server.inFlight()).toBe(0);
    });

    test('a client that never reads its answer loses the connection', async () => {
      const server = await start(
        [
          {
            method: 'GET',
            path: '/big',
            handler: () => ({ status: 200, body: Buffer.alloc(32 * 1024 * 1024) }),
          },
        ],
        {
          requestTimeoutMs: 200,
        },
      );
      const client = await open(server);
      client.socket.pause();
      client.send(get('/big'));
      await expect.poll(() => server.inFlight(), { timeout: 3000 }).toBe(1);
      await expect.poll(() => server.inFlight(), { timeout: 3000 }).toBe(0);
    });
  });

  describe('hostile bytes', () => {
    const refused: ReadonlyArray<readonly [string, string | Uint8Array]> = [
      ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\r\n\r\n'],
      ['a NUL in the path', 'GET /a\x00b HTTP/1.1\r\nHost: x\r\n\r\n'],
      ['a NUL in a header', 'GET / HTTP/1.1\r\nHost: x\r\nX-A: a\x00b\r\n\r\n'],
      ['a control character in a header name', 'GET / HTTP/1.1\r\nHost: x\r\nX\x01A: a\r\n\r\n'],
      ['a blank before the colon', 'GET / HTTP/1.1\r\nHost: x\r\nX-A : a\r\n\r\n'],
      ['a folded header', 'GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n'],
      [
        'raw bytes above ASCII in the path',
        Buffer.from('GET /caf\u00e9 HTTP/1.1\r\nHost: x\r\n\r\n', 'latin1'),
      ],
      ['a fragment in the target', 'GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n'],
      ['a target without its slash', 'GET subjects HTTP/1.1\r\nHost: x\r\n\r\n'],
      ['no Host', 'GET / HTTP/1.1\r\n\r\n'],
      ['two Hosts', 'GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n'],
      ['two lengths', `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab`],
      ['a length that is no number', `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 1x\r\n\r\na`],
      ['a negative length', `POST /echo HTTP/1.1\r\n${HOST}Content-Length: -1\r\n\r\na`],
      ['a length with a sign', `POST /echo HTTP/1.1\r\n${HOST}Content-Length: +1\r\n\r\na`],
      [
        'a length beyond 64 bits',
        `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 99999999999999999999999\r\n\r\na`,
      ],
      [
        'a length and chunks (smuggling CL.TE)',
        `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG`,
      ],
      [
        'chunks and a length (smuggling TE.CL)',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n`,
      ],
      [
        'an encoding after chunked',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n`,
      ],
      ['an obscured chunked', `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`],
      [
        'a chunk size that is no number',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n0\r\n\r\n`,
      ],
      [
        'a chunk longer than it says',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n`,
      ],
      ['another protocol', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
      ['a version to come', 'GET / HTTP/3.7\r\nHost: x\r\n\r\n'],
      ['a tunnel', 'CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n'],
    ];
    test.each(refused)('%s is refused without a handler, and the server lives', async (_what, bytes) => {
      let handled = 0;
      const server = await start([
        { method: 'POST', path: '/echo', handler: () => ({ status: 200, body: `${++handled}` }) },
        { method: 'GET', path: '/', handler: () => ({ status: 200, body: `${++handled}` }) },
        { method: 'GET', path: '/alive', handler: () => ({ status: 200, body: 'yes' }) },
      ]);
      const client = await open(server);
      const answer = await client.send(bytes).answer();
      expect(answer.status).toBe(400);
      expect(json(answer.body)['refused']).toBe(400);
      expect(handled).toBe(0);
      client.close();
      expect((await ask(server, get('/alive'))).body.toString()).toBe('yes');
    });

    test('a flood of headers and a huge target are refused before the limit is passed twice', async () => {
      const server = await start(ROUTES);
      const flood = await open(server);
      flood.send(`GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(5000)}\r\n`);
      expect((await flood.answer()).status).toBe(431);
      await flood.closed();
      const huge = await open(server);
      huge.send(`GET /${'x'.repeat(20_000)} HTTP/1.1\r\n${HOST}\r\n`);
      expect((await huge.answer()).status).toBe(431);
      await huge.closed();
    });

    test('as many headers as fit all arrive', async () => {
      const server = await start(
        [
          {
            method: 'GET',
            path: '/',
            handler: (request) => ({ status: 200, body: `${request.header('a').length}` }),
          },
        ],
        {
          headerBytesMax: 64 * 1024,
        },
      );
      const answer = await ask(server, `GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(5000)}\r\n`);
      expect(answer.body.toString()).toBe('5000');
    });
  });

  describe('listening and draining', () => {
    test('port 0 takes a free port and says which; a busy one is busy_port with what next', async () => {
      const server = await start(ROUTES);
      expect(server.port).toBeGreaterThan(0);
      expect(server.host).toBe('127.0.0.1');
      const error = await start(ROUTES, { port: server.port }).then(
        () => undefined,
        (thrown: unknown) => findMillraceError(thrown),
      );
      expect(error?.code).toBe('busy_port');
      expect(error?.row.exit).toBe(3);
      expect(error?.toLine()).toContain(`127.0.0.1:${server.port} is in use`);
      expect(error?.next).toContain('-listen');
    });

    test('a drain lets requests under way finish, refuses those after, and ends idle connections', async () => {
      const door = gate();
      const begun = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/long',
          handler: async () => {
            begun.open();
            await door.opened;
            return { status: 200, body: 'finished' };
          },
        },
      ]);
      const idle = await open(server);
      const silent = await open(server);
      const busy = await open(server);
      await idle.send(get('/nowhere')).answer();
      busy.send(get('/long'));
      await begun.opened;
      const drained = server.drain(3000);
      await Promise.all([idle.closed(), silent.closed()]);
      await expect(RawClient.open(server.port)).rejects.toThrow('ECONNREFUSED');
      busy.send(get('/long'));
      await new Promise((resolve) => setTimeout(resolve, 20));
      door.open();
      const answer = await busy.answer();
      expect(answer.body.toString()).toBe('finished');
      const after = await busy.answer().catch(() => undefined);
      expect(after === undefined || after.status === 503).toBe(true);
      await busy.closed();
      await drained;
      expect(server.inFlight()).toBe(0);
    });

    test('a drain ends at its time whatever a handler does', async () => {
      const begun = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/never',
          handler: () => {
            begun.open();
            return new Promise(() => {});
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/never'));
      await begun.opened;
      const before = Date.now();
      await server.drain(100);
      expect(Date.now() - before).toBeLessThan(2000);
      await client.closed();
    });

    test('every answer is reported with the pattern of its route', async () => {
      const seen: string[] = [];
      const server = await start(ROUTES, {
        onAnswer: ({ method, route, status, seconds }) => {
          expect(seconds).toBeGreaterThanOrEqual(0);
          seen.push(`${method} ${route} ${status}`);
        },
      });
      for (const bytes of [
        get('/subjects/a'),
        get('/nowhere'),
        get('/throws'),
        get('/bad-status'),
        post('/echo', 'x'.repeat(2000)),
      ]) {
        await ask(server, bytes);
      }
      expect(seen).toEqual([
        'GET /subjects/{subject} 200',
        'GET  404',
        'GET /throws 500',
        'GET /bad-status 500',
        'POST /echo 413',
      ]);
    });
  });
}
