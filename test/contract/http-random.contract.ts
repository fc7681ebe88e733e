/** Contract of every HTTP driver for random bytes in any chunks. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { HttpDriver, HttpRoute } from '../../src/io/http/port.ts';
import { runs } from '../tier.ts';
import { get, HOST, httpHarness, post } from './http-harness.ts';

/** Routes of the test.
 *  @param waits true: one of the handlers answers in a later turn of the event loop */
const routesOf = (waits: boolean): readonly HttpRoute[] => [
  {
    method: 'GET',
    path: '/a/{x}',
    handler: (request) => ({ status: 200, body: `get ${request.params['x']}` }),
  },
  {
    method: 'POST',
    path: '/b',
    handler: async (request) => {
      if (waits) await new Promise((resolve) => setImmediate(resolve));
      return { status: 201, body: `post ${Buffer.from(request.body).toString('latin1')}` };
    },
  },
];

interface RequestBytes {
  readonly bytes: string;
  readonly status: number;
  readonly body: string;
}

const word = fc.stringMatching(/^[a-z0-9]{1,8}$/);
const plain: fc.Arbitrary<RequestBytes> = fc.oneof(
  word.map((x) => ({ bytes: get(`/a/${x}`), status: 200, body: `get ${x}` })),
  word.map((x) => ({ bytes: post('/b', x), status: 201, body: `post ${x}` })),
  word.map((x) => ({
    bytes: get(`/${x}/un/known`),
    status: 404,
    body: `{"refused":404,"path":"/${x}/un/known"}`,
  })),
);

const chunked: fc.Arbitrary<RequestBytes> = fc.array(word, { minLength: 1, maxLength: 4 }).map((parts) => ({
  bytes: `POST /b HTTP/1.1\r\n${HOST}Transfer-Encoding: chunked\r\n\r\n${parts.map((part) => `${part.length.toString(16)}\r\n${part}\r\n`).join('')}0\r\n\r\n`,
  status: 201,
  body: `post ${parts.join('')}`,
}));

export function httpRandomContract(driver: HttpDriver): void {
  const { can, start, open, ask } = httpHarness(driver);
  const routes = routesOf(can('pipeline_waits'));
  // With other drivers, a chunked body ends its connection.
  const request = can('exact_chunks') ? fc.oneof({ weight: 3, arbitrary: plain }, chunked) : plain;

  test('a pipeline is answered in order, wherever its bytes are cut', async () => {
    // All requests may wait together: a chunked body counts with its largest buffer size.
    const server = await start(routes, { bodyBytesMax: 1024 * 1024 });
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { minLength: 1, maxLength: 8 }),
        fc.array(fc.nat({ max: 2000 }), { maxLength: 6 }),
        async (asked, cuts) => {
          const bytes = asked.map((one) => one.bytes).join('');
          const places = [0, ...cuts.map((cut) => cut % bytes.length), bytes.length].sort((a, b) => a - b);
          const client = await open(server);
          for (let i = 1; i < places.length; i++) {
            client.send(bytes.slice(places[i - 1], places[i]));
            await new Promise((resolve) => setImmediate(resolve));
          }
          for (const one of asked) {
            const answer = await client.answer();
            expect([answer.status, answer.body.toString()]).toEqual([one.status, one.body]);
          }
          client.close();
        },
      ),
      { numRuns: runs(60) },
    );
    await expect.poll(() => server.inFlight()).toBe(0);
  });

  test('requests with corrupted bytes are answered or cut off, and never affect the next client', async () => {
    const server = await start(routes, { requestTimeoutMs: 150 });
    const spoil = fc.record({
      at: fc.nat(),
      byte: fc.integer({ min: 0, max: 255 }),
      how: fc.constantFrom('set', 'insert', 'cut'),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(request, { minLength: 1, maxLength: 3 }),
        fc.array(spoil, { minLength: 1, maxLength: 4 }),
        async (asked, spoils) => {
          let bytes = Buffer.from(asked.map((one) => one.bytes).join(''), 'latin1');
          for (const { at, byte, how } of spoils) {
            const place = at % bytes.length;
            if (how === 'set') bytes[place] = byte;
            else if (how === 'insert')
              bytes = Buffer.concat([bytes.subarray(0, place), Buffer.of(byte), bytes.subarray(place)]);
            else bytes = Buffer.concat([bytes.subarray(0, place), bytes.subarray(place + 1)]);
          }
          const client = await open(server);
          client.send(bytes);
          client.socket.end();
          await client.closed();
          client.close();
        },
      ),
      { numRuns: runs(150) },
    );
    // The timeout for the damaged requests can also end a valid client on a machine that pauses.
    let next = await ask(server, get('/a/alive'));
    while (next.status === 408) next = await ask(server, get('/a/alive'));
    expect(next.body.toString()).toBe('get alive');
    await expect.poll(() => server.inFlight()).toBe(0);
  });
}
