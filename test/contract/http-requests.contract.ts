/** Contract of every HTTP driver for requests: routing, headers, bodies, and handlers that fail. */
import { describe, expect, test } from 'vitest';
import type { HttpDriver } from '../../src/io/http/port.ts';
import { turns, until } from '../wait.ts';
import { get, HOST, httpHarness, json, KERNEL_BUFFERS_BYTES, post, ROUTES } from './http-harness.ts';

export function httpRequestsContract(driver: HttpDriver): void {
  const { can, start, open, ask, barrier } = httpHarness(driver);

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

    test('a literal path part takes precedence, and a named part is tried if the literal matches no route', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/subjects/latest'))).body.toString()).toBe('literal');
      expect((await ask(server, get('/subjects/latest/versions'))).body.toString()).toBe(
        'versions of latest',
      );
      const answer = await ask(server, get('/subjects/latest/versions/1'));
      expect(json(answer.body)['params']).toEqual({ subject: 'latest', version: '1' });
    });

    test('one trailing slash is ignored, and an empty part matches nothing', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/subjects/'))).status).toBe(200);
      expect((await ask(server, get('/subjects//'))).status).toBe(404);
      expect((await ask(server, get('/subjects//versions/1'))).status).toBe(404);
    });

    test('an encoded literal equals the literal, and keys such as __proto__ are ordinary names', async () => {
      const server = await start(ROUTES);
      expect((await ask(server, get('/%73ubjects'))).status).toBe(200);
      const answer = await ask(server, get('/subjects/__proto__'));
      expect(json(answer.body)['params']).toEqual({ subject: '__proto__' });
      expect((await ask(server, get('/__proto__'))).status).toBe(404);
      expect((await ask(server, get('/constructor'))).status).toBe(404);
    });

    test('an unknown path gets 404 and another method 405 with Allow, each in the product’s own form', async () => {
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

    test('HEAD is answered like GET without the body', async () => {
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

    test('OPTIONS is answered with 204 and Allow', async () => {
      const server = await start(ROUTES);
      const answer = await ask(server, get('/echo').replace('GET', 'OPTIONS'));
      expect([answer.status, answer.headers['allow'], answer.headers['content-length']]).toEqual([
        204,
        'OPTIONS, POST',
        undefined,
      ]);
      expect((await ask(server, get('/nowhere').replace('GET', 'OPTIONS'))).status).toBe(404);
    });

    const RARE: ReadonlyArray<readonly [string, string]> = [
      ['HTTP/1.0', 'GET / HTTP/1.0\r\n\r\n'],
      ['OPTIONS *', get('*').replace('GET', 'OPTIONS')],
      ['an absolute target', get('http://test/subjects/x?q=1')],
      ['a rare method', get('/subjects/x').replace('GET', 'PROPFIND')],
    ];
    test('rare request forms are understood, or get neither answer nor handler', async () => {
      if (!can('rare_forms')) {
        let handled = 0;
        const handler = () => ({ status: 200, body: `${++handled}` });
        const server = await start([
          { method: 'GET', path: '/', handler },
          { method: 'GET', path: '/subjects/{subject}', handler },
        ]);
        for (const [what, bytes] of RARE) {
          const client = await open(server);
          client.send(bytes);
          await barrier(server);
          expect(client.outcomeSoFar(), what).toBeTypeOf('string');
          expect(client.unread, what).toBe('');
        }
        expect(handled).toBe(0);
        expect(server.inFlight()).toBe(0);
        return;
      }
      const server = await start(ROUTES);
      const statuses: number[] = [];
      for (const [, bytes] of RARE) statuses.push((await ask(server, bytes)).status);
      expect(statuses).toEqual([200, 204, 200, 405]);
      const answer = await ask(server, get('http://test/subjects/x?q=1'));
      expect(json(answer.body)).toMatchObject({ path: '/subjects/x', query: [['q', '1']] });
      expect((await ask(server, get('http://test'))).status).toBe(200);
    });

    test('a percent sign that begins no character is answered with 400', async () => {
      const server = await start(ROUTES);
      for (const path of ['/subjects/%', '/subjects/%zz', '/subjects/%ff', '/subjects/%C3']) {
        expect((await ask(server, get(path))).status, path).toBe(400);
      }
    });
  });

  describe('headers and bodies', () => {
    test('several lines of one header stay separate, in order and trimmed', async () => {
      const server = await start(ROUTES);
      const answer = await ask(server, get('/', 'X-Thing:  a, b \t\r\nx-thing:\r\nX-THING: c\r\n'));
      expect(json(answer.body)['x']).toEqual(['a, b', '', 'c']);
    });

    test('header bytes above ASCII arrive in Latin-1, or are never mistaken for other text', async () => {
      const server = await start(ROUTES);
      const send = (value: string) => ask(server, Buffer.from(get('/', `X-Thing: ${value}\r\n`), 'latin1'));
      if (can('header_bytes')) {
        for (const value of ['caf\u00e9', '\u00e9t\u00e9', 'na\u00efve', '\u00c3\u00a9'])
          expect(json((await send(value)).body)['x']).toEqual([value]);
        return;
      }
      // The driver sees and refuses them in the middle of a value; its backend drops them at the
      // ends.
      for (const value of ['na\u00efve', 'na\u00c3\u00a9ve', 'a \u0080 b'])
        expect((await send(value)).status).toBe(400);
      for (const value of ['caf\u00e9', '\u00e9caf'])
        expect(json((await send(value)).body)['x']).toEqual(['caf']);
    });

    test('a body arrives complete with a length, in chunks or byte by byte', async () => {
      const server = await start(ROUTES);
      expect(json((await ask(server, post('/echo', 'hello'))).body)['body']).toBe('hello');
      const chunked = `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n`;
      expect(json((await ask(server, chunked)).body)['body']).toBe('hello!');
      const client = await open(server);
      client.socket.setNoDelay(true);
      for (const byte of post('/echo', 'slowly')) {
        client.send(byte);
        await turns(3);
      }
      expect(json((await client.answer()).body)['body']).toBe('slowly');
    });

    test('chunk extensions and trailers are ignored, or end the connection', async () => {
      const server = await start(ROUTES);
      const send = (chunks: string) =>
        `POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n${chunks}\r\n`;
      const trailed = await open(server);
      trailed.send(send('5\r\nhello\r\n0\r\nX-Trailer: t\r\n'));
      expect(json((await trailed.answer()).body)['body']).toBe('hello');
      const extended = await open(server);
      extended.send(send('5;ext=1\r\nhello\r\n0\r\n'));
      if (can('exact_chunks')) {
        expect(json((await extended.answer()).body)['body']).toBe('hello');
        expect((await trailed.send(get('/subjects/latest')).answer()).status).toBe(200);
      } else {
        expect(await extended.closed()).toBe('');
        expect(await trailed.closed()).toBe('');
      }
    });

    test('bytes after a body in malformed chunks are never treated as a request', async () => {
      let smuggled = 0;
      const server = await start([
        { method: 'POST', path: '/echo', handler: () => ({ status: 200, body: 'read' }) },
        { method: 'GET', path: '/smuggled', handler: () => ({ status: 200, body: `${++smuggled}` }) },
      ]);
      const inner = get('/smuggled');
      const odd = [
        `1\r\nabc\r\n0\r\n\r\n${inner}`,
        `5;\r\nhello\r\n0\r\n\r\n${inner}`,
        `1\na\n0\n\n${inner}`,
        `\r\na\r\n0\r\n\r\n${inner}`,
        `0\r\n${inner}`,
        `0\r\nX: y\r\n${inner}`,
        `0x1\r\na\r\n0\r\n\r\n${inner}`,
        `1 \r\na\r\n0\r\n${inner}`,
        `${inner.length.toString(16)};a=b\r\n${inner}\r\n0\r\n`,
      ];
      for (const chunks of odd) {
        const client = await open(server);
        client.send(`POST /echo HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n${chunks}`);
        await barrier(server);
        client.close();
      }
      expect(smuggled).toBe(0);
    });

    test('bytes after a body in chunks are the next request, or are never handled', async () => {
      let handled = 0;
      const server = await start([
        { method: 'POST', path: '/now', handler: () => ({ status: 200, body: 'read' }) },
        { method: 'POST', path: '/soon', handler: async () => ({ status: 200, body: 'read' }) },
        { method: 'GET', path: '/next', handler: () => ({ status: 200, body: `${++handled}` }) },
      ]);
      for (const path of ['/now', '/soon']) {
        const client = await open(server);
        client.send(
          `POST ${path} HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n${get('/next').repeat(3)}`,
        );
        if (!can('exact_chunks')) {
          await client.closed();
          continue;
        }
        for (let i = 0; i < 4; i++) expect((await client.answer()).status).toBe(200);
      }
      expect(handled).toBe(can('exact_chunks') ? 6 : 0);
    });

    test('bytes and text leave the server unchanged', async () => {
      const server = await start(ROUTES);
      const bytes = await ask(server, get('/bytes'));
      expect([...bytes.body]).toEqual([0, 255, 13, 10]);
      const text = await ask(server, get('/utf8'));
      expect(text.body.toString('utf8')).toBe('zażółć €');
      expect(text.headers['content-type']).toBe('text/plain; charset=utf-8');
      const none = await ask(server, get('/subjects/x').replace('GET', 'DELETE'));
      expect([none.status, none.headers['content-length']]).toEqual([204, undefined]);
    });

    test('a body of exactly the limit passes, and one byte more gets 413 without a handler and closes the connection', async () => {
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

    test('a client that first sends all of a refused body still gets a complete answer', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.socket.pause();
      const refused = post('/echo', 'x'.repeat(100_000));
      client.send(refused);
      await until('a body that has left', () => client.bytesSent === refused.length);
      await barrier(server);
      client.socket.resume();
      expect((await client.answer()).status).toBe(413);
      expect(await client.closed()).toBe('');
      expect(client.error).toBeUndefined();
    });

    test('a client that continues to upload after 413 is cut off and not read to the end', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 100000000000\r\n\r\n`);
      client.feed(Buffer.alloc(64 * 1024));
      const answer = await client.outcome();
      expect(typeof answer === 'string' ? answer : answer.status).toBeOneOf(
        can('refusal_arrives') ? [413] : [413, 'ended'],
      );
      await client.disconnected();
      expect(client.bytesSent).toBeLessThan(KERNEL_BUFFERS_BYTES);
    });

    test('a refused client that never closes does not delay a drain', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 5000\r\n\r\n`);
      expect((await client.answer()).status).toBe(413);
      // A drain that waited for the client would outlast the limit of the test.
      await server.drain(3_600_000);
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
        if (!can('continue_refused')) {
          expect((await bad.answer()).status).toBe(100);
          bad.send('x'.repeat(length));
        }
        expect((await bad.answer()).status).toBe(status);
        if (can('continue_refused')) await bad.closed();
      }
    });

    test('a body sent to an unknown path is read within the limit, and the connection continues', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      client.send(post('/nowhere', 'x'.repeat(1000)));
      expect((await client.answer()).status).toBe(404);
      client.send(get('/subjects/latest'));
      expect((await client.answer()).body.toString()).toBe('literal');
    });
  });

  describe('handler failures', () => {
    test('a throw and a rejection are answered with 500 without the text of the cause', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      for (const path of ['/throws', '/rejects', '/nothing', '/nothing-later']) {
        const answer = await client.send(get(path)).answer();
        expect(answer.status).toBe(500);
        expect(answer.body.toString()).not.toContain('secret');
      }
      expect((await client.send(get('/subjects/latest')).answer()).status).toBe(200);
    });

    test('an answer that cannot be written becomes 500 and no split header', async () => {
      const server = await start(ROUTES);
      const bad = await ask(server, get('/bad-header'));
      expect([bad.status, bad.headers['set-cookie'], bad.headers['x-first']]).toEqual([
        500,
        undefined,
        undefined,
      ]);
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
}
