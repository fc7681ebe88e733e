/** Contract of every HTTP driver for hostile bytes, and for the start and the end of listening. */
import { describe, expect, test } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import type { HttpDriver } from '../../src/io/http/port.ts';
import { turns, until } from '../wait.ts';
import { gate, get, HOST, httpHarness, json, post, ROUTES } from './http-harness.ts';
import { RawClient } from './raw-client.ts';

export function httpLimitsContract(driver: HttpDriver): void {
  const { can, start, open, ask, barrier } = httpHarness(driver);

  describe('hostile bytes', () => {
    const refused: ReadonlyArray<readonly [string, string | Uint8Array]> = [
      ['bytes that are not HTTP', '\x16\x03\x01\x02\x00\x01\x00\r\n\r\n'],
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
      ['a length that is not a number', `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 1x\r\n\r\na`],
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
        'a chunk size that is not a number',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\nzz\r\na\r\n0\r\n\r\n`,
      ],
      ['another protocol', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
      ['a future version', 'GET / HTTP/3.7\r\nHost: x\r\n\r\n'],
      ['a version of another protocol', 'GET / HTTP/2.0\r\nHost: x\r\n\r\n'],
      ['a request line without a version', 'GET /\r\nHost: x\r\n\r\n'],
      ['a user name in the target', 'GET http://u@x/ HTTP/1.1\r\nHost: x\r\n\r\n'],
      [
        'an encoding before chunked',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`,
      ],
      [
        'encodings in two lines',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      ],
      [
        'chunked in two lines',
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
      ],
      [
        'chunks under HTTP/1.0',
        'POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      ],
      [
        'a length of twenty digits',
        `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 00000000000000000001\r\n\r\na`,
      ],
      ['a tunnel', 'CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n'],
    ];
    test.each(refused)(
      'the request with %s is refused without a handler, and the server continues',
      async (_what, bytes) => {
        let handled = 0;
        const server = await start([
          { method: 'POST', path: '/echo', handler: () => ({ status: 200, body: `${++handled}` }) },
          { method: 'GET', path: '/', handler: () => ({ status: 200, body: `${++handled}` }) },
          { method: 'GET', path: '/alive', handler: () => ({ status: 200, body: 'yes' }) },
        ]);
        const client = await open(server);
        client.send(bytes);
        await barrier(server);
        const answer = can('malformed_answered') ? await client.outcome() : client.outcomeSoFar();
        if (typeof answer === 'object') {
          expect(answer.status).toBe(400);
          expect(json(answer.body)['refused']).toBe(400);
        } else {
          expect(can('malformed_answered'), 'an answer may be missing').toBe(false);
          expect(client.unread).toBe('');
        }
        expect(handled).toBe(0);
        client.close();
        expect((await ask(server, get('/alive'))).body.toString()).toBe('yes');
      },
    );

    test('a chunk longer than its declared size is refused, or is the last of its connection', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      const bytes = `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n`;
      expect((await client.send(bytes).answer()).status).toBe(can('exact_chunks') ? 400 : 200);
      expect(await client.closed()).toBe('');
    });

    test('connections that sent malformed or incomplete requests all end', async () => {
      const server = await start(ROUTES, { requestTimeoutMs: 500, keepAliveTimeoutMs: 500 });
      const clients = await Promise.all(
        [
          '\x16\x03\x01\x02\x00\x01\x00\r\n\r\n',
          'GET /',
          'GET / HTTP/1.1\r\n\r\n',
          `GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(60)}`,
          `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5;\r\nhello\r\n0\r\n\r\n`,
          get('/'),
          `${get('/subjects/latest')}\x00\x01 garbage\r\n\r\n`,
        ].map(async (bytes) => (await open(server)).send(bytes)),
      );
      const dripping = await open(server);
      dripping.send('GET / HTTP/1.1\r\nX-Slow: ');
      await until('an end of the dripping connection', () => dripping.send('x').hasEnded);
      await Promise.all(clients.map((client) => client.closed()));
      expect(server.inFlight()).toBe(0);
    });

    test('a flood of headers and a huge target are refused before twice the limit is read', async () => {
      const server = await start(ROUTES);
      for (const bytes of [
        `GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(5000)}\r\n`,
        `GET /${'x'.repeat(20_000)} HTTP/1.1\r\n${HOST}\r\n`,
      ]) {
        const client = await open(server);
        const answer = await client.send(bytes).outcome();
        if (typeof answer === 'object') expect(answer.status).toBe(431);
        else expect(can('long_heads'), 'an answer may be missing').toBe(false);
        await client.closed();
      }
    });

    test('headers up to the limit all arrive', async () => {
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
      const lines = can('long_heads') ? 5000 : 40;
      const answer = await ask(server, `GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(lines)}\r\n`);
      expect(answer.body.toString()).toBe(`${lines}`);
      if (can('long_heads')) return;
      // Too many header lines, and a long head in parts: no handler runs, and the connection
      // becomes unusable.
      const many = await open(server);
      many.send(`GET / HTTP/1.1\r\n${HOST}${'a: b\r\n'.repeat(60)}\r\n`);
      await barrier(server);
      expect(many.outcomeSoFar()).toBe('silent');
      const parts = await open(server);
      parts.send(`GET / HTTP/1.1\r\n${HOST}a: ${'x'.repeat(3000)}`);
      // The server has read this part once it has answered another connection.
      await ask(server, `GET / HTTP/1.1\r\n${HOST}a: b\r\n\r\n`);
      expect(await parts.send(`${'x'.repeat(3000)}\r\n\r\n`).outcome()).toBe('ended');
    });
  });

  describe('listening and draining', () => {
    test('the server reports the free port that it chose for port 0, and a busy port is an error with advice', async () => {
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

    test('a drain lets requests in flight finish, refuses later ones, and ends idle connections', async () => {
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
      const half = await open(server);
      const busy = await open(server);
      half.send('GET / HTTP/1.1\r\nHo');
      await idle.send(get('/nowhere')).answer();
      busy.send(get('/long'));
      await begun.opened;
      const drained = server.drain(20_000);
      const ended = Promise.all([idle.closed(), silent.closed(), half.closed()]);
      if (can('drain_ends_idle')) await ended;
      await expect(RawClient.open(server.port)).rejects.toThrow('ECONNREFUSED');
      if (can('pipeline_waits')) busy.send(get('/long'));
      else expect((await idle.send(get('/long')).answer()).status).toBe(503);
      await turns(20);
      door.open();
      const answer = await busy.answer();
      expect(answer.body.toString()).toBe('finished');
      const after = await busy.answer().catch(() => undefined);
      expect(after === undefined || after.status === 503).toBe(true);
      await Promise.all([busy.closed(), drained, ended]);
      expect(server.inFlight()).toBe(0);
    });

    test('an answer sent during a drain tells the client to close its connection', async () => {
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
      const client = await open(server);
      client.send(get('/long'));
      await begun.opened;
      const drained = server.drain(15_000);
      door.open();
      expect(await client.answer()).toMatchObject({ status: 200, headers: { connection: 'close' } });
      await Promise.all([client.closed(), drained]);
    });

    test('a drain ends at its deadline whatever a handler does', async () => {
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
      await server.drain(100);
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
