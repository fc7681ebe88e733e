/** Limits of the client against a server that is not a registry: bounded time and memory. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { fetchTransport } from '../../../src/serde/transport.ts';
import { pause, realClock } from '../../wait.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function request(listener: RequestListener, timeoutMs: number) {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  servers.push(server);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return fetchTransport({ url, timeoutMs, clock: realClock }).request('GET', '/subjects');
}

it('the client stops reading an endless answer at its limit and closes the connection', async () => {
  let closed: () => void = () => {};
  const hungUp = new Promise<void>((resolve) => {
    closed = resolve;
  });
  let wanted = 0;
  const piece = '1,'.repeat(1 << 19);
  const listener: RequestListener = (_, response) => {
    response.on('close', closed);
    response.writeHead(200);
    // The server sends only as fast as the client reads, so this counts the bytes read.
    const fill = (): void => {
      do wanted += piece.length;
      while (response.write(piece));
    };
    response.on('drain', fill);
    fill();
  };
  await expect(request(listener, 60_000)).rejects.toMatchObject({
    code: 'registry_protocol',
    message: expect.stringMatching(/longer than 16777216 bytes/),
  });
  await hungUp;
  expect(wanted).toBeLessThan(32 << 20);
});

it('the client times out on an answer that arrives a byte at a time', async () => {
  const listener: RequestListener = async (_, response) => {
    response.writeHead(200);
    while (!response.destroyed) {
      response.write('1');
      await pause(5);
    }
  };
  await expect(request(listener, 300)).rejects.toMatchObject({
    code: 'registry_unavailable',
    message: expect.stringMatching(/no whole answer within 300 ms/),
  });
});

it('the client reads characters that are split between chunks, and skips a leading byte order mark', async () => {
  const bytes = Buffer.from('\ufeff{"a":"é€😀"}');
  const listener: RequestListener = async (_, response) => {
    for (const byte of bytes) {
      response.write(Buffer.of(byte));
      await pause(1);
    }
    response.end();
  };
  expect(await request(listener, 60_000)).toEqual({ status: 200, body: '{"a":"é€😀"}' });
});

it('the client reads a long answer completely', async () => {
  const text = 'x'.repeat(3_000_000);
  expect((await request((_, response) => response.end(text), 60_000)).body).toBe(text);
});
