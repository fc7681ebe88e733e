/** Pure parts of idempotent endpoints: fingerprints, stored answers, options, captured responses.
 *  */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { findMillraceError } from '../../../../src/core/errors.ts';
import { CapturedResponse } from '../../../../src/outbox/idempotency/adapters/capture.ts';
import {
  allowedHeaders,
  decodeAnswer,
  encodeAnswer,
  REPLAYED_HEADERS,
  storedByDefault,
} from '../../../../src/outbox/idempotency/answer.ts';
import { fingerprint } from '../../../../src/outbox/idempotency/fingerprint.ts';
import { type IdempotencyOptions, resolveOptions } from '../../../../src/outbox/idempotency/options.ts';
import { isLost } from '../../../../src/outbox/idempotency/source.ts';
import { tableSql, withLiterals } from '../../../../src/outbox/idempotency/table.ts';

function codeOf(act: () => unknown): string | undefined {
  try {
    act();
    return undefined;
  } catch (thrown) {
    return findMillraceError(thrown)?.code;
  }
}

describe('fingerprint', () => {
  const part = fc.oneof(
    fc.string(),
    fc.uint8Array({ maxLength: 8 }),
    fc.constant(undefined),
    fc.jsonValue().filter((value) => typeof value !== 'string'),
  );
  const parts = fc.array(part, { minLength: 1, maxLength: 4 });
  /** Text that differs exactly when the parts do. */
  const describeParts = (list: readonly unknown[]): string =>
    JSON.stringify(
      list.map((one) => {
        if (one === undefined) return 'u';
        if (one instanceof Uint8Array) return ['b', ...one];
        return typeof one === 'string' ? ['s', one] : ['j', JSON.stringify(one)];
      }),
    );

  it('two lists of parts have one fingerprint exactly when they are equal', () => {
    fc.assert(
      fc.property(parts, parts, (one, two) => {
        const same = describeParts(one) === describeParts(two);
        expect(fingerprint(one).equals(fingerprint(two))).toBe(same);
      }),
    );
    expect(fingerprint(['ab', 'c']).equals(fingerprint(['a', 'bc']))).toBe(false);
    expect(fingerprint(['1']).equals(fingerprint([1]))).toBe(false);
  });

  it('parts that have no value to hash are refused', () => {
    const circle: Record<string, unknown> = {};
    circle['self'] = circle;
    for (const list of [[], [() => {}], [circle], [1n], [Symbol('a')]])
      expect(codeOf(() => fingerprint(list))).toBe('bad_option');
  });
});

describe('stored answers', () => {
  const allowed = allowedHeaders(['Location', 'x-a']);

  it('an answer has its listed headers and its bytes after a round trip', () => {
    fc.assert(
      fc.property(fc.uint8Array(), fc.stringMatching(/^[ -~]{0,20}$/), (body, value) => {
        const headers = [
          ['x-a', value],
          ['x-a', 'b'],
          ['set-cookie', 'c'],
        ] as const;
        const columns = encodeAnswer({ status: 201, headers, body }, allowed, 10_000);
        const answer = decodeAnswer(columns, allowed);
        expect(answer.headers).toEqual([
          ['x-a', value],
          ['x-a', 'b'],
        ]);
        expect(Buffer.from(answer.body).equals(Buffer.from(body))).toBe(true);
      }),
    );
  });

  it('a value with a line break or a control character is neither stored nor replayed', () => {
    for (const value of ['a\r\nb: c', 'a\nb', 'a\0', 'a\u007f', '\u0100']) {
      const headers = [['x-a', value]] as const;
      expect(codeOf(() => encodeAnswer({ status: 200, headers, body: Buffer.alloc(0) }, allowed, 100))).toBe(
        'internal',
      );
      const columns = { status: 200, headers: JSON.stringify(headers), body: Buffer.alloc(0) };
      expect(codeOf(() => decodeAnswer(columns, allowed))).toBe('internal');
    }
  });

  it('the limit counts headers and body, both included', () => {
    const answer = { status: 200, headers: [['x-a', 'b']] as const, body: Buffer.alloc(20) };
    const bytes = '[["x-a","b"]]'.length + 20;
    expect(codeOf(() => encodeAnswer(answer, allowed, bytes))).toBeUndefined();
    expect(codeOf(() => encodeAnswer(answer, allowed, bytes - 1))).toBe('answer_too_large');
  });

  it('headers of the connection or the length cannot be listed', () => {
    for (const name of ['Content-Length', 'transfer-encoding', 'connection', 'a b', 'a:b', ''])
      expect(codeOf(() => allowedHeaders([name]))).toBe('bad_option');
    expect(allowedHeaders(REPLAYED_HEADERS).size).toBe(REPLAYED_HEADERS.length);
  });

  it('answers that ask for another attempt and server errors are not stored by default', () => {
    const stored = [200, 201, 204, 302, 400, 402, 404, 410, 422];
    const passing = [401, 403, 408, 409, 425, 429, 500, 502, 503];
    expect(stored.filter((status) => !storedByDefault(status))).toEqual([]);
    expect(passing.filter(storedByDefault)).toEqual([]);
  });
});

describe('options of idempotency', () => {
  const sql = { transaction: async <T>(work: (tx: object) => Promise<T>): Promise<T> => work({}) };
  const good: IdempotencyOptions<object> = { sql, scope: () => 'a', ttlMs: 60_000 };

  it.each<[string, object]>([
    ['an unknown name', { ttl: 1 }],
    ['no scope', { scope: undefined }],
    ['a scope that is no function', { scope: 'a' }],
    ['no retention', { ttlMs: undefined }],
    ['a retention below the retry window', { retryWindowMs: 60_001 }],
    ['a fraction of a millisecond', { ttlMs: 1000.5 }],
    ['a lease of no time', { leaseMs: 0 }],
    ['a negative wait', { waitMs: -1 }],
    ['an answer above the limit', { answerBytesMax: 64 * 1024 * 1024 + 1 }],
    ['another status for a reused key', { reusedStatus: 400 }],
    ['sql that opens no transaction', { sql: {} }],
    ['a header of the connection', { headers: ['connection'] }],
  ])('options are refused with %s', (_, change) => {
    expect(codeOf(() => resolveOptions({ ...good, ...change } as typeof good))).toBe('bad_option');
  });

  it('a retention equal to the retry window is accepted', () => {
    expect(resolveOptions({ ...good, retryWindowMs: 60_000 }).ttlMs).toBe(60_000);
    expect(codeOf(() => resolveOptions({ ...good, table: 'a b' }))).toBe('bad_table_name');
  });
});

describe('errors of the database', () => {
  it('lost connections are told from errors of statements', () => {
    const lost = [
      { code: 'ECONNREFUSED' },
      { code: '57P01' },
      { code: '08006' },
      { code: '25P03' },
      new Error('Connection terminated unexpectedly'),
      new Error('timeout exceeded when trying to connect'),
      // As drizzle and TypeORM wrap errors of pg.
      new Error('Failed query: INSERT', { cause: { code: '57P01' } }),
      Object.assign(new Error('other'), { driverError: new Error('Connection terminated unexpectedly') }),
    ];
    const others = [
      { code: '23505' },
      { code: '42P01' },
      new Error('other'),
      undefined,
      null,
      'text',
      { code: 7 },
      new Error('Failed query: INSERT', { cause: { code: '23505' } }),
    ];
    expect(lost.filter((one) => !isLost(one))).toEqual([]);
    expect(others.filter(isLost)).toEqual([]);
  });
});

describe('a captured response', () => {
  /** Runs `write` on a captured response of a real server; returns what the client got. */
  async function exchange(write: (res: ServerResponse, captured: CapturedResponse) => void | Promise<void>) {
    const server = createServer(async (_req, res) => {
      res.setHeader('x-before', 'kept');
      await write(res, new CapturedResponse(res, 100));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    try {
      const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
      return { status: response.status, headers: response.headers, text: await response.text() };
    } finally {
      server.closeAllConnections();
      server.close();
    }
  }

  it('nothing is sent before send, and then all that was written in any form', async () => {
    const seen = await exchange(async (res, captured) => {
      res.writeHead(202, 'Fine', ['x-a', '1', 'X-B', '2']);
      expect(res.headersSent).toBe(false);
      const flushed = new Promise<void>((resolve) => {
        res.write('c3\u00bc', 'utf8', () => resolve());
      });
      await flushed;
      res.write(Buffer.from('-'));
      res.end('ff', 'hex');
      res.end('ignored');
      await captured.endedOrClosed();
      expect(res.headersSent).toBe(false);
      expect(captured.answer()).toEqual({
        status: 202,
        headers: [
          ['x-before', 'kept'],
          ['x-a', '1'],
          ['x-b', '2'],
        ],
        body: Buffer.concat([Buffer.from('c3\u00bc-'), Buffer.from([0xff])]),
      });
      captured.send();
    });
    expect([seen.status, seen.headers.get('x-b'), seen.text]).toEqual([202, '2', 'c3\u00bc-\ufffd']);
  });

  it('a discarded response has the status and the headers of before', async () => {
    const seen = await exchange((res, captured) => {
      res.writeHead(201, { 'x-before': 'changed', 'x-a': '1' });
      res.end('body');
      captured.discard();
      res.end('other');
    });
    expect([seen.status, seen.headers.get('x-before'), seen.headers.get('x-a'), seen.text]).toEqual([
      200,
      'kept',
      null,
      'other',
    ]);
  });

  it('an answer above the limit is not held', async () => {
    const seen = await exchange((res, captured) => {
      for (let i = 0; i < 20; i++) res.write('0123456789');
      res.end();
      expect(codeOf(() => captured.answer())).toBe('answer_too_large');
      captured.discard();
      res.end('small');
    });
    expect(seen.text).toBe('small');
  });
});

describe('withLiterals', () => {
  it('a value is never read as a parameter of the statement', () => {
    expect(withLiterals('SELECT $1::text, $2::float8, $1::text', ['$2', 7])).toBe(
      "SELECT '$2'::text, 7::float8, '$2'::text",
    );
  });

  it.each([
    ["o'neil", "'o''neil'"],
    ['a\\', " E'a\\\\'"],
    ["\\'", " E'\\\\'''"],
    [Buffer.from([0, 255]), "E'\\\\x00ff'"],
    [-1.5, '-1.5'],
  ])('the value %j becomes the literal %s', (value, literal) => {
    expect(withLiterals('$1', [value])).toBe(literal);
  });

  it('a value with a zero character, and a parameter without a value, are refused', () => {
    expect(() => withLiterals('$1', ['a\0b'])).toThrow('each parameter has a text');
    expect(() => withLiterals('$2', ['a'])).toThrow('each parameter has a text');
  });

  it('every parameter of a claim and of its question has a literal', () => {
    const { claim, find } = tableSql('idempotency');
    expect(withLiterals(claim, ['s', 'k', Buffer.alloc(32), 1000, '5', '4000'])).not.toMatch(/\$\d/);
    expect(withLiterals(find, ['s', 'k', '5'])).not.toMatch(/\$\d/);
  });
});
