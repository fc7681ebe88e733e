/** The load generator with correct and faulty servers, and the bench of the HTTP backends in smoke
 *  mode. */
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { bench } from '../../../bench/http.ts';
import { driveLoad, type LoadPlan, NUMBER } from '../../../bench/http-load.ts';
import { pause, until } from '../../wait.ts';
import { smokeContext } from './context.ts';

const closers: Array<() => void> = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closers.push(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const plan = (url: string, over: Partial<LoadPlan> = {}): LoadPlan => ({
  url,
  connections: 4,
  requests: [{ method: 'GET', path: '/' }],
  warmupMs: 20,
  durationMs: 300,
  ...over,
});

describe('load generator', () => {
  test('the load generator sends numbered requests in turn and counts the answers by status', async () => {
    const seen: string[] = [];
    const server = createHttpServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString('utf8');
        seen.push(`${request.method} ${request.url} ${request.headers['x-a']} ${body}`);
        response.writeHead(request.method === 'POST' ? 201 : 200, { 'content-length': '4' });
        response.end(request.method);
      });
    });
    const report = await driveLoad(
      plan(await listening(server), {
        requests: [
          { method: 'POST', path: `/things/${NUMBER}`, headers: { 'X-A': 'b' }, body: `ß${NUMBER}` },
          { method: 'POST', path: '/fixed', body: '' },
        ],
        countMax: 50,
        durationMs: 20_000,
        firstNumber: 100,
      }),
    );
    expect(report.answered).toBe(50);
    expect(report.statuses).toEqual({ 201: 50 });
    expect(report).toMatchObject({ failures: 0, unsent: 0, firstBodies: ['POST', 'POST'] });
    expect(seen[0]).toBe('POST /things/100 b ß100');
    expect(seen).toContain('POST /fixed undefined ');
    expect(new Set(seen.filter((one) => one.includes('/things/'))).size).toBe(
      seen.filter((one) => one.includes('/things/')).length,
    );
    expect(report.nextNumber).toBeGreaterThanOrEqual(150);
    const { p50, p90, p99, p999, max } = report.latencyUs;
    expect([p50, p90, p99, p999, max]).toEqual([p50, p90, p99, p999, max].sort((a, b) => a - b));
    expect(p50).toBeGreaterThan(0);
  });

  test('the open-loop model keeps its rate, so a stalled server raises the latency', async () => {
    let asked = 0;
    let stall = Promise.resolve();
    const server = createHttpServer((_request, response) => {
      // The server stalls for a part of the run; requests that fall due meanwhile wait.
      if (++asked === 100) stall = pause(300);
      void stall.then(() => response.end('ok'));
    });
    const report = await driveLoad(
      plan(await listening(server), {
        ratePerSecond: 200,
        countMax: 300,
        durationMs: 60_000,
        connections: 2,
      }),
    );
    expect(report.answered + report.unsent).toBeGreaterThan(200);
    expect(report.latencyUs.max).toBeGreaterThan(100_000);
    expect(report.latencyUs.max).toBeGreaterThan(report.latencyUs.p50);
  });

  test('a server that closes the connection or sends extra bytes counts as a failure each time', async () => {
    for (const answer of ['', 'HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxy']) {
      const server = createServer((socket) => {
        socket.on('error', () => {});
        socket.once('data', () => socket.end(answer));
      });
      const report = await driveLoad(plan(await listening(server)));
      expect(report.failures).toBeGreaterThan(0);
      expect(report.answered).toBe(0);
    }
  });

  test('an aborted load ends its process', async () => {
    let asked = 0;
    const server = createHttpServer((_request, response) => {
      asked++;
      response.end('ok');
    });
    const abort = new AbortController();
    const load = driveLoad(plan(await listening(server), { durationMs: 60_000 }), abort.signal);
    const ended = expect(load).rejects.toThrow('without a report');
    await until('a first request', () => asked > 0);
    abort.abort();
    await ended;
  });
});

test('the HTTP bench compares both backends with their raw libraries, and our parser with node:http', async () => {
  const said: string[] = [];
  const results = await bench.run(smokeContext({ say: (line) => void said.push(line) }));
  // Without a binary of uWebSockets.js, one line reports so, and it is not measured.
  const hasUws = said[0]?.startsWith('uWebSockets.js:') === true;
  expect(said).toHaveLength(hasUws ? 4 : 3);
  const rows = (name: string): [string, string][] => [
    [`${name}, empty handler`, `bare ${name}`],
    [`${name}, 10000/s, p50`, `bare ${name}`],
    [`${name}, 10000/s, p99`, `bare ${name}`],
  ];
  expect(results.map((one) => [one.metric, one.against])).toEqual([
    ...(hasUws ? [...rows('uWebSockets.js'), ['node:net, lookups', 'uWebSockets.js']] : []),
    ...rows('node:http'),
    ['node:net, POST at 5000/s, CPU a request', 'node:http'],
  ]);
  for (const one of results) expect(one.value).toBeGreaterThan(0);
});
