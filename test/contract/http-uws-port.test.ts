/** A port has one owner, which can bind it again immediately after closing. The uWebSockets.js
 *  backend guarantees neither by itself. */
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import type { HttpServer } from '../../src/io/http/port.ts';
import { fastestDriver } from '../http-driver.ts';

const listen = (port: number): Promise<HttpServer> =>
  fastestDriver.listen({
    host: '127.0.0.1',
    port,
    routes: [{ method: 'GET', path: '/', handler: () => ({ status: 200, body: 'here' }) }],
    bodyBytesMax: 1024,
    headerBytesMax: 4096,
    requestTimeoutMs: 30_000,
    keepAliveTimeoutMs: 30_000,
    log: silentLogger,
  });

it('a port that is served is refused to a second server', async () => {
  const first = await listen(0);
  try {
    await expect(listen(first.port)).rejects.toMatchObject({ code: 'busy_port' });
    // With an explicit port number, the backend would share the port.
    const again = await listen(0);
    await again.drain(1000);
    const given = await listen(again.port);
    await expect(listen(given.port)).rejects.toMatchObject({ code: 'busy_port' });
    await given.drain(1000);
  } finally {
    await first.drain(1000);
  }
});

it('a port whose connections the server has just ended is free for its next server', async () => {
  const first = await listen(0);
  const socket = connect(first.port, '127.0.0.1');
  await new Promise((resolve) => {
    socket.once('data', resolve);
    socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n');
  });
  const ended = new Promise((resolve) => socket.once('close', resolve));
  await first.drain(1000);
  await ended;
  const next = await listen(first.port);
  expect(next.port).toBe(first.port);
  await next.drain(1000);
});
