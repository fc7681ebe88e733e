/** TCP proxy before a database that can become silent: connections stay open, and no byte passes in
 *  either direction. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

export interface SilentGate {
  readonly url: string;
  /** Silences all connections, including new ones. The current connections stay silent
   *  permanently. */
  silence(): void;
  /** Silences only the connection on which the client sends this text, from that moment on. */
  silenceOn(text: string | undefined): void;
  /** Lets new connections pass. */
  speak(): void;
  close(): Promise<void>;
}

export async function silentGate(postgres: string): Promise<SilentGate> {
  const target = new URL(postgres);
  const sockets = new Set<Socket>();
  let isSilent = false;
  let deadly: string | undefined;
  let kill: Array<() => void> = [];
  const server = createServer((outer) => {
    const inner = connect({ host: target.hostname, port: Number(target.port) });
    let dead = isSilent;
    kill.push(() => {
      dead = true;
    });
    for (const socket of [outer, inner]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
    outer.on('data', (chunk) => {
      if (deadly !== undefined && chunk.includes(deadly)) dead = true;
      if (!dead) inner.write(chunk);
    });
    inner.on('data', (chunk) => {
      if (!dead) outer.write(chunk);
    });
    outer.on('close', () => {
      if (!dead) inner.destroy();
    });
    inner.on('close', () => {
      if (!dead) outer.destroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = new URL(postgres);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as AddressInfo).port);
  return {
    url: url.toString(),
    silence() {
      isSilent = true;
      for (const one of kill) one();
      kill = [];
    },
    silenceOn(text) {
      deadly = text;
    },
    speak() {
      isSilent = false;
      deadly = undefined;
    },
    close() {
      return new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      });
    },
  };
}
