/** Contract of every HTTP driver with many simultaneous clients, some of them slow or hostile. The
 *  clients run in a separate process. */
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from 'vitest';
import type { HttpDriver, HttpRoute, HttpServer, HttpServerOptions } from '../../src/io/http/port.ts';
import { isFull } from '../tier.ts';
import { arrival, turns, until } from '../wait.ts';
import { get, httpHarness, post } from './http-harness.ts';

const WORKER = fileURLToPath(new URL('http-crowd.worker.mjs', import.meta.url));
const LARGE = Buffer.alloc(256 * 1024, 'l');
const MIB = 1024 * 1024;

/** Number of sockets: `count`, or fewer when the machine limits the files of a process. */
function openable(count: number): number {
  const limit = execFileSync('/bin/sh', ['-c', 'ulimit -Hn'], { encoding: 'utf8' }).trim();
  return limit === 'unlimited' ? count : Math.min(count, Number(limit) - 500);
}

/** Child process whose messages can be awaited one by one. */
class Crowd {
  private readonly child: ChildProcess;
  private readonly messages: Array<Record<string, number>> = [];
  private wake = (): void => {};

  constructor(task: string, server: HttpServer, more: Record<string, number>) {
    this.child = fork(WORKER, [], { execArgv: [] });
    this.child.on('message', (message) => {
      this.messages.push(message as Record<string, number>);
      this.wake();
    });
    this.child.send({ task, port: server.port, ...more });
  }

  async next(): Promise<Record<string, number>> {
    while (this.messages.length === 0) {
      const message = new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      await arrival('message of the crowd', message, () => this.child.exitCode ?? 'a process that runs');
    }
    return this.messages.shift() as Record<string, number>;
  }

  leave(): void {
    this.child.send('leave');
  }

  end(): void {
    this.child.kill('SIGKILL');
  }
}

export function httpCrowdContract(driver: HttpDriver): void {
  const { can, start: begin, ask, barrier } = httpHarness(driver);
  const crowds: Crowd[] = [];
  let handled = 0;
  let gone = 0;
  let large = 0;

  afterEach(() => {
    for (const crowd of crowds.splice(0)) crowd.end();
    handled = 0;
    gone = 0;
    large = 0;
  });

  /** Starts a server with timeouts that clients on a loaded machine do not exceed. */
  const start = (over: Partial<HttpServerOptions> = {}): Promise<HttpServer> =>
    begin(routes, { keepAliveTimeoutMs: 120_000, requestTimeoutMs: 120_000, ...over });

  function come(task: string, server: HttpServer, more: Record<string, number>): Crowd {
    const crowd = new Crowd(task, server, more);
    crowds.push(crowd);
    return crowd;
  }

  const routes: readonly HttpRoute[] = [
    { method: 'GET', path: '/n/{n}', handler: ({ params }) => ({ status: 200, body: `${params['n']}` }) },
    {
      method: 'GET',
      path: '/slow/{n}',
      handler: async ({ params, signal }) => {
        await turns(5);
        if (signal.aborted) gone++;
        else handled++;
        return { status: 200, body: `${params['n']}` };
      },
    },
    { method: 'POST', path: '/echo', handler: ({ body }) => ({ status: 200, body: `${body.length}` }) },
    {
      method: 'GET',
      path: '/large',
      handler: () => {
        large++;
        return { status: 200, body: LARGE };
      },
    },
  ];

  const alive = async (server: HttpServer): Promise<void> => {
    for (let n = 0; n < 20; n++) {
      expect((await ask(server, get(`/n/${n}`))).body.toString()).toBe(`${n}`);
      expect((await ask(server, post('/echo', 'abc'))).body.toString()).toBe('3');
    }
  };

  describe('many clients', () => {
    test('thousands of idle connections cost little memory, delay no other client, and end with a drain', async () => {
      const server = await start();
      const count = openable(isFull ? 10_000 : 2_000);
      const before = process.memoryUsage.rss();
      const crowd = come('idle', server, { count });
      const { connected, opened, wrong } = await crowd.next();
      expect(wrong).toBe(0);
      expect(connected).toBe(count);
      // A backend with its own timeout closes the first connections while a slow machine still
      // opens the last ones.
      if (can('own_timeouts')) expect(opened).toBe(count);
      await alive(server);
      expect(process.memoryUsage.rss() - before).toBeLessThan(400 * MIB);
      await server.drain(10_000);
      expect(await crowd.next()).toEqual({ ended: count });
    });

    test('1,000 concurrent clients get their own answers', async () => {
      const server = await start();
      expect(await come('crowd', server, { count: 1000, rounds: 10 }).next()).toEqual({ right: 10_000 });
      await expect.poll(() => server.inFlight()).toBe(0);
    });

    test('a drain under load gives every handled request its answer', async () => {
      const server = await start();
      const crowd = come('hammer', server, { count: 100 });
      await crowd.next();
      await expect.poll(() => handled).toBeGreaterThan(200);
      await server.drain(20_000);
      const { answered, wrong } = await crowd.next();
      expect({ answered, wrong, gone, inFlight: server.inFlight() }).toEqual({
        answered: handled,
        wrong: 0,
        gone: 0,
        inFlight: 0,
      });
    });

    test('200 bodies that arrive byte by byte are aborted one by one, and no other client waits', async () => {
      // The timeout does not hit other clients on a machine that pauses for a moment.
      const server = await start({ requestTimeoutMs: 6000 });
      const crowd = come('drip', server, { count: 200 });
      await crowd.next();
      await alive(server);
      const { late, ended } = await crowd.next();
      expect(ended).toBe(200);
      if (can('refusal_arrives')) expect(late).toBe(200);
      await expect.poll(() => server.inFlight()).toBe(0);
    });

    test('300 half-closed connections count as closed', async () => {
      const server = await start();
      expect(await come('halfClosed', server, { count: 300 }).next()).toEqual({ ended: 300 });
      await expect.poll(() => server.inFlight()).toBe(0);
      await alive(server);
    });

    test('40 endless uploads are cut off and never held in memory', async () => {
      const server = await start();
      const before = process.memoryUsage.rss();
      const { ended, sent } = await come('upload', server, { count: 40 }).next();
      expect(ended).toBe(40);
      expect(sent).toBeLessThan(64 * MIB);
      expect(process.memoryUsage.rss() - before).toBeLessThan(200 * MIB);
      expect(server.inFlight()).toBe(0);
      await alive(server);
    });

    test('20 clients that send requests and never read fill no memory', async () => {
      const server = await start();
      const before = process.memoryUsage.rss();
      const crowd = come('deaf', server, { count: 20 });
      await crowd.next();
      await until('a server that answers none of the clients any more', async () => {
        const before = large;
        for (let round = 0; round < 20; round++) await barrier(server);
        return large > 0 && large === before;
      });
      crowd.leave();
      await crowd.next();
      // The whole answers would be 2.5 GB.
      expect(process.memoryUsage.rss() - before).toBeLessThan(300 * MIB);
      await expect.poll(() => server.inFlight()).toBe(0);
      await alive(server);
    });
  });
}
