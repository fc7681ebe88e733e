/** TCP proxy that fails on demand, between real sockets of this process. */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import type { Timers } from '../../../src/core/clock.ts';
import { TcpProxy } from '../../../src/devstack/proxy.ts';
import { VirtualClock } from '../../../src/sim/clock.ts';
import { realClock, until } from '../../wait.ts';

const open: Array<() => unknown> = [];
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close();
});

interface Echo {
  readonly server: Server;
  readonly sockets: Socket[];
  readonly received: Buffer[];
}

/** Server that returns what it gets. */
async function echo(): Promise<Echo> {
  const [sockets, received]: [Socket[], Buffer[]] = [[], []];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      received.push(bytes);
      socket.write(bytes);
    });
    socket.on('end', () => socket.end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  open.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { server, sockets, received };
}

interface Client {
  readonly socket: Socket;
  text(): string;
  /** Ending of the connection; undefined: it is open. */
  end(): 'end' | 'reset' | undefined;
}

function client(port: number): Client {
  const socket = connect({ port, host: '127.0.0.1' });
  open.push(() => socket.destroy());
  let [text, how]: [string, 'end' | 'reset' | undefined] = ['', undefined];
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
  });
  socket.on('error', () => {
    how = 'reset';
  });
  socket.on('end', () => {
    how ??= 'end';
  });
  return { socket, text: () => text, end: () => how };
}

interface World {
  readonly proxy: TcpProxy;
  readonly target: Echo;
}

async function world(clock: Timers = realClock): Promise<World> {
  const target = await echo();
  const { port } = target.server.address() as AddressInfo;
  const proxy = await TcpProxy.listen(clock, { host: '127.0.0.1', port });
  open.push(() => proxy.close());
  return { proxy, target };
}

describe('TCP proxy', () => {
  it('a healthy proxy forwards every byte in both directions and the end of each direction', async () => {
    const { proxy, target } = await world();
    const one = client(proxy.port);
    const sent = 'x'.repeat(5_000_000);
    one.socket.end(sent);
    await until('the whole echo and its end', () => one.end() === 'end');
    expect(one.text().length).toBe(sent.length);
    expect(Buffer.concat(target.received).length).toBe(sent.length);
    await until('a closed connection', () => proxy.connections === 0);
    expect(proxy.effects).toEqual({ cut: 0, delayed: 0, droppedBytes: 0 });
  });

  it('a cut resets open connections and new ones until it heals', async () => {
    const { proxy } = await world();
    const before = client(proxy.port);
    before.socket.write('a');
    await until('an echo', () => before.text() === 'a');
    proxy.cut();
    await until('a reset', () => before.end() === 'reset');
    const during = client(proxy.port);
    await until('a refusal', () => during.end() === 'reset');
    expect(proxy.effects.cut).toBe(2);
    expect(proxy.connections).toBe(0);
    proxy.heal();
    const after = client(proxy.port);
    after.socket.write('b');
    await until('an echo', () => after.text() === 'b');
  });

  it('a half-open link delivers requests, loses the answers, and resets the connection when it heals', async () => {
    const { proxy, target } = await world();
    const one = client(proxy.port);
    one.socket.write('a');
    await until('an echo', () => one.text() === 'a');
    const idle = client(proxy.port);
    await until('two connections', () => target.sockets.length === 2);
    proxy.halfOpen();
    one.socket.write('b');
    await until('a lost answer', () => proxy.effects.droppedBytes === 1);
    expect(Buffer.concat(target.received).toString()).toBe('ab');
    expect([one.text(), one.end()]).toEqual(['a', undefined]);
    proxy.heal();
    await until('a reset', () => one.end() === 'reset');
    // A connection that lost nothing works on.
    idle.socket.write('c');
    await until('an echo', () => idle.text() === 'c');
  });

  it('a delay holds bytes for its time and keeps their order when it ends', async () => {
    const clock = new VirtualClock();
    const { proxy, target } = await world(clock);
    proxy.delay(50);
    const one = client(proxy.port);
    one.socket.write('a');
    await until('a delayed part', () => proxy.effects.delayed === 1);
    await clock.advance(49);
    expect(target.received).toEqual([]);
    // The first part still waits, so the second one must too.
    proxy.heal();
    one.socket.write('b');
    await until('both parts at the proxy', () => one.socket.bytesWritten === 2 && clock.pending > 0);
    await clock.advance(1);
    await until('both parts', () => Buffer.concat(target.received).toString() === 'ab');
    await until('both echoes', () => one.text() === 'ab');
  });

  it('a proxy without a target refuses, and shows a target that does not listen as a reset', async () => {
    const proxy = await TcpProxy.listen(realClock);
    open.push(() => proxy.close());
    const one = client(proxy.port);
    await until('a refusal', () => one.end() === 'reset');
    const target = await echo();
    const { port } = target.server.address() as AddressInfo;
    target.server.close();
    await once(target.server, 'close');
    proxy.setTarget({ host: '127.0.0.1', port });
    const two = client(proxy.port);
    await until('a reset', () => two.end() === 'reset');
    expect(proxy.effects.cut).toBe(0);
  });

  it('a client that writes after the target has closed is reset', async () => {
    const { proxy, target } = await world();
    const one = client(proxy.port);
    one.socket.write('a');
    await until('an echo', () => one.text() === 'a');
    target.sockets[0]?.destroy();
    await until('a reset', () => {
      if (one.socket.writable) one.socket.write('b');
      return one.socket.destroyed;
    });
    await until('no connection', () => proxy.connections === 0);
  });

  it('the ports of the connections are those that the target sees', async () => {
    const { proxy, target } = await world();
    const one = client(proxy.port);
    one.socket.write('a');
    await until('an echo', () => one.text() === 'a');
    expect(proxy.targetSidePorts()).toEqual(target.sockets.map(({ remotePort }) => remotePort));
  });
});
