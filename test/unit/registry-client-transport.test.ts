/** What the client bears of a server that is no registry: it gives up in time, and in little memory. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { fetchTransport } from '../../src/registry/client/transport.ts';

const servers: Server[] = [];
const timers: NodeJS.Timeout[] = [];
afterEach(() => {
  for (const timer of timers.splice(0)) clearInterval(timer);
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

async function asked(listener: RequestListener, timeoutMs: number) {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  servers.push(server);
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return fetchTransport({ url, timeoutMs }).request('GET', '/subjects');
}

it('stops reading an answer without an end at the bound, and hangs up', async () => {
  let closed: () => void = () => {};
  const hungUp = new Promise<void>((resolve) => {
    closed = resolve;
  });
  let wanted = 0;
  const piece = '1,'.repeat(1 << 19);
  const listener: RequestListener = (_, response) => {
    response.on('close', closed);
    response.writeHead(200);
    const timer = setInterval(() => {
      // What is not taken is not made, so that this counts what the client took.
      if (!response.writableNeedDrain) wanted += piece.length;
      if (!response.writableNeedDrain) response.write(piece);
    }, 1);
    response.on('close', () => clearInterval(timer));
    timers.push(timer);
  };
  await expect(asked(listener, 60_000)).rejects.toMatchObject({
    code: 'registry_protocol',
    message: expect.stringMatching(/longer than 16777216 bytes/),
  });
  await hungUp;
  expect(wanted).toBeLessThan(32 << 20);
});

it('gives up in time on an answer that comes a byte at a time', async () => {
  const listener: RequestListener = (_, response) => {
    response.writeHead(200);
    timers.push(setInterval(() => response.write('1'), 5));
  };
  const start = performance.now();
  await expect(asked(listener, 300)).rejects.toMatchObject({
    code: 'registry_unavailable',
    message: expect.stringMatching(/no whole answer within 300 ms/),
  });
  expect(performance.now() - start).toBeLessThan(30_000);
});

it('reads characters that are cut between chunks, and a mark in front of them', async () => {
  const bytes = Buffer.from('\ufeff{"a":"é€😀"}');
  const listener: RequestListener = (_, response) => {
    let at = 0;
    const timer = setInterval(() => {
      if (at < bytes.length) response.write(bytes.subarray(at, ++at));
      else response.end();
    }, 1);
    timers.push(timer);
  };
  expect(await asked(listener, 60_000)).toEqual({ status: 200, body: '{"a":"é€😀"}' });
});

it('takes a long answer whole', async () => {
  const text = 'x'.repeat(3_000_000);
  expect((await asked((_, response) => response.end(text), 60_000)).body).toBe(text);
});
