/** Millrace's HTTP parser compared with node's: the same bytes, cut anywhere, give the same
 *  requests or are refused by both. Millrace's parser refuses more only for the reasons listed
 *  here, and never accepts a request that node refuses. */
import { connect } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { wireDriver } from '../../src/io/http/http1/server.ts';
import { nodeHttpDriver } from '../../src/io/http/node/server.ts';
import type { HttpDriver, HttpRequest, HttpServer } from '../../src/io/http/port.ts';

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PROPFIND'];
const NAMES = [
  'host',
  'content-length',
  'transfer-encoding',
  'connection',
  'expect',
  'x-a',
  'idempotency-key',
];

class Side {
  readonly driver: HttpDriver;
  server!: HttpServer;
  handled: string[] = [];

  constructor(driver: HttpDriver) {
    this.driver = driver;
  }

  async start(): Promise<void> {
    const handler = (request: HttpRequest) => {
      const headers = NAMES.map((name) => request.header(name));
      const body = Buffer.from(request.body).toString('latin1');
      this.handled.push(JSON.stringify([request.method, request.path, [...request.query], headers, body]));
      return { status: 200, body: 'x' };
    };
    const alive = { method: 'GET', path: '/alive', handler: () => ({ status: 200, body: 'yes' }) };
    const paths = ['/', '/a', '/a/{b}'];
    this.server = await this.driver.listen({
      host: '127.0.0.1',
      port: 0,
      routes: [...METHODS.flatMap((method) => paths.map((path) => ({ method, path, handler }))), alive],
      bodyBytesMax: 4096,
      headerBytesMax: 8192,
      requestTimeoutMs: 20_000,
      keepAliveTimeoutMs: 20_000,
      log: silentLogger,
    });
  }

  /** Completes an exchange on another connection. Afterwards the server has read all bytes that
   *  were sent before. */
  private alive(): Promise<void> {
    return new Promise((resolve) => {
      const socket = connect(this.server.port, '127.0.0.1', () =>
        socket.write('GET /alive HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'),
      );
      socket.on('data', () => {});
      socket.on('error', () => {});
      socket.on('close', () => resolve());
    });
  }

  /** Returns the requests that the server parses from these bytes. */
  async read(bytes: Buffer, cuts: readonly number[]): Promise<readonly string[]> {
    this.handled = [];
    const places = [0, ...cuts.map((cut) => cut % bytes.length), bytes.length].sort((a, b) => a - b);
    const socket = connect({ port: this.server.port, host: '127.0.0.1', noDelay: true });
    const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()));
    socket.on('error', () => {});
    socket.on('data', () => {});
    await new Promise<void>((resolve) => socket.once('connect', () => resolve()));
    for (let i = 1; i < places.length; i++) {
      const part = bytes.subarray(places[i - 1], places[i]);
      if (part.length === 0 || socket.destroyed) continue;
      socket.write(part);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await this.alive();
    socket.end();
    socket.destroySoon();
    await closed;
    return this.handled;
  }
}

const ours = new Side(wireDriver);
const nodes = new Side(nodeHttpDriver);
beforeAll(() => Promise.all([ours.start(), nodes.start()]));
afterAll(() => Promise.all([ours, nodes].map((side) => side.server.drain(0))));

const NODE_MAJOR = Number(process.versions.node.split('.')[0]);
/** Line feed or carriage return by itself. */
const BARE = /(^|[^\r])\n|\r(?!\n)/;

/** Reasons for which Millrace refuses requests that node accepts. RFC 9112 allows or requires each
 *  refusal, and node's parser does not report these forms to its user. */
const REFUSED_MORE: ReadonlyArray<readonly [string, RegExp]> = [
  ['a line feed or a carriage return by itself', BARE],
  ['more than one blank in the request line', /[A-Z] {2}| {2}HTTP\//],
  ['HTTP/1.0 that requests keep-alive and close', /HTTP\/1\.0\r\n(?:.+\r\n)*connection:[^\r]*close/i],
  ['a chunk size of more than 8 digits', /^[0-9a-f]{9}/im],
  ['a chunk extension without the value it announces', /;[^;=\r]*=(?=[;\r])/],
];

async function compare(bytes: Buffer, cuts: readonly number[]): Promise<'same' | string> {
  const [mine, theirs] = await Promise.all([ours.read(bytes, cuts), nodes.read(bytes, cuts)]);
  const text = bytes.toString('latin1');
  const say = JSON.stringify(text);
  if (mine.length > theirs.length && NODE_MAJOR > 20) {
    // Node.js 22 refuses a bare line feed, and then drops the requests of the same read that were
    // not delivered yet.
    expect(mine.slice(0, theirs.length), say).toEqual(theirs);
    expect(text, say).toMatch(BARE);
    return 'requests that node drops before a bare line feed';
  }
  // node accepts every request that Millrace accepts, with the same text and order.
  expect(mine, say).toEqual(theirs.slice(0, mine.length));
  if (mine.length === theirs.length) return 'same';
  const reason = REFUSED_MORE.find(([, pattern]) => pattern.test(text))?.[0];
  expect(reason, `ours refuses ${say}, of which node takes ${theirs.length}`).toBeDefined();
  return reason as string;
}

const mostly = (usual: string, ...odd: string[]): fc.Arbitrary<string> =>
  fc.oneof({ weight: 12, arbitrary: fc.constant(usual) }, { weight: 2, arbitrary: fc.constantFrom(...odd) });
const eol = mostly('\r\n', '\n', '\r', '\r\r\n', ' \r\n', '\n\r\n');
const blank = mostly(' ', '  ', '\t', '', '\u000b');
const requestLine = fc
  .tuple(
    fc.oneof(fc.constantFrom(...METHODS), mostly('GET', 'get', 'GE T', 'CONNECT', 'FOO', 'M-SEARCH', '')),
    blank,
    mostly(
      '/a',
      '/a?x=1&y',
      '/a/b%20c',
      '*',
      'http://h:1/a?x',
      'HTTP://h',
      'http://u@h/a',
      'http:///a',
      'http://h|/a',
      'ftp://h/a',
      '//a',
      '/a#b',
      '/\u00e9',
      '/a/%zz',
      'a',
      '',
      '/a\u0001',
      '/a/"<>\\^`{|}',
    ),
    blank,
    mostly(
      'HTTP/1.1',
      'HTTP/1.0',
      'HTTP/1.2',
      'HTTP/2.0',
      'HTTP/0.9',
      'http/1.1',
      'HTTP/1.1 ',
      'HTTP/11',
      'HTTP',
      '',
    ),
    eol,
  )
  .map((parts) => parts.join(''));

const line = (name: string, ...values: string[]): fc.Arbitrary<string> =>
  fc
    .tuple(
      fc.constantFrom(name, name, name.toUpperCase(), `${name} `, ` ${name}`, name.slice(1)),
      mostly(': ', ':', ':\t ', ' : ', ''),
      fc.constantFrom(...values),
      mostly('', ' ', '\t', '\u00e9', '\u0000', '\u007f'),
      eol,
    )
    .map((parts) => parts.join(''));
const KEY = '3f2b8c1e-9d4a-4b6f-8e21-7a5c0d9e1f34';
const odd = fc.oneof(
  line(
    'transfer-encoding',
    'chunked',
    'Chunked',
    'gzip, chunked',
    'chunked, gzip',
    'identity',
    'xchunked',
    '',
    'chunked,',
  ),
  line(
    'content-length',
    '0',
    '1',
    '5',
    '05',
    '+5',
    '-1',
    '5, 5',
    '5x',
    '',
    '4097',
    '1e1',
    '000000000000000000005',
  ),
  line('connection', 'close', 'keep-alive', 'Close, x', 'upgrade', 'keep-alive, close', 'x'),
  line('expect', '100-continue', '100-Continue', 'x', '', '100-continue, x'),
  line('host', 'h', '', 'a b'),
  line('x-a', 'one', 'a, b', '', 'a\r\n folded', '\u00e9t\u00e9', 'x'.repeat(300)),
  line('idempotency-key', KEY, `${KEY}\u00e9`, `\u00e9${KEY}`, `"${KEY}"`),
  fc.constantFrom(
    ': x\r\n',
    '\u00e9: x\r\n',
    'x\u0000: y\r\n',
    'no colon\r\n',
    'x(y): z\r\n',
    'a:b:c\r\n',
    '\r\n',
  ),
);

const chunk = fc
  .tuple(
    fc.string({ unit: fc.constantFrom('a', 'b', '\r', '\n'), maxLength: 20 }),
    mostly(
      '',
      ';a',
      ';a=b',
      ';a="b c"',
      ';',
      ' ',
      ';a=',
      '; a',
      ';a;b=c',
      ';"a"',
      ';a="b',
      ';a=b c',
      ';a="\\""',
    ),
    mostly('', '0', '000000000', 'x', '-', '0x'),
    eol,
    mostly('\r\n', '', '\n', 'x\r\n'),
  )
  .map(
    ([data, extension, before, end, after]) =>
      `${before}${data.length.toString(16)}${extension}${end}${data}${after}`,
  );
const trailer = mostly(
  '',
  'X-T: t\r\n',
  'x\r\n',
  ': x\r\n',
  'X-T: a\u0000\r\n',
  'X-T : t\r\n',
  ' x: y\r\n',
  'X:\r\n',
);
const chunks = fc
  .tuple(fc.array(chunk, { maxLength: 3 }), mostly('0', '00', '', '0;a=b', '0 '), trailer)
  .map(([all, last, trailers]) => `${all.join('')}${last}\r\n${trailers}\r\n`);

const message = fc
  .tuple(
    requestLine,
    fc.array(odd, { maxLength: 3 }),
    fc.oneof(
      { weight: 2, arbitrary: fc.constant(['', '']) },
      {
        weight: 4,
        arbitrary: fc
          .string({ maxLength: 30 })
          .map((body) => [`Content-Length: ${Buffer.byteLength(body)}\r\n`, body]),
      },
      { weight: 4, arbitrary: chunks.map((body) => ['Transfer-Encoding: chunked\r\n', body]) },
    ),
    mostly('', '\r\n', '\n', '\r', 'x'),
  )
  .map(([first, headers, [framing, body], before]) =>
    Buffer.concat([
      Buffer.from(`${before}${first}Host: h\r\n${headers.join('')}${framing}\r\n`, 'latin1'),
      Buffer.from(body as string, 'utf8'),
    ]),
  );

/** MILLRACE_TEST_RUNS=20000 searches for unlisted forms with a random seed. Without it the cases
 *  are fixed, because a find concerns the parsers and not the change under test. */
const REQUESTED_RUNS = process.env['MILLRACE_TEST_RUNS'];
const RUNS = Number(REQUESTED_RUNS ?? 700);
const SEED = 20_261_121;

describe('HTTP parsers of Millrace and Node', () => {
  test("our parser reads the same requests as Node's from any bytes in any chunks, or refuses for a listed reason", async () => {
    const outcomes = new Map<string, number>();
    await fc.assert(
      fc.asyncProperty(
        fc.array(message, { minLength: 1, maxLength: 3 }),
        fc.array(fc.nat({ max: 3000 }), { maxLength: 5 }),
        async (messages, cuts) => {
          const outcome = await compare(Buffer.concat(messages), cuts);
          outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
        },
      ),
      { numRuns: RUNS, ...(REQUESTED_RUNS === undefined ? { seed: SEED } : {}) },
    );
    // Guards against a generator whose bytes are all refused or all accepted.
    expect(outcomes.get('same')).toBeGreaterThan(RUNS / 3);
    expect(outcomes.size).toBeGreaterThan(2);
  }, 600_000);

  test.each<[string, string]>([
    ['a line feed or a carriage return by itself', 'GET /a HTTP/1.1\r\nHost: h\n\r\n'],
    ['more than one blank in the request line', 'GET  /a HTTP/1.1\r\nHost: h\r\n\r\n'],
    [
      'a chunk size of more than 8 digits',
      'POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n000000001\r\na\r\n0\r\n\r\n',
    ],
    [
      'a chunk extension without the value it announces',
      'POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=\r\na\r\n0\r\n\r\n',
    ],
  ])('our parser alone refuses %s', async (reason, text) => {
    const [mine, theirs] = await Promise.all([ours, nodes].map((side) => side.read(Buffer.from(text), [])));
    expect(mine).toEqual([]);
    if (theirs?.length === 1) expect(await compare(Buffer.from(text), [])).toBe(reason);
    else expect(theirs).toEqual([]);
  });

  test.each<[string, string]>([
    ['a version that is neither 1.0 nor 1.1', 'GET /a HTTP/2.0\r\nHost: h\r\n\r\n'],
    ['a request line without a version', 'GET /a\r\nHost: h\r\n\r\n'],
    ['a user name in the target', 'GET http://u@h/a HTTP/1.1\r\nHost: h\r\n\r\n'],
    ['odd characters in the host of a target', 'GET http://h|/a HTTP/1.1\r\nHost: h\r\n\r\n'],
    [
      'an encoding that is not chunked alone',
      'POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    ],
    [
      'an encoding in two lines',
      'POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
    ],
    ['chunks under HTTP/1.0', 'POST /a HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    [
      'a length of more than 19 digits',
      'POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 00000000000000000001\r\n\r\na',
    ],
    [
      'an expectation in addition to 100-continue',
      'POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue, x\r\n\r\na',
    ],
  ])('both parsers refuse %s', async (_reason, text) => {
    const [mine, theirs] = await Promise.all([ours, nodes].map((side) => side.read(Buffer.from(text), [])));
    expect([mine, theirs]).toEqual([[], []]);
  });
});
