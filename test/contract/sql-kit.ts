/** Kit of the contracts of the SQL ports. */
import { randomInt } from 'node:crypto';
import net from 'node:net';
import { expect } from 'vitest';
import { MillraceError } from '../../src/core/errors.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { turns, until } from '../wait.ts';
import { gate } from './http-harness.ts';

export async function failure(work: Promise<unknown>): Promise<MillraceError> {
  try {
    await work;
  } catch (thrown) {
    expect(thrown).toBeInstanceOf(MillraceError);
    return thrown as MillraceError;
  }
  throw new Error('the call did not fail');
}

export interface HeldLock {
  /** Statement that returns one row of an empty text, and does not end before the lock is released.
   */
  readonly statement: string;
  /** Resolves when the server executes the statement `count` times. */
  waiting(count?: number): Promise<unknown>;
  release(): Promise<void>;
}

/** Holds an advisory lock in one transaction of `pool`, which needs a second connection for
 *  `waiting`. */
export async function heldLock(pool: SqlPool): Promise<HeldLock> {
  const key = randomInt(2 ** 31);
  const released = gate();
  const locked = gate();
  const holding = pool.transaction(async (session) => {
    await session.query(`SELECT pg_advisory_xact_lock(${key})`);
    locked.open();
    await released.opened;
  });
  await Promise.race([locked.opened, holding]);
  const waiters = `SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = ${key}`;
  return {
    statement: `SELECT pg_advisory_xact_lock(${key})`,
    waiting: (count = 1) =>
      until(
        'a statement that waits for the lock',
        async () => (await pool.query(waiters)).rows.length >= count,
      ),
    release() {
      released.open();
      return holding;
    },
  };
}

/** TCP proxy that can cut its connections, immediately or when the client sends a given text. */
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
      for (const [text, received] of listeners) if (chunk.includes(text)) received();
      if (cutOn !== undefined && chunk.includes(cutOn)) cutting = true;
    });
    outer.on('data', (chunk) => {
      // The server has answered, but the client does not receive the answer.
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
    /** Resolves when the client sends the text after this call. */
    received(text: string): Promise<void> {
      return new Promise((resolve) => {
        listeners.set(text, resolve);
      });
    },
    /** Cuts all connections; settles when this process, as a client, has read the ends. */
    async cutAll(): Promise<void> {
      for (const pair of pairs) for (const socket of pair) socket.destroy();
      // The kernel has the ends immediately; the next turns of the event loop read them.
      await turns(20);
    },
    close(): Promise<void> {
      return new Promise((resolve) => {
        server.close(() => resolve());
        for (const pair of pairs) for (const socket of pair) socket.destroy();
      });
    },
  };
}
