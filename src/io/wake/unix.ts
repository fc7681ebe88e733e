/** Unix socket driver: each relay listens on its own socket, in a folder whose name is derived from
 *  the database. A process that commits rows connects to all sockets of the folder and writes one
 *  byte for each wake-up.
 *
 *  The folder lies under the temporary directory and belongs to the user. A relay of another user
 *  or in another mount namespace is not found, and polls.
 */
import { createHash, randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, mkdirSync, rmSync } from 'node:fs';
import { readdir, unlink } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import type { WakeDriver, WakeListener, Waker, WakeScope } from './port.ts';

/** Interval at which a waker searches for relays that started since. */
const DISCOVERY_INTERVAL_MS = 500;
/** Most wakers of one relay, and most relays of one waker. */
const PEERS_MAX = 64;
/** Most unsent bytes for a relay that reads nothing. More pending bytes wake no better than one. */
const BACKLOG_BYTES_MAX = 64;
const SOCKET = /^[0-9a-f]{16}\.sock$/;
const BYTE = Buffer.of(1);

/** Folder of an outbox's sockets; its path is short, because the path of a socket has about 100
 *  bytes at most. */
export function wakeFolder(scope: WakeScope, root = tmpdir(), user = process.getuid?.() ?? 0): string {
  const name = createHash('sha256')
    .update(`${scope.systemIdentifier}\n${scope.database}\n${scope.table}`)
    .digest('hex')
    .slice(0, 16);
  return join(root, `millrace-wake-${user}`, name);
}

/** Makes the folder, which only this user may write. @throws not_writable */
function ownFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    for (const path of [join(folder, '..'), folder]) {
      const found = lstatSync(path);
      if (!found.isDirectory() || (process.getuid !== undefined && found.uid !== process.getuid()))
        throw new Error(`${path} belongs to another user`);
      chmodSync(path, 0o700);
    }
  } catch (thrown) {
    throw coreError(
      'not_writable',
      `cannot open the folder of wake-up sockets ${folder}: ${(thrown as Error).message}`,
      {
        next: 'check the folder and its owner; without it the relay polls every -poll-interval',
        cause: thrown,
      },
    );
  }
}

class UnixWaker implements Waker {
  private readonly folder: string;
  private readonly peers = new Map<string, Socket>();
  private readonly timer: NodeJS.Timeout;
  private discovery: Promise<void> | undefined;
  private scheduled = false;
  private closed = false;

  constructor(folder: string) {
    this.folder = folder;
    this.timer = setInterval(() => void this.discover(), DISCOVERY_INTERVAL_MS);
    this.timer.unref();
  }

  wake(): void {
    if (this.scheduled || this.closed || this.peers.size === 0) return;
    this.scheduled = true;
    setImmediate(() => {
      this.scheduled = false;
      for (const socket of this.peers.values()) {
        if (!socket.connecting && socket.writable && socket.writableLength < BACKLOG_BYTES_MAX)
          socket.write(BYTE);
      }
    });
  }

  /** Connects to every socket of the folder that is not connected. */
  discover(): Promise<void> {
    this.discovery ??= this.connectAll().finally(() => {
      this.discovery = undefined;
    });
    return this.discovery;
  }

  async close(): Promise<void> {
    this.closed = true;
    clearInterval(this.timer);
    await this.discovery;
    for (const socket of this.peers.values()) socket.destroy();
    this.peers.clear();
  }

  private async connectAll(): Promise<void> {
    // Without the folder there is no relay.
    const names = await readdir(this.folder).catch(() => []);
    const fresh = names.filter((name) => SOCKET.test(name) && !this.peers.has(name));
    await Promise.all(fresh.slice(0, PEERS_MAX - this.peers.size).map((name) => this.connectTo(name)));
  }

  private connectTo(name: string): Promise<void> {
    const path = join(this.folder, name);
    return new Promise((resolve) => {
      const socket = connect({ path });
      // A waker alone must not keep its process up.
      socket.unref();
      this.peers.set(name, socket);
      socket.once('connect', () => {
        // Rows may have been committed between the relay's first poll and this connection.
        socket.write(BYTE);
        resolve();
      });
      socket.on('error', (error: NodeJS.ErrnoException) => {
        // Socket file that a killed relay left behind.
        if (error.code === 'ECONNREFUSED') unlink(path).catch(() => {});
      });
      socket.once('close', () => {
        this.peers.delete(name);
        resolve();
      });
      socket.resume();
    });
  }
}

class UnixListener implements WakeListener {
  private readonly server: Server;
  private readonly sockets = new Set<Socket>();
  private readonly path: string;
  private closing: Promise<void> | undefined;

  constructor(path: string, woken: () => void) {
    this.path = path;
    let notified = false;
    this.server = createServer((socket) => {
      if (this.sockets.size >= PEERS_MAX) {
        socket.destroy();
        return;
      }
      this.sockets.add(socket);
      socket.on('data', () => {
        if (notified) return;
        notified = true;
        setImmediate(() => {
          notified = false;
        });
        woken();
      });
      socket.on('error', () => {});
      socket.once('close', () => this.sockets.delete(socket));
    });
    this.server.unref();
  }

  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once('error', reject);
      this.server.listen(this.path, () => {
        this.server.on('error', () => {});
        resolve();
      });
    });
  }

  close(): Promise<void> {
    this.closing ??= new Promise((resolve) => {
      for (const socket of this.sockets) socket.destroy();
      this.server.close(() => {
        rmSync(this.path, { force: true });
        resolve();
      });
    });
    return this.closing;
  }
}

/** Driver with its folders under `root`. */
export function unixWakeIn(root: string): WakeDriver {
  return {
    name: 'unix',
    async waker(scope) {
      const made = new UnixWaker(wakeFolder(scope, root));
      await made.discover();
      return made;
    },
    async listen(scope, woken) {
      const folder = wakeFolder(scope, root);
      ownFolder(folder);
      const path = join(folder, `${randomBytes(8).toString('hex')}.sock`);
      const made = new UnixListener(path, woken);
      try {
        await made.open();
      } catch (thrown) {
        throw coreError(
          'not_writable',
          `cannot open the wake-up socket ${path}: ${(thrown as Error).message}`,
          {
            next: 'check the folder; without the socket the relay polls every -poll-interval',
            cause: thrown,
          },
        );
      }
      return made;
    },
  };
}

export const unixWake: WakeDriver = unixWakeIn(tmpdir());
