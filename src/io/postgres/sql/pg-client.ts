/** pg.Client with three additions: TCP keepalive notices a server that vanished while no statement
 *  is in flight, the wait for the end of a session has a timeout, and a session that the server
 *  ends does not end the process. */
import type { Socket } from 'node:net';
import pg from 'pg';

/** Idle time of a connection after which TCP keepalive probes the server. */
const KEEPALIVE_AFTER_MS = 10_000;
/** Time that a server may take to close an ended session. */
const GOODBYE_MS = 1000;

export const KEEPALIVE = { keepAlive: true, keepAliveInitialDelayMillis: KEEPALIVE_AFTER_MS } as const;

/** Socket of a client; the types of `pg` do not declare it. */
export function socketOf(client: pg.ClientBase): Socket {
  return (client as unknown as { readonly connection: { readonly stream: Socket } }).connection.stream;
}

export class PgClient extends pg.Client {
  constructor(config?: pg.ClientConfig) {
    super(config);
    // An error event without a listener is thrown, and a pool has no listener at the moment in
    // which it hands a client over. The next statement reports the loss.
    this.on('error', () => {});
  }

  override end(): Promise<void>;
  override end(callback: (error: Error) => void): void;
  override end(callback?: (error: Error) => void): unknown {
    const socket = socketOf(this);
    const giveUp = setTimeout(() => socket.destroy(), GOODBYE_MS);
    // The open socket keeps the process alive; the timer need not.
    giveUp.unref();
    socket.once('close', () => clearTimeout(giveUp));
    return callback === undefined ? super.end() : super.end(callback);
  }
}
