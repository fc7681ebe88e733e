/** Behavior of the node:net driver beyond the contract: its parser, its limits, and the end of
 *  connections. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { DateLine, wireAnswer } from '../../../../src/io/http/http1/answer.ts';
import { WireBody } from '../../../../src/io/http/http1/body.ts';
import { CHUNKED, readWireHead } from '../../../../src/io/http/http1/head.ts';
import { wireDriver } from '../../../../src/io/http/http1/server.ts';
import type { HttpRoute, HttpServerOptions } from '../../../../src/io/http/port.ts';
import { gate, get, HOST, httpHarness, post } from '../../../contract/http-harness.ts';
import { turn, until } from '../../../wait.ts';

const ECHO: readonly HttpRoute[] = [
  { method: 'GET', path: '/', handler: () => ({ status: 200, body: 'x' }) },
  {
    method: 'POST',
    path: '/echo',
    handler: async (request) => ({ status: 200, body: Buffer.from(request.body).toString('latin1') }),
  },
];

describe('request head', () => {
  const head = (first: string, ...lines: string[]) => readWireHead([first, ...lines, ''].join('\r\n'));

  test('a request head is parsed into method, target, headers and length', () => {
    expect(
      head('POST /a?b=%20 HTTP/1.1', 'Host: h', 'X-A:\t a b\u00e9 \t', 'content-LENGTH: 007', 'x-a:'),
    ).toEqual({
      method: 'POST',
      url: '/a?b=%20',
      rawHeaders: ['Host', 'h', 'X-A', 'a b\u00e9', 'content-LENGTH', '007', 'x-a', ''],
      hostsMin: 1,
      length: 7,
      last: false,
      needsKeepAliveHeader: false,
      expectsContinue: false,
      expectsMore: false,
    });
  });

  test.each<[string[], object]>([
    [['Transfer-Encoding: Chunked'], { length: CHUNKED }],
    [['Connection: x, close'], { last: true }],
    [['Connection: x', 'connection: CLOSE'], { last: true }],
    [['Connection: closed'], { last: false }],
    [['Expect: 100-Continue'], { expectsContinue: true, expectsMore: false }],
    [['Expect: x'], { expectsContinue: false, expectsMore: true }],
  ])('a request head with %j is parsed as %j', (lines, expected) => {
    expect(head('GET / HTTP/1.1', ...lines)).toMatchObject(expected);
  });

  test('an HTTP/1.0 head needs no Host, and ends its connection unless it requests keep-alive', () => {
    expect(head('GET / HTTP/1.0')).toMatchObject({ hostsMin: 0, last: true, needsKeepAliveHeader: false });
    expect(head('GET / HTTP/1.0', 'Connection: Keep-Alive')).toMatchObject({
      last: false,
      needsKeepAliveHeader: true,
    });
    expect(head('GET / HTTP/1.0', 'Connection: keep-alive, close')).toMatchObject({ last: true });
  });

  test.each<[string, ...string[]]>([
    [''],
    ['GET'],
    ['GET /'],
    ['GET / HTTP/1.1 '],
    ['GET  / HTTP/1.1'],
    ['GET /  HTTP/1.1'],
    ['GET / HTTP/1.2'],
    ['GET / http/1.1'],
    ['get / HTTP/1.1'],
    ['NO(PE / HTTP/1.1'],
    ['CONNECT h:1 HTTP/1.1'],
    ['GET a HTTP/1.1'],
    ['GET /\u0000 HTTP/1.1'],
    ['GET /\u00e9 HTTP/1.1'],
    ['GET http://u@h/ HTTP/1.1'],
    ['GET http://h\\x/ HTTP/1.1'],
    ['GET / HTTP/1.1', ': x'],
    ['GET / HTTP/1.1', ' X: folded'],
    ['GET / HTTP/1.1', 'X : y'],
    ['GET / HTTP/1.1', 'X'],
    ['GET / HTTP/1.1', 'X: a\u0000b'],
    ['GET / HTTP/1.1', 'X: a\u007f'],
    ['GET / HTTP/1.1', 'X: a\rb'],
    ['GET / HTTP/1.1', 'X: a\nY: b'],
    ['GET / HTTP/1.1', 'X\u00e9: a'],
    ['GET / HTTP/1.1', 'Content-Length: 1', 'Content-Length: 1'],
    ['GET / HTTP/1.1', 'Content-Length: 1, 1'],
    ['GET / HTTP/1.1', 'Content-Length:'],
    ['GET / HTTP/1.1', 'Content-Length: 0x1'],
    ['GET / HTTP/1.1', `Content-Length: ${'0'.repeat(20)}`],
    ['GET / HTTP/1.1', 'Transfer-Encoding: chunked', 'Content-Length: 1'],
    ['GET / HTTP/1.1', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'],
    ['GET / HTTP/1.1', 'Transfer-Encoding: chunked, chunked'],
    ['GET / HTTP/1.1', 'Transfer-Encoding: \u000bchunked'],
    ['GET / HTTP/1.1', 'Transfer-Encoding:'],
    ['GET / HTTP/1.0', 'Transfer-Encoding: chunked'],
  ])('a malformed head is refused: %j %j', (first, ...lines) => {
    expect(head(first, ...lines)).toBeUndefined();
  });
});

describe('request body', () => {
  const read = (bytes: Buffer, cuts: readonly number[], length = CHUNKED, max = 1000) => {
    const body = new WireBody(length, max, 200);
    const places = [0, ...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length].sort((a, b) => a - b);
    let taken = 0;
    for (let i = 1; i < places.length && body.state === 'more'; i++) {
      const from = places[i - 1] as number;
      const to = places[i] as number;
      if (to > from) taken += body.consume(bytes.subarray(from, to), 0);
    }
    return { state: body.state, taken, text: Buffer.from(body.bytes).toString('latin1') };
  };

  test('a body is read the same in chunks of any size, and ends at its last byte', () => {
    const chunk = fc.tuple(
      fc.string({ minLength: 1, maxLength: 40 }),
      fc.constantFrom('', ';a', ';a=b;c="d e\\""'),
    );
    fc.assert(
      fc.property(
        fc.array(chunk, { maxLength: 5 }),
        fc.array(fc.nat(), { maxLength: 8 }),
        fc.constantFrom('', 'X-T: t\r\n'),
        (chunks, cuts, trailer) => {
          const data = chunks.map(([text]) => Buffer.from(text, 'utf8'));
          const coded = Buffer.concat([
            ...data.flatMap((one, i) => [
              Buffer.from(`${one.length.toString(16)}${chunks[i]?.[1]}\r\n`),
              one,
              Buffer.from('\r\n'),
            ]),
            Buffer.from(`0\r\n${trailer}\r\n`),
          ]);
          const whole = Buffer.concat(data).toString('latin1');
          expect(read(Buffer.concat([coded, Buffer.from('GET / HTTP')]), cuts)).toEqual({
            state: 'done',
            taken: coded.length,
            text: whole,
          });
          const plain = Buffer.concat(data);
          if (plain.length > 0)
            expect(read(Buffer.concat([plain, Buffer.from('x')]), cuts, plain.length)).toEqual({
              state: 'done',
              taken: plain.length,
              text: whole,
            });
        },
      ),
    );
  });

  test.each<[string, string]>([
    ['malformed', '5;\r\n'],
    ['malformed', '5 \r\n'],
    ['malformed', ' 5\r\n'],
    ['malformed', '0x5\r\n'],
    ['malformed', '\r\n'],
    ['malformed', '-1\r\n'],
    ['malformed', '1\na\n'],
    ['malformed', '1\r\nab\r\n'],
    ['malformed', '1\r\na\rb'],
    ['malformed', '000000001\r\n'],
    ['malformed', '1;a="b\r\n'],
    ['malformed', '1;a=b c\r\n'],
    ['malformed', '0\r\nX\r\n\r\n'],
    ['malformed', '0\r\nX : y\r\n\r\n'],
    ['malformed', '0\r\nX: \u0000\r\n\r\n'],
    ['malformed', '0\r\n\n'],
    ['too_large', '3e9\r\n'],
    ['too_large', 'ffffffff\r\n'],
    ['overhead_too_large', `1;${'a'.repeat(300)}`],
    ['overhead_too_large', `${'1;aaaaaaaaa\r\nx\r\n'.repeat(30)}`],
    ['overhead_too_large', `0\r\n${'X: y\r\n'.repeat(60)}`],
    ['more', '3e8\r\n'],
    ['more', '1;a=b\r\na\r\n0\r\nX: y\r\n'],
  ])('a body is %s: %j', (state, text) => {
    const bytes = Buffer.from(text, 'latin1');
    expect(read(bytes, []).state).toBe(state);
    expect(
      read(
        bytes,
        Array.from({ length: bytes.length }, (_, i) => i),
      ).state,
    ).toBe(state);
  });

  test('a body allocates memory for received bytes, not for its announced length', () => {
    const body = new WireBody(60_000, 64_000, 200);
    body.consume(Buffer.alloc(100), 0);
    expect(body.heldBytes).toBeLessThan(2000);
  });
});

describe('response bytes', () => {
  const date = 'date: now\r\n';
  test('a short answer is written as one text', () => {
    const headers = { 'X-A': 'caf\u00e9', 'Content-Length': '99', connection: 'upgrade' };
    expect(wireAnswer({ status: 200, headers, body: 'ok' }, 'GET', '', date)).toEqual({
      first:
        'HTTP/1.1 200 OK\r\nX-A: caf\u00e9\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 2\r\ndate: now\r\n\r\nok',
      rest: new Uint8Array(0),
    });
  });
  test('an answer of bytes or of text beyond ASCII is written as bytes', () => {
    const { first } = wireAnswer(
      { status: 200, headers: { 'x-a': '\u00e9' }, body: '\u20ac' },
      'GET',
      '',
      date,
    );
    expect((first as Buffer).subarray(-3)).toEqual(Buffer.from('\u20ac'));
    expect((first as Buffer).toString('latin1')).toContain('x-a: \u00e9\r\n');
    expect((first as Buffer).toString('latin1')).toContain('content-length: 3\r\n');
  });
  test('the date line gives the time and changes each second', () => {
    const line = new DateLine();
    expect(line.at(0)).toMatch(/^date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n$/);
    expect(line.at(5000)).toMatch(/^date: /);
  });
});

describe('connection of the node:net driver', () => {
  const wire = httpHarness(wireDriver);
  const start = (routes: readonly HttpRoute[], over: Partial<HttpServerOptions> = {}) =>
    wire.start(routes, {
      bodyBytesMax: 64 * 1024,
      requestTimeoutMs: 10_000,
      keepAliveTimeoutMs: 10_000,
      ...over,
    });
  const { open } = wire;

  test('an HTTP/1.0 connection is kept alive on request, and the answer confirms it', async () => {
    const client = await open(await start(ECHO));
    for (let i = 0; i < 2; i++) {
      const answer = await client.send('GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n').answer();
      expect([answer.status, answer.headers['connection']]).toEqual([200, 'keep-alive']);
    }
    expect((await client.send('GET / HTTP/1.0\r\n\r\n').answer()).headers['connection']).toBe('close');
    expect(await client.closed()).toBe('');
  });

  test('a connection may send empty lines before a request, and nothing else', async () => {
    const server = await start(ECHO);
    const client = await open(server);
    for (const bytes of [`\r\n\r\n${get('/')}`, '\r', `\n${get('/')}`]) client.send(bytes);
    expect([await client.answer(), await client.answer()].map(({ status }) => status)).toEqual([200, 200]);
    for (const bytes of [`\n${get('/')}`, `\r${get('/')}`, ` ${get('/')}`, '\u0000']) {
      const odd = await open(server);
      expect((await odd.send(bytes).answer()).status, JSON.stringify(bytes)).toBe(400);
      await odd.closed();
    }
  });

  test('a connection that is not HTTP is answered with 400 before a whole head arrives, and counted', async () => {
    const seen: number[] = [];
    const client = await open(await start(ECHO, { onAnswer: ({ status }) => seen.push(status) }));
    expect((await client.send('\x16\x03\x01\x02\x00').answer()).status).toBe(400);
    await client.closed();
    expect(seen).toEqual([400]);
  });

  test('a connection with too many pipelined requests gets its answers, then 503, and ends', async () => {
    const door = gate();
    const slow: HttpRoute = {
      method: 'GET',
      path: '/slow',
      handler: async () => {
        await door.opened;
        return { status: 200, body: 'slow' };
      },
    };
    const served: Socket[] = [];
    const note = (message: unknown): void => void served.push((message as { socket: Socket }).socket);
    subscribe('net.server.socket', note);
    onTestFinished(() => void unsubscribe('net.server.socket', note));
    const client = await open(await start([slow, ...ECHO], { bodyBytesMax: 1024, headerBytesMax: 1024 }));
    client.send(get('/slow'));
    client.send(get('/').repeat(1000) + post('/echo', 'x'.repeat(1000)).repeat(200));
    // A server over its limit stops reading.
    await expect.poll(() => served.map((socket) => socket.isPaused())).toEqual([true]);
    door.open();
    const statuses: number[] = [];
    while (statuses.length < 1 + 1000 + 200) {
      const { status } = await client.answer();
      statuses.push(status);
      if (status !== 200) break;
    }
    expect(statuses.length).toBeGreaterThan(1001);
    expect(statuses.at(-1)).toBe(503);
    await client.closed();
  });

  test('a connection that would exceed the held-bytes limit is refused with 503, and others continue', async () => {
    const server = await start(ECHO, { requestTimeoutMs: 20_000, heldBytesMax: 200_000 });
    const half = `POST /echo HTTP/1.1\r\n${HOST}Content-Length: 60000\r\n\r\n${'x'.repeat(40_000)}`;
    const all = await Promise.all(Array.from({ length: 8 }, async () => (await open(server)).send(half)));
    await expect
      .poll(() => all.filter((one) => one.unread.startsWith('HTTP/1.1 503 ')).length)
      .toBeGreaterThan(2);
    const ask = async (): Promise<number> =>
      (await (await open(server)).send(post('/echo', 'y')).answer()).status;
    expect(await ask()).toBe(200);
    for (const one of all) one.close();
    await expect.poll(() => server.inFlight()).toBe(0);
    // The server has released the memory of the refused connections.
    for (let i = 0; i < 20; i++) {
      const client = await open(server);
      client.send(half);
      client.send('x'.repeat(20_000));
      expect((await client.answer()).body.length).toBe(60_000);
    }
  });

  test('a connection whose head check outlasts the request timeout is served', async () => {
    const door = gate();
    const judged = gate();
    const server = await start(
      [
        {
          method: 'POST',
          path: '/',
          admit: async () => {
            judged.open();
            await door.opened;
            return undefined;
          },
          handler: ({ body }) => ({ status: 200, body }),
        },
      ],
      { requestTimeoutMs: 100 },
    );
    const client = await open(server);
    client.send(post('/', 'x'));
    await judged.opened;
    // The timeout of this connection proves that the time has passed.
    const other = await open(server);
    expect((await other.send('GET / HTTP/1.1\r\n').answer()).status).toBe(408);
    door.open();
    expect((await client.answer()).body.toString()).toBe('x');
  });

  test('a client that reads slowly gets a long answer completely, and then the end of the connection', async () => {
    const body = Buffer.alloc(6 * 1024 * 1024, 'l');
    const server = await start([{ method: 'GET', path: '/long', handler: () => ({ status: 200, body }) }]);
    const slow = await open(server);
    slow.send(get('/long', 'Connection: close\r\n'));
    for (let i = 0; i < 15; i++) {
      slow.socket.pause();
      const { bytesRead } = slow.socket;
      for (let turns = 0; turns < 20; turns++) await turn();
      slow.socket.resume();
      await until('more of the answer', () => slow.socket.bytesRead > bytesRead || bytesRead > body.length);
    }
    expect((await slow.answer()).body.length).toBe(body.length);
    expect(await slow.closed()).toBe('');
    await expect.poll(() => server.inFlight()).toBe(0);
  });

  test('a client that half-closes during a long answer gets the complete answer', async () => {
    const body = Buffer.alloc(8 * 1024 * 1024, 'l');
    const server = await start([
      { method: 'GET', path: '/long', handler: () => ({ status: 200, body }) },
      { method: 'GET', path: '/short', handler: () => ({ status: 204 }) },
    ]);
    const client = await open(server);
    client.socket.pause();
    client.send(get('/long'));
    await expect.poll(() => server.inFlight()).toBe(1);
    client.socket.end();
    // The answer to a later request proves that the server has read the end.
    const other = await open(server);
    expect((await other.send(get('/short')).answer()).status).toBe(204);
    client.socket.resume();
    expect((await client.answer()).body.length).toBe(body.length);
    await client.closed();
  });
});
