/** The package's client with two bounds that it does not have: a server that is gone without a word is noticed while nothing is
 *  asked of it, and a goodbye is not waited for without an end. */
import type { Socket } from 'node:net';
import pg from 'pg';

/** Of a connection on which nothing is under way: asked after this long whether the other side is there. */
const KEEPALIVE_AFTER_MS = 10_000;
/** How long a server may take to hang up. */
const GOODBYE_MS = 1000;

export const KEEPALIVE = { keepAlive: true, keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS } as const;

/** Which `pg` does not name in its types. */
export function socketOf(client: pg.ClientBase): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

export class PgClient extends pg.Client {
  override end(): Promise<void>;
  override end(callback: (error: Error) => void): void;
  override end(callback?: (error: Error) => void): unknown {
    const socket = socketOf(this);
    const giveUp = setTimeout(() => socket.destroy(), GOODBYE_MS);
    // The socket itself keeps the process alive as long as it has to.
    giveUp.unref();
    socket.once('close', () => clearTimeout(giveUp));
    return callback === undefined ? super.end() : super.end(callback);
  }
}
