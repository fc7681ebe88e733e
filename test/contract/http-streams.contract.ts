/** Contract of every HTTP driver for answers without a known end. */
import { get as httpGet, type IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import type { HttpDriver, HttpRoute, HttpServer, HttpStream } from '../../src/io/http/port.ts';
import { until } from '../wait.ts';
import { get, httpHarness, KERNEL_BUFFERS_BYTES } from './http-harness.ts';

/** Route whose streams the test writes. */
function streamed() {
  const streams: { out: HttpStream; readonly events: string[]; refill?: () => void }[] = [];
  const route: HttpRoute = {
    method: 'GET',
    path: '/stream',
    handler: () => {
      const events: string[] = [];
      const stream = { events } as unknown as (typeof streams)[number];
      return {
        status: 200,
        headers: { 'content-type': 'text/event-stream', 'x-own': 'yes' },
        stream: {
          start: (out) => {
            events.push('start');
            stream.out = out;
            streams.push(stream);
          },
          writable: () => {
            events.push('writable');
            stream.refill?.();
          },
          closed: () => events.push('closed'),
        },
      };
    },
  };
  return { route, streams };
}

/** Opens a stream with a client of Node.js; `text` has what has arrived. */
async function follow(server: HttpServer) {
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    httpGet({ host: '127.0.0.1', port: server.port, path: '/stream', agent: false }, resolve).on(
      'error',
      reject,
    );
  });
  const state = { text: '', isOver: false };
  answer.setEncoding('utf8');
  answer.on('data', (chunk: string) => {
    state.text += chunk;
  });
  answer.on('error', () => {});
  answer.on('close', () => {
    state.isOver = true;
  });
  return { answer, state };
}

export function httpStreamsContract(driver: HttpDriver): void {
  const { start, open, ask } = httpHarness(driver);

  describe('streams', () => {
    test('a stream arrives as it is written, and its end ends the connection', async () => {
      const { route, streams } = streamed();
      const server = await start([route]);
      const opening = follow(server);
      const stream = await until('the start of the stream', () => streams[0]);
      expect(stream.out.write('first zażółć\n')).toBe(true);
      const { answer, state } = await opening;
      expect(answer.statusCode).toBe(200);
      expect(answer.headers).toMatchObject({ 'content-type': 'text/event-stream', 'x-own': 'yes' });
      expect(answer.headers['content-length']).toBeUndefined();
      await until('the first text', () => state.text === 'first zażółć\n');
      expect(server.inFlight()).toBe(1);
      stream.out.write('second');
      stream.out.end();
      await until('the end', () => state.isOver);
      expect(state.text).toBe('first zażółć\nsecond');
      expect(stream.events).toEqual(['start', 'closed']);
      expect(stream.out.write('after the end')).toBe(false);
      stream.out.end();
      await until('no request in flight', () => server.inFlight() === 0);
      expect(stream.events).toEqual(['start', 'closed']);
    });

    test('a stream is closed once when its client disconnects', async () => {
      const { route, streams } = streamed();
      const server = await start([route]);
      const opening = follow(server);
      const stream = await until('the start of the stream', () => streams[0]);
      stream.out.write('hello');
      const { answer } = await opening;
      answer.destroy();
      await until('the close', () => stream.events.includes('closed'));
      await until('no request in flight', () => server.inFlight() === 0);
      expect(stream.events).toEqual(['start', 'closed']);
    });

    test('a source hears when a slow client has taken its bytes', async () => {
      const { route, streams } = streamed();
      const server = await start([route]);
      const client = await open(server);
      client.socket.pause();
      client.send(get('/stream'));
      const stream = await until('the start of the stream', () => streams[0]);
      const piece = 'x'.repeat(64 * 1024);
      let sent = 0;
      while (stream.out.write(piece) && sent < 2 * KERNEL_BUFFERS_BYTES) sent += piece.length;
      expect(sent).toBeLessThan(2 * KERNEL_BUFFERS_BYTES);
      expect(stream.events).toEqual(['start']);
      client.socket.resume();
      await until('a client that reads', () => stream.events.includes('writable'));
      stream.out.end();
      await client.closed();
      expect(stream.events.at(-1)).toBe('closed');
    });

    test('a client that takes no bytes for the request timeout is disconnected', async () => {
      const { route, streams } = streamed();
      const server = await start([route], { requestTimeoutMs: 300 });
      const client = await open(server);
      client.socket.pause();
      client.send(get('/stream'));
      const stream = await until('the start of the stream', () => streams[0]);
      stream.refill = () => {
        while (stream.out.write('x'.repeat(64 * 1024)));
      };
      stream.refill();
      await until('the close', () => stream.events.includes('closed'));
      await until('no request in flight', () => server.inFlight() === 0);
    });

    test('a drain ends streams and then the server', async () => {
      const { route, streams } = streamed();
      const server = await start([route]);
      const opening = follow(server);
      const stream = await until('the start of the stream', () => streams[0]);
      stream.out.write('hello');
      const { state } = await opening;
      await server.drain(60_000);
      await until('the end', () => state.isOver);
      expect(stream.events).toEqual(['start', 'closed']);
    });

    test('a source that throws costs its stream alone', async () => {
      const { route, streams } = streamed();
      const failing: HttpRoute = {
        method: 'GET',
        path: '/fails',
        handler: () => ({
          status: 200,
          headers: { 'content-type': 'text/plain' },
          stream: {
            start: () => {
              throw new Error('a secret of the source');
            },
            writable: () => {},
            closed: () => {},
          },
        }),
      };
      const server = await start([route, failing]);
      const client = await open(server);
      client.send(get('/fails'));
      await client.closed();
      const opening = follow(server);
      const stream = await until('the start of the stream', () => streams[0]);
      stream.out.end();
      await opening;
    });

    test('HEAD gets the head of a stream, which never starts', async () => {
      const { route, streams } = streamed();
      const server = await start([route]);
      const answer = await ask(server, get('/stream').replace('GET', 'HEAD'), { head: true });
      expect(answer.status).toBe(200);
      expect(answer.headers['x-own']).toBe('yes');
      expect(streams).toEqual([]);
    });
  });
}
