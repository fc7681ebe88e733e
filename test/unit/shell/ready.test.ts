/** The wait for readiness ends when the process has ended. */
import { createServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { ready } from '../../../src/shell/children/ready.ts';
import type { StartedCommand } from '../../../src/shell/children/started-command.ts';

const childAt = (address: string): StartedCommand => ({
  pid: -1,
  logPath: 'its.log',
  ended: new Promise(() => {}),
  address: async () => address,
  kill: () => {},
  stdout: () => '',
});

it('the wait for readiness ends at its limit although the process never answers', async () => {
  const silent = createTcpServer();
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const { port } = silent.address() as AddressInfo;
  const sockets: Socket[] = [];
  silent.on('connection', (socket) => sockets.push(socket));
  try {
    await expect(ready('engine', childAt(`127.0.0.1:${port}`), 50)).rejects.toMatchObject({
      code: 'timeout',
      message: 'engine was not ready within 50 ms',
    });
    expect(sockets.length).toBeGreaterThan(0);
  } finally {
    for (const socket of sockets) socket.destroy();
    silent.close();
  }
});

it('the wait for readiness reports a process that ended, and returns the address of a ready one', async () => {
  let status = 503;
  const server = createServer((_, answer) => void answer.writeHead(status).end());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  let end = (_: { code: number; signal: null }): void => {};
  const child: StartedCommand = {
    ...childAt(address),
    ended: new Promise((resolve) => {
      end = resolve;
    }),
  };
  try {
    const waiting = ready('engine', child);
    end({ code: 3, signal: null });
    await expect(waiting).rejects.toThrow('engine ended before it was ready');
    status = 200;
    await expect(ready('engine', childAt(address))).resolves.toBe(address);
  } finally {
    server.close();
  }
});
