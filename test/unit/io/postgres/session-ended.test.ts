/** A server that ends a session as soon as it has begun, with the end in the same packet. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { pgDriver } from '../../../../src/io/postgres/sql/pg.ts';
import { pgTextDriver } from '../../../../src/io/postgres/sql/pg-text.ts';

/** Message of PostgreSQL's protocol: type, length in bytes, body. */
function message(type: string, body: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.write(type, 0, 'latin1');
  head.writeInt32BE(4 + body.length, 1);
  return Buffer.concat([head, body]);
}

const AUTHENTICATED = message('R', Buffer.alloc(4));
const READY = message('Z', Buffer.from('I'));
const ENDED = message(
  'E',
  Buffer.from('SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0'),
);

const OPTIONS = { connectionsMax: 1, applicationName: 'session-ended', connectTimeoutMs: 60_000 };

describe('a session that ends as it begins', () => {
  it.each([
    ['pool of pg', (url: string) => pgDriver.connect({ ...OPTIONS, url })],
    [
      'text pool of pg',
      async (url: string) => {
        const pool = await pgTextDriver.connect({ ...OPTIONS, url, answerTimeoutMs: 60_000 });
        return pool.execute({ text: 'SELECT 1', paramCount: 0 }, [], () => {});
      },
    ],
  ])('the %s reports an unreachable server and ends no process', async (_name, ask) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.once('data', () => socket.end(Buffer.concat([AUTHENTICATED, READY, ENDED])));
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    try {
      await expect(ask(`postgres://me@127.0.0.1:${port}/shop?sslmode=disable`)).rejects.toMatchObject({
        code: 'unreachable',
      });
    } finally {
      server.close();
    }
  });
});
