/** The flags of `millrace orders` that set limits of its gRPC server. */
import { connect, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { serveGrpc } from '../../../../src/bin/orders/grpc.ts';
import { silentLogger } from '../../../../src/core/log.ts';
import { Metrics } from '../../../../src/core/metrics.ts';

const closers: Array<() => unknown> = [];
afterEach(async () => {
  for (const close of closers.splice(0)) await close();
});

it.each([
  ['total', { 'connections-max': 2, 'connections-per-address': 0 }],
  ['address', { 'connections-max': 100, 'connections-per-address': 2 }],
])('a gRPC connection above the limit that a flag gives (%s) is closed and counted', async (limit, over) => {
  const metrics = new Metrics();
  const context = {
    settings: { listen: '127.0.0.1:0', grpc: 'net', 'drain-timeout': 1000, ...over },
    ...{ metrics, log: silentLogger, drain: new AbortController().signal },
    ...{ say: () => undefined, isReady: async () => true },
    onClose: (close: () => unknown) => void closers.push(close),
  } as unknown as Parameters<typeof serveGrpc>[0];
  const parts = { orders: () => undefined, requestId: () => 'request', gate: undefined };
  const server = await serveGrpc(context, parts);
  const open = (): Promise<Socket> =>
    new Promise((resolve, reject) => {
      const socket = connect(server?.port ?? 0, '127.0.0.1', () => resolve(socket));
      socket.once('error', reject);
      closers.unshift(() => socket.destroy());
    });
  for (let i = 0; i < 2; i++) (await open()).on('error', () => {});
  await expect.poll(() => server?.connections()).toBe(2);
  const above = await open();
  above.resume();
  await new Promise((resolve) => above.once('close', resolve));
  const refused = metrics.counter('orders_grpc_connections_refused_total', '', ['limit']);
  expect(refused.value(refused.series(limit))).toBe(1);
  expect(server?.connections()).toBe(2);
});
