/** Contract of every HTTP driver for connections: keep-alive, pipelining, and clients that
 *  disconnect or are slow. */
import { describe, expect, test } from 'vitest';
import type { HttpDriver } from '../../src/io/http/port.ts';
import { turns, until } from '../wait.ts';
import { gate, get, HOST, httpHarness, KERNEL_BUFFERS_BYTES, post, ROUTES } from './http-harness.ts';

export function httpConnectionsContract(driver: HttpDriver): void {
  const { can, start, open, barrier, standstill } = httpHarness(driver);

  describe('connections', () => {
    test('a kept-alive connection serves many requests, and Connection: close ends it', async () => {
      const server = await start(ROUTES);
      const client = await open(server);
      for (let i = 0; i < 20; i++)
        expect((await client.send(get('/subjects/latest')).answer()).status).toBe(200);
      await client.send(get('/', 'Connection: close\r\n')).answer();
      await client.closed();
      const listed = await open(server);
      const last = await listed.send(get('/', 'Connection: keep-alive, Close\r\n')).answer();
      expect(last.headers['connection']).toBe('close');
      await listed.closed();
      if (!can('rare_forms')) return;
      const old = await open(server);
      expect((await old.send('GET / HTTP/1.0\r\n\r\n').answer()).status).toBe(200);
      await old.closed();
    });

    test('requests pipelined after a waiting request are answered after it, or none is', async () => {
      const seen: string[] = [];
      const door = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/now/{n}',
          handler: (request) => ({ status: 200, body: `${request.params['n']}` }),
        },
        {
          method: 'GET',
          path: '/wait/{n}',
          handler: async (request) => {
            await door.opened;
            seen.push(`${request.params['n']} ${request.signal.aborted ? 'gone' : 'here'}`);
            return { status: 200, body: `${request.params['n']}` };
          },
        },
      ]);
      const client = await open(server);
      client.send(['/now/0', '/now/1', '/wait/2', '/now/3', '/wait/4'].map((path) => get(path)).join(''));
      await barrier(server);
      door.open();
      const bodies: string[] = [];
      for (let i = 0; i < 5; i++) {
        const answer = await client.outcome();
        if (typeof answer === 'string') break;
        bodies.push(answer.body.toString());
      }
      if (can('pipeline_waits')) {
        expect(bodies).toEqual(['0', '1', '2', '3', '4']);
        return;
      }
      expect(bodies).toEqual(['0', '1'].slice(0, bodies.length));
      expect(await client.closed()).toBe('');
      await expect.poll(() => seen).toEqual(['2 gone']);
      expect(server.inFlight()).toBe(0);
    });

    test('bytes after Connection: close are neither handled nor answered', async () => {
      let handled = 0;
      const server = await start([
        {
          method: 'GET',
          path: '/n',
          handler: async () => {
            handled++;
            if (can('pipeline_waits')) await turns(10);
            return { status: 200, body: 'x' };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/n') + get('/n', 'Connection: close\r\n') + get('/n') + get('/n'));
      if (can('pipeline_waits')) {
        expect((await client.answer()).status).toBe(200);
        expect((await client.answer()).headers['connection']).toBe('close');
      }
      expect(await client.closed()).toBe('');
      expect(handled).toBe(2);
      expect(server.inFlight()).toBe(0);
    });

    test('a handler that outlasts the request and keep-alive times is answered, and its connection ends when idle', async () => {
      const door = gate();
      const server = await start(
        [
          {
            method: 'GET',
            path: '/slow',
            handler: async () => {
              await door.opened;
              return { status: 200, body: 'late' };
            },
          },
          { method: 'POST', path: '/echo', handler: () => ({ status: 200 }) },
        ],
        { keepAliveTimeoutMs: 2000, requestTimeoutMs: 2000 },
      );
      const client = await open(server);
      client.send(get('/slow'));
      await until('a request in flight', () => server.inFlight() === 1);
      // Both timeouts have passed, proven by a request and an idle connection that began later.
      const half = (await open(server)).send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 10\r\n\r\nhalf`);
      const idle = await open(server);
      await idle.send(get('/nowhere')).answer();
      expect((await half.answer()).status).toBe(408);
      if (can('own_timeouts')) await idle.closed();
      door.open();
      expect((await client.answer()).body.toString()).toBe('late');
      expect((await client.send(get('/slow')).answer()).body.toString()).toBe('late');
      if (can('own_timeouts')) await client.closed();
    });

    test('pipelined requests are answered in order, however long each handler takes', async () => {
      const waits = can('pipeline_waits') ? [20, 0, 10, 0] : [0, 0, 0, 0];
      const server = await start([
        {
          method: 'POST',
          path: '/wait/{n}',
          handler: async (request) => {
            const slowness = waits[Number(request.params['n'])] as number;
            if (slowness > 0) await turns(slowness);
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

    test('garbage after pipelined requests is refused after their answers, then the connection closes', async () => {
      const server = await start([
        {
          method: 'GET',
          path: '/wait',
          handler: async () => {
            if (can('pipeline_waits')) await turns(10);
            return { status: 200, body: 'good' };
          },
        },
      ]);
      const client = await open(server);
      client.send(`${get('/wait')}${get('/wait')}\x00\x01 garbage\r\n\r\n`);
      expect([await client.answer(), await client.answer()].map((one) => one.status)).toEqual([200, 200]);
      if (can('malformed_answered')) {
        expect((await client.answer()).status).toBe(400);
        await client.closed();
      }
      expect(client.unread).toBe('');
      expect(server.inFlight()).toBe(0);
    });

    test('a thousand short requests after a waiting request are all answered in order, or the connection closes', async () => {
      const asked = 1000;
      let handled = 0;
      const first = gate();
      const begun = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/n',
          handler: async () => {
            begun.open();
            await first.opened;
            return { status: 200, body: `${handled++}` };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/n').repeat(asked));
      await begun.opened;
      await standstill(server, client);
      // A waiting request is not in flight.
      expect(server.inFlight()).toBe(can('pipeline_waits') ? 1 : 0);
      first.open();
      if (!can('pipeline_waits')) {
        expect(await client.closed()).toBe('');
        return;
      }
      const seen: string[] = [];
      while (seen.length < asked) {
        const answer = await client.answer();
        seen.push(`${answer.status} ${answer.body}`);
      }
      expect(seen).toEqual(Array.from({ length: asked }, (_, index) => `200 ${index}`));
      expect(handled).toBe(asked);
      expect((await client.send(get('/n')).answer()).status).toBe(200);
    });

    test('a flood of pipelined requests is bounded, with answers in order to the last one or to a 503 that closes', async () => {
      const asked = 20_000;
      let handled = 0;
      const door = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/n',
          handler: async () => {
            await door.opened;
            return { status: 200, body: `${handled++}` };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/n').repeat(asked));
      await standstill(server, client);
      door.open();
      const seen: string[] = [];
      let last: number | string = 200;
      while (seen.length < asked && last === 200) {
        const answer = await client.outcome();
        last = typeof answer === 'string' ? answer : answer.status;
        if (typeof answer === 'object' && last === 200) seen.push(answer.body.toString());
      }
      expect(seen).toEqual(seen.map((_, index) => `${index}`));
      if (seen.length === asked) return;
      if (can('pipeline_waits')) {
        expect(seen.length).toBeGreaterThan(999);
        expect(last).toBe(503);
      }
      await client.closed();
      expect(server.inFlight()).toBe(0);
    });

    test('the server stops reading a flood after a slow request', async () => {
      const door = gate();
      const server = await start([
        {
          method: 'GET',
          path: '/n',
          handler: async () => {
            await door.opened;
            return { status: 200, body: 'x' };
          },
        },
      ]);
      const client = await open(server);
      client.feed(Buffer.from(get('/n').repeat(1000)));
      await standstill(server, client);
      door.open();
      await client.disconnected();
      expect(client.bytesSent).toBeLessThan(KERNEL_BUFFERS_BYTES);
      expect(server.inFlight()).toBe(0);
    });

    test('a client that disconnects aborts the signal of its request in flight', async () => {
      const aborted = gate();
      const begun = gate();
      let address = '';
      const server = await start([
        {
          method: 'GET',
          path: '/long',
          handler: async (request) => {
            expect(request.signal.aborted).toBe(false);
            request.signal.addEventListener('abort', () => aborted.open());
            begun.open();
            await aborted.opened;
            address = request.remoteAddress;
            return { status: 200, body: 'unread' };
          },
        },
      ]);
      const client = await open(server);
      client.send(get('/long'));
      await begun.opened;
      expect(server.inFlight()).toBe(1);
      client.close();
      await until('an end of the request', () => address !== '' && server.inFlight() === 0);
      expect(address).toBe('127.0.0.1');
    });

    test('a request that stays incomplete is answered with 408 and closed', async () => {
      const server = await start(ROUTES, { requestTimeoutMs: 100 });
      const head = await open(server);
      head.send('GET / HTTP/1.1\r\nHost: te');
      if (can('own_timeouts')) {
        expect((await head.answer()).status).toBe(408);
        await head.closed();
      }
      const body = await open(server);
      body.send(`POST /echo HTTP/1.1\r\n${HOST}Content-Length: 10\r\n\r\nhalf`);
      expect((await body.answer()).status).toBe(408);
      await body.closed();
      expect(server.inFlight()).toBe(0);
    });

    test('a client that never reads its answer loses the connection', async () => {
      let begin = (): void => {};
      const begun = new Promise<void>((resolve) => {
        begin = resolve;
      });
      const server = await start(
        [
          {
            method: 'GET',
            path: '/big',
            handler: () => {
              begin();
              return { status: 200, body: Buffer.alloc(32 * 1024 * 1024) };
            },
          },
        ],
        {
          requestTimeoutMs: 200,
        },
      );
      const client = await open(server);
      client.socket.pause();
      client.send(get('/big'));
      await begun;
      expect(server.inFlight()).toBe(1);
      await expect.poll(() => server.inFlight()).toBe(0);
    });
  });
}
