/** Contract of every HTTP driver against clients that exhaust memory or connections, or send
 *  cross-site requests. */
import { describe, expect, test } from 'vitest';
import type { ConnectionLimit } from '../../src/core/connections.ts';
import type { HttpAdmission, HttpDriver, HttpRequest, HttpRoute } from '../../src/io/http/port.ts';
import { gate, get, HOST, httpHarness, post } from './http-harness.ts';
import type { RawClient } from './raw-client.ts';

const MIB = 1024 * 1024;
const UPLOAD_BYTES = 4 * MIB;
const UPLOADS = 120;
/** Growth of resident memory that 120 uploads of 4 MiB may cause. */
const RSS_GROWTH_MAX = 100 * MIB;
const HELD_MAX = 16 * MIB;
const UPLOAD = Buffer.alloc(UPLOAD_BYTES, 'u');
const HEAD = `POST /upload HTTP/1.1\r\n${HOST}Content-Length: ${UPLOAD_BYTES}\r\n\r\n`;

const REFUSED: HttpAdmission = {
  status: 401,
  headers: { 'www-authenticate': 'Basic' },
  body: 'who are you?',
};

export function httpGuardsContract(driver: HttpDriver): void {
  const { can, start, open, ask } = httpHarness(driver);

  /** Returns the most bytes that the server held while `work` ran, and the growth of this
   *  process. */
  async function watch(heldBytes: () => number, work: () => Promise<void>) {
    const before = process.memoryUsage.rss();
    let held = 0;
    let rss = before;
    let working = true;
    const look = (): void => {
      held = Math.max(held, heldBytes());
      rss = Math.max(rss, process.memoryUsage.rss());
      if (working) setImmediate(look);
    };
    look();
    await work().finally(() => {
      working = false;
    });
    return { held, grown: rss - before };
  }

  describe('request bodies', () => {
    const admissions: ReadonlyArray<readonly [string, () => HttpAdmission | Promise<HttpAdmission>]> = [
      ['immediately', () => REFUSED],
      ['later', () => new Promise((resolve) => setImmediate(() => resolve(REFUSED)))],
    ];
    test.each(admissions)(
      '120 uploads of 4 MiB that the head check refuses %s are answered and never held',
      async (_when, admit) => {
        let handled = 0;
        const server = await start(
          [
            {
              method: 'POST',
              path: '/upload',
              admit,
              handler: () => ({ status: 200, body: `${++handled}` }),
            },
          ],
          { bodyBytesMax: UPLOAD_BYTES, heldBytesMax: HELD_MAX },
        );
        const statuses: number[] = [];
        const { held, grown } = await watch(
          () => server.heldBytes(),
          async () => {
            const clients = await Promise.all(Array.from({ length: UPLOADS }, () => open(server)));
            for (const client of clients) client.send(HEAD).send(UPLOAD);
            for (const client of clients) statuses.push((await client.answer()).status);
          },
        );
        expect(statuses).toEqual(new Array(UPLOADS).fill(401));
        expect(handled).toBe(0);
        expect(held).toBeLessThanOrEqual(HELD_MAX);
        expect(grown).toBeLessThan(RSS_GROWTH_MAX);
        await expect.poll(() => server.heldBytes()).toBe(0);
      },
    );

    test('uploads that would hold more than the limit together get 503 with Retry-After, and the others are served', async () => {
      const server = await start(
        [
          {
            method: 'POST',
            path: '/upload',
            handler: ({ body }) => ({ status: 200, body: `${body.length}` }),
          },
        ],
        { bodyBytesMax: UPLOAD_BYTES, heldBytesMax: HELD_MAX },
      );
      const most = UPLOAD.subarray(0, UPLOAD_BYTES - 1);
      const clients = await Promise.all(Array.from({ length: 12 }, () => open(server)));
      for (const client of clients) client.send(HEAD).send(most);
      const refused: RawClient[] = [];
      const others: RawClient[] = [];
      await expect.poll(() => server.heldBytes()).toBeLessThanOrEqual(HELD_MAX);
      // Three whole requests fit; a fourth may come close, and a growing buffer counts with its
      // full size.
      await expect
        .poll(() => clients.filter((client) => client.unread !== '').length)
        .toBeGreaterThanOrEqual(8);
      for (const client of clients) (client.unread === '' ? others : refused).push(client);
      for (const client of refused) {
        const answer = await client.answer();
        expect([answer.status, answer.headers['retry-after'], answer.headers['connection']]).toEqual([
          503,
          '1',
          'close',
        ]);
        await client.closed();
      }
      for (const client of others) {
        const answer = await client.send('u').answer();
        expect([answer.status, answer.body.toString()]).toEqual([200, `${UPLOAD_BYTES}`]);
      }
      await expect.poll(() => server.heldBytes()).toBe(0);
    });

    test('a body is counted as held until its handler has answered, also when its client disconnected', async () => {
      const door = gate();
      const begun = gate();
      const server = await start(
        [
          {
            method: 'POST',
            path: '/echo',
            handler: async () => {
              begun.open();
              await door.opened;
              return { status: 200, body: 'done' };
            },
          },
        ],
        { bodyBytesMax: 1000, heldBytesMax: 1500 },
      );
      const first = await open(server);
      first.send(post('/echo', 'x'.repeat(1000)));
      await begun.opened;
      first.close();
      await expect.poll(() => server.inFlight()).toBe(0);
      expect(server.heldBytes()).toBeGreaterThanOrEqual(1000);
      expect((await ask(server, post('/echo', 'x'.repeat(1000)))).status).toBe(503);
      door.open();
      await expect.poll(() => server.heldBytes()).toBe(0);
      expect((await ask(server, post('/echo', 'x'.repeat(1000)))).status).toBe(200);
    });

    test('a body without a handler is discarded, and its connection continues', async () => {
      const server = await start([], { bodyBytesMax: UPLOAD_BYTES, heldBytesMax: UPLOAD_BYTES });
      const client = await open(server);
      for (let i = 0; i < 3; i++) {
        client.send(HEAD);
        expect(await watchAnswer(client.send(UPLOAD), () => server.heldBytes())).toEqual([404, true]);
      }
    });

    /** Status of the next answer, and whether the server held almost no bytes meanwhile. */
    async function watchAnswer(
      client: RawClient,
      heldBytes: () => number,
    ): Promise<readonly [number, boolean]> {
      let status = 0;
      const { held } = await watch(heldBytes, async () => {
        status = (await client.answer()).status;
      });
      return [status, held <= MIB];
    }
  });

  describe('admission', () => {
    const routes = (admit: HttpRoute['admit'], seen: string[] = []): readonly HttpRoute[] => [
      {
        method: 'POST',
        path: '/echo/{name}',
        ...(admit === undefined ? {} : { admit }),
        handler: ({ body }) => {
          seen.push('handler');
          return { status: 200, body: Buffer.from(body).toString() };
        },
      },
    ];

    test.each([['immediately'], ['later']])(
      'a head that is admitted %s reaches its handler with the whole body, once',
      async (when) => {
        const seen: string[] = [];
        const server = await start(
          routes(async (head) => {
            if (when === 'later') await new Promise((resolve) => setImmediate(resolve));
            seen.push(`${head.method} ${head.path} ${head.params['name']} ${head.header('x-a')[0]}`);
            return undefined;
          }, seen),
        );
        const client = await open(server);
        for (const text of ['one', 'x'.repeat(1000)]) {
          const cut = 1 + Math.floor(text.length / 2);
          client.send(
            `POST /echo/a HTTP/1.1\r\n${HOST}X-A: b\r\nContent-Length: ${text.length}\r\n\r\n${text.slice(0, cut)}`,
          );
          await expect.poll(() => seen.length).toBeGreaterThan(0);
          expect((await client.send(text.slice(cut)).answer()).body.toString()).toBe(text);
          expect(seen.splice(0)).toEqual(['POST /echo/a a b', 'handler']);
        }
        client.send(post('/echo/a', ''));
        expect((await client.answer()).status).toBe(200);
      },
    );

    test('a refused head is reported with its route, keeps its connection, and its handler is not called', async () => {
      const seen: string[] = [];
      const reported: string[] = [];
      const server = await start(
        routes(async () => REFUSED, seen),
        { onAnswer: ({ route, status }) => reported.push(`${route} ${status}`) },
      );
      const client = await open(server);
      for (let i = 0; i < 2; i++) {
        const answer = await client.send(post('/echo/a', 'body')).answer();
        expect([answer.status, answer.headers['www-authenticate']]).toEqual([401, 'Basic']);
      }
      expect(seen).toEqual([]);
      expect(reported).toEqual(['/echo/{name} 401', '/echo/{name} 401']);
    });

    test('a refused head is answered without a 100 Continue', async () => {
      const server = await start(routes(async () => REFUSED));
      const client = await open(server);
      client.send(`POST /echo/a HTTP/1.1\r\n${HOST}Content-Length: 4\r\nExpect: 100-continue\r\n\r\n`);
      const first = await client.answer();
      if (can('continue_refused')) expect(first.status).toBe(401);
      else expect([100, 401]).toContain(first.status);
    });

    test('an admission that throws or rejects is answered with 500, and the server continues', async () => {
      for (const admit of [
        () => {
          throw new Error('a secret of the gate');
        },
        () => Promise.reject(new Error('a secret of the gate')),
      ]) {
        const server = await start(routes(admit));
        const answer = await ask(server, post('/echo/a', 'x'));
        expect(answer.status).toBe(500);
        expect(answer.body.toString()).not.toContain('secret');
      }
    });

    test('a client that disconnects during admission leaves no memory allocated', async () => {
      const door = gate();
      const begun = gate();
      const server = await start(
        routes(async () => {
          begun.open();
          await door.opened;
          return undefined;
        }),
      );
      const client = await open(server);
      client.send(`POST /echo/a HTTP/1.1\r\n${HOST}Content-Length: 100\r\n\r\nabc`);
      await begun.opened;
      client.close();
      door.open();
      await expect.poll(() => [server.inFlight(), server.heldBytes()]).toEqual([0, 0]);
    });
  });

  describe('connections', () => {
    const routes: readonly HttpRoute[] = [
      { method: 'POST', path: '/now', handler: () => ({ status: 200, body: 'served' }) },
    ];
    const begun = `POST /now HTTP/1.1\r\n${HOST}Content-Length: 5\r\n\r\nab`;
    test.each([
      ['total', { connectionsMax: 3 }],
      ['address', { connectionsMax: 100, connectionsPerAddressMax: 3 }],
    ] as const)(
      'a connection above the limit (%s) is answered with 503 and closed until another one ends',
      async (limit, over) => {
        const refused: ConnectionLimit[] = [];
        const server = await start(routes, { ...over, onConnectionRefused: (why) => refused.push(why) });
        const clients = await Promise.all(Array.from({ length: 3 }, () => open(server)));
        // A driver that cannot see idle connections counts these.
        for (const client of clients) client.send(begun);
        await expect.poll(() => server.connections()).toBe(3);
        const extra = await open(server);
        if (!can('connection_limits')) extra.send(post('/now', 'x'));
        const answer = await extra.answer();
        expect([answer.status, answer.headers['connection'], answer.headers['retry-after']]).toEqual([
          503,
          'close',
          '1',
        ]);
        expect(answer.body.length).toBeGreaterThan(0);
        await extra.closed();
        expect(refused).toEqual([limit]);
        (clients[0] as RawClient).close();
        await expect.poll(() => server.connections()).toBe(2);
        expect((await ask(server, post('/now', 'x'))).status).toBe(200);
        for (const client of clients.slice(1))
          expect((await client.send('cde').answer()).body.toString()).toBe('served');
      },
    );

    test('many refused connections all end, and the server continues', async () => {
      const server = await start(routes, { connectionsMax: 1 });
      const one = (await open(server)).send(begun);
      await expect.poll(() => server.connections()).toBe(1);
      const crowd = await Promise.all(Array.from({ length: 400 }, () => open(server)));
      for (const client of crowd) client.send(post('/now', 'x'));
      await Promise.all(crowd.map((client) => client.closed()));
      expect((await one.send('cde').answer()).status).toBe(200);
    });
  });

  describe('cross-site requests', () => {
    const routes: readonly HttpRoute[] = [
      { method: 'GET', path: '/', handler: () => ({ status: 200, body: 'served' }) },
      { method: 'POST', path: '/', handler: () => ({ status: 200, body: 'served' }) },
    ];
    const listed = ['https://app.acme'];
    const request = (host: string, origin?: string): string =>
      `POST / HTTP/1.1\r\nHost: ${host}\r\n${origin === undefined ? '' : `Origin: ${origin}\r\n`}Content-Length: 2\r\n\r\n{}`;

    test.each([
      ['localhost', undefined, 200],
      ['LOCALHOST:8081', undefined, 200],
      ['127.0.0.1:1', undefined, 200],
      ['127.8.9.1', undefined, 200],
      ['[::1]:8081', undefined, 200],
      ['app.acme', undefined, 200],
      ['evil.example', undefined, 403],
      ['localhost.evil.example:8081', undefined, 403],
      ['127.0.0.1.evil.example', undefined, 403],
      ['10.0.0.1', undefined, 403],
      ['a b', undefined, 403],
      ['localhost:8081', 'http://localhost:8081', 200],
      ['127.0.0.1:8081', 'http://127.0.0.1:8081', 200],
      ['localhost:8081', 'https://app.acme', 200],
      ['localhost:8081', 'HTTPS://APP.ACME', 200],
      ['localhost:8081', 'https://app.acme.evil.example', 403],
      ['localhost:8081', 'http://localhost:9', 403],
      ['localhost:8081', 'https://evil.example', 403],
      ['localhost:8081', 'null', 403],
      ['localhost:8081', '', 403],
      ['evil.example', 'http://evil.example', 403],
    ])(
      'a request on loopback with Host %s and Origin %s is answered with %i',
      async (host, origin, status) => {
        const server = await start(routes, { allowedOrigins: listed });
        expect((await ask(server, request(host, origin))).status).toBe(status);
      },
    );

    test('a server on another address accepts any Host, and an Origin under a changeable DNS name is refused', async () => {
      const server = await start(routes, { host: '0.0.0.0', allowedOrigins: [] });
      expect((await ask(server, request('registry.acme'))).status).toBe(200);
      expect((await ask(server, request('registry.acme', 'http://registry.acme'))).status).toBe(403);
      expect((await ask(server, request('10.0.0.1:8081', 'http://10.0.0.1:8081'))).status).toBe(200);
    });

    test('a refused cross-site request gets advice, its connection continues, and * admits every site', async () => {
      const server = await start(routes, {
        allowedOrigins: [],
        fallbacks: { error: (status, _request, detail) => ({ status, body: detail ?? '' }) },
      });
      const client = await open(server);
      expect(
        (await client.send(request('localhost', 'https://evil.example')).answer()).body.toString(),
      ).toContain('-allowed-origins');
      expect((await client.send(request('evil.example')).answer()).body.toString()).toContain(
        '-allowed-origins',
      );
      expect((await client.send(request('localhost')).answer()).status).toBe(200);
      const all = await start(routes, { allowedOrigins: ['*'] });
      expect((await ask(all, request('evil.example', 'null'))).status).toBe(200);
    });
  });

  describe('methods', () => {
    test.each(['QUERY', 'BREW', 'X-MADE_UP'])(
      'the unlisted method %s is answered with 405 and Allow, or ends its connection if the backend cannot answer',
      async (method) => {
        const seen: string[] = [];
        const handler = (request: HttpRequest) => {
          seen.push(request.method);
          return { status: 200, body: 'served' };
        };
        const server = await start([
          { method: 'GET', path: '/a', handler },
          { method: 'POST', path: '/a', handler },
        ]);
        for (const request of [get('/a').replace('GET', method), post('/a', 'x').replace('POST', method)]) {
          const client = await open(server);
          client.send(request);
          if (can('rare_forms')) {
            const answer = await client.answer();
            expect([answer.status, answer.headers['allow']]).toEqual([405, 'GET, HEAD, OPTIONS, POST']);
            // node:http must close the connection when its parser failed.
            if (answer.headers['connection'] === 'close') await client.closed();
            else expect((await client.send(get('/a')).answer()).body.toString()).toBe('served');
          } else {
            expect(await client.outcome()).toBe('ended');
            expect(client.unread).toBe('');
          }
        }
        expect(seen).not.toContain(method);
        expect([server.inFlight(), server.heldBytes()]).toEqual([0, 0]);
        expect((await ask(server, get('/a'))).body.toString()).toBe('served');
      },
    );
  });
}
