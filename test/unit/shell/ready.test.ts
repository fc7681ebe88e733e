/** The wait for readiness ends when the process has ended. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { ready } from '../../../src/shell/children/ready.ts';
import type { StartedCommand } from '../../../src/shell/children/started-command.ts';

it('the wait for readiness reports a process that ended, and returns the address of a ready one', async () => {
  let status = 503;
  const server = createServer((_, answer) => void answer.writeHead(status).end());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  let end = (_: { code: number; signal: null }): void => {};
  const child: StartedCommand = {
    pid: -1,
    logPath: 'its.log',
    ended: new Promise((resolve) => {
      end = resolve;
    }),
    address: async () => address,
    kill: () => {},
    stdout: () => '',
  };
  try {
    const waiting = ready('engine', child);
    end({ code: 3, signal: null });
    await expect(waiting).rejects.toThrow('engine ended before it was ready');
    status = 200;
    await expect(ready('engine', { ...child, ended: new Promise(() => {}) })).resolves.toBe(address);
  } finally {
    server.close();
  }
});
