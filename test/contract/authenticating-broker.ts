/** Broker without topics that asks for a password: enough of Kafka's protocol for a client that
 *  connects over SASL/PLAIN (Source: Kafka protocol guide).
 *
 *  Request: size i32 | key i16 | version i16 | correlation i32 | client id str | body
 *  ApiVersions v0: error i16 | keys i32 x (key i16, least i16, greatest i16)
 *  SaslHandshake v1: error i16 | mechanisms i32 x str
 *  SaslAuthenticate v0: error i16 | message str | auth bytes
 *  Metadata v4: throttle i32 | brokers i32 x (id i32, host str, port i32, rack str) | cluster str
 *    | controller i32 | topics i32
 */
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { int16, int32, shortText } from '../../src/io/kafka/frame.ts';

const KEY = { metadata: 3, saslHandshake: 17, apiVersions: 18, saslAuthenticate: 36 } as const;
/** Greatest version of each request, by key. */
const VERSIONS = [
  [KEY.metadata, 4],
  [KEY.saslHandshake, 1],
  [KEY.apiVersions, 0],
  [KEY.saslAuthenticate, 0],
] as const;
const UNSUPPORTED_VERSION = 35;
const SASL_AUTHENTICATION_FAILED = 58;

export interface AuthenticatingBroker {
  readonly address: string;
  /** Number of passwords that were checked. */
  readonly checked: () => number;
  close(): Promise<void>;
}

/** Largest request of a client that speaks the protocol; a broker ends other connections. */
const REQUEST_BYTES_MAX = 1 << 20;

/** @param verdict what becomes of the n-th password, from 0: `drop` ends the connection */
export async function startAuthenticatingBroker(
  verdict: (count: number) => 'accept' | 'refuse' | 'drop',
): Promise<AuthenticatingBroker> {
  const sockets = new Set<Socket>();
  let checked = 0;
  let port = 0;
  const answerTo = (key: number, version: number): Buffer | undefined => {
    switch (key) {
      case KEY.apiVersions: {
        const rows = VERSIONS.map(([known, greatest]) =>
          Buffer.concat([int16(known), int16(0), int16(greatest)]),
        );
        return Buffer.concat([int16(version === 0 ? 0 : UNSUPPORTED_VERSION), int32(rows.length), ...rows]);
      }
      case KEY.saslHandshake:
        return Buffer.concat([int16(0), int32(1), shortText('PLAIN')]);
      case KEY.saslAuthenticate: {
        const now = verdict(checked++);
        if (now === 'drop') return undefined;
        const isRight = now === 'accept';
        const error = int16(isRight ? 0 : SASL_AUTHENTICATION_FAILED);
        const text = shortText(isRight ? '' : 'Authentication failed: Invalid username or password');
        return Buffer.concat([error, text, int32(0)]);
      }
      default: {
        const self = [int32(1), shortText('127.0.0.1'), int32(port), shortText('')];
        return Buffer.concat([int32(0), int32(1), ...self, shortText('c'), int32(1), int32(0)]);
      }
    }
  };
  const server = createServer((socket) => {
    sockets.add(socket);
    let received = Buffer.alloc(0);
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      if (received.length >= 4 && received.readUInt32BE(0) > REQUEST_BYTES_MAX) {
        socket.destroy();
        return;
      }
      while (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
        const request = received.subarray(4, 4 + received.readInt32BE(0));
        received = received.subarray(4 + request.length);
        const answer = answerTo(request.readInt16BE(0), request.readInt16BE(2));
        if (answer === undefined) {
          socket.destroy();
          return;
        }
        socket.write(Buffer.concat([int32(4 + answer.length), request.subarray(4, 8), answer]));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
  return {
    address: `127.0.0.1:${port}`,
    checked: () => checked,
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
