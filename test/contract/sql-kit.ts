/** What the contracts of the SQL ports are tested with. */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';

export async function failure(work: Promise<unknown>): Promise<MillraceError> {
  try {
    await work;
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(MillraceError);
    return thrown as MillraceError;
  }
  throw new Error('it did not fail');
}

/** A TCP proxy that can cut its connections, at once or when the client sends bytes that hold a given text. */
export async function cuttingProxy(target: URL) {
  let cutOn: string | undefined;
  const listeners = new Map<string, () => void>();
  const pairs = new Set<[net.Socket, net.Socket]>();
  const server = net.createServer((inner) => {
    const outer = net.connect(Number(target.port), target.hostname);
    const pair: [net.Socket, net.Socket] = [inner, outer];
    pairs.add(pair);
    let cutting = false;
    inner.on('data', (chunk) => {
      outer.write(chunk);
      for (const [text, heard] of listeners) if (chunk.includes(text)) heard();
      if (cutOn !== undefined && chunk.includes(cutOn)) cutting = true;
    });
    outer.on('data', (chunk) => {
      // The server has answered, the client never hears it.
      if (cutting) inner.destroy();
      else inner.write(chunk);
    });
    for (const socket of pair) {
      socket.on('error', () => {});
      socket.on('close', () => {
        for (const other of pair) other.destroy();
        pairs.delete(pair);
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as net.AddressInfo).port);
  return {
    url: url.toString(),
    cutOn(text: string | undefined): void {
      cutOn = text;
    },
    /** Settles when the client sends bytes that hold the text from now on. */
    heard(text: string): Promise<void> {
      return new Promise((resolve) => {
        listeners.set(text, resolve);
      });
    },
    /** Settles when this process has read the ends, where it is the client. */
    async cutAll(): Promise<void> {
      for (const pair of pairs) for (const socket of pair) socket.destroy();
      await sleep(50);
      // Of one turn, timers come first, then what was to be read, then this.
      await new Promise((resolve) => setImmediate(resolve));
    },
    close(): Promise<void> {
      return new Promise((resolve) => {
        server.close(() => resolve());
        for (const pair of pairs) for (const socket of pair) socket.destroy();
      });
    },
  };
}
