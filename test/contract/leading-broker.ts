/** Brokers of one topic with one partition, enough of Kafka's protocol for a client that fetches
 *  (Source: Kafka protocol guide): what a real broker does only in a disaster is scripted here.
 *
 *  Request: size i32 | key i16 | version i16 | correlation i32 | client id str | tags, if flexible
 *    | body
 */
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { int16, int32, shortText } from '../../src/io/kafka/frame.ts';
import { realClock } from '../wait.ts';

const KEY = {
  fetch: 1,
  listOffsets: 2,
  metadata: 3,
  saslHandshake: 17,
  apiVersions: 18,
  saslAuthenticate: 36,
};
const VERSIONS = [
  [KEY.fetch, 4, 12],
  [KEY.listOffsets, 1, 5],
  [KEY.metadata, 0, 9],
  [KEY.saslHandshake, 0, 1],
  [KEY.apiVersions, 0, 0],
  [KEY.saslAuthenticate, 0, 1],
] as const;
const SASL_AUTHENTICATION_FAILED = 58;
export const TOPIC = 'led';

const int64 = (value: bigint): Buffer => {
  const out = Buffer.alloc(8);
  out.writeBigInt64BE(value);
  return out;
};
const varint = (value: number): Buffer => {
  const bytes: number[] = [];
  let left = value;
  for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) | 0x80);
  return Buffer.from([...bytes, left]);
};
const signed = (value: number): Buffer => varint(value < 0 ? -2 * value - 1 : 2 * value);
const compact = (text: string): Buffer => Buffer.concat([varint(text.length + 1), Buffer.from(text)]);
const NO_TAGS = Buffer.from([0]);

function crc32c(bytes: Buffer): number {
  let crc = 0xffff_ffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ ((crc & 1) === 0 ? 0 : 0x82f6_3b78);
  }
  return (crc ^ 0xffff_ffff) >>> 0;
}

/** Batch of format 2 with one record for each value. */
export function batchAt(offset: number, epoch: number, values: readonly string[]): Buffer {
  const records = values.map((value, i) => {
    const body = [
      NO_TAGS,
      signed(0),
      signed(i),
      signed(-1),
      signed(value.length),
      Buffer.from(value),
      signed(0),
    ];
    const record = Buffer.concat(body);
    return Buffer.concat([signed(record.length), record]);
  });
  const summed = Buffer.concat([
    ...[int16(0), int32(values.length - 1), int64(1n), int64(1n), int64(-1n), int16(-1), int32(-1)],
    ...[int32(values.length), ...records],
  ]);
  const crc = Buffer.alloc(4);
  crc.writeUInt32BE(crc32c(summed));
  return Buffer.concat([
    int64(BigInt(offset)),
    int32(summed.length + 9),
    int32(epoch),
    Buffer.from([2]),
    crc,
    summed,
  ]);
}

/** Fields of a fetch request for the partition; undefined: a session's request without a change. */
export interface Asked {
  readonly broker: number;
  readonly sessionId: number;
  readonly sessionEpoch: number;
  readonly leaderEpoch: number;
  readonly offset: number;
  readonly fetchedEpoch: number;
}

export interface Answer {
  readonly error?: number;
  readonly topError?: number;
  readonly throttleMs?: number;
  readonly highWatermark?: number;
  readonly records?: Buffer;
  readonly diverging?: { readonly epoch: number; readonly offset: number };
  /** True: a part of the answer alone is sent, with a size that agrees. */
  readonly isCut?: boolean;
  readonly delayMs?: number;
}

export interface Brokers {
  readonly address: string;
  /** Leader and its epoch, as the metadata names them. */
  lead(broker: number, epoch: number): void;
  readonly asked: readonly Asked[];
  readonly counts: { readonly metadata: number; readonly fetches: number };
  readonly passwords: readonly string[];
  close(): Promise<void>;
}

/** Reads the partition of a fetch request of version 12 behind its head. */
function readFetch(body: Buffer, broker: number): Asked | undefined {
  const session = { sessionId: body.readInt32BE(17), sessionEpoch: body.readInt32BE(21) };
  if (body[25] === 1) return undefined;
  // One topic, its name, one partition.
  const at = 26 + 1 + TOPIC.length + 1;
  return {
    ...{ broker, ...session, leaderEpoch: body.readInt32BE(at + 4) },
    ...{ offset: Number(body.readBigInt64BE(at + 8)), fetchedEpoch: body.readInt32BE(at + 16) },
  };
}

function fetchAnswer(answer: Answer, sessionId: number): Buffer {
  const { records = Buffer.alloc(0), diverging, highWatermark = 1000 } = answer;
  const tags =
    diverging === undefined
      ? NO_TAGS
      : Buffer.concat([
          Buffer.from([1, 0, 13]),
          int32(diverging.epoch),
          int64(BigInt(diverging.offset)),
          NO_TAGS,
        ]);
  const watermark = int64(BigInt(highWatermark));
  const partition = [int32(0), int16(answer.error ?? 0), watermark, watermark, int64(0n), Buffer.from([0])];
  return Buffer.concat([
    ...[NO_TAGS, int32(answer.throttleMs ?? 0), int16(answer.topError ?? 0), int32(sessionId)],
    ...[Buffer.from([2]), compact(TOPIC), Buffer.from([2]), ...partition, int32(-1)],
    ...[varint(records.length + 1), records, tags, NO_TAGS, NO_TAGS],
  ]);
}

/** Starts brokers with the ids 1 to `count`.
 *  @param answer what a broker answers to a fetch; undefined: it ends the connection */
export async function startBrokers(
  count: number,
  answer: (asked: Asked | undefined, fetches: number, broker: number) => Answer | undefined,
): Promise<Brokers> {
  const sockets = new Set<Socket>();
  const asked: Asked[] = [];
  const counts = { metadata: 0, fetches: 0 };
  const passwords: string[] = [];
  const ports: number[] = [];
  let [leader, epoch] = [1, 1];
  const metadata = (version: number): Buffer => {
    if (version !== 9) throw new Error(`Metadata v${version}`);
    const rows = ports.map((port, i) =>
      Buffer.concat([int32(i + 1), compact('127.0.0.1'), int32(port), Buffer.from([0, 0])]),
    );
    const nodes = [Buffer.from([2]), int32(leader)];
    const partition = [
      int16(0),
      int32(0),
      int32(leader),
      int32(epoch),
      ...nodes,
      ...nodes,
      Buffer.from([1, 0]),
    ];
    const topic = [
      Buffer.from([2]),
      int16(0),
      compact(TOPIC),
      Buffer.from([0]),
      Buffer.from([2]),
      ...partition,
    ];
    return Buffer.concat([
      ...[NO_TAGS, int32(0), varint(rows.length + 1), ...rows, compact('cluster'), int32(1)],
      ...[...topic, int32(-2147483648), NO_TAGS, int32(-2147483648), NO_TAGS],
    ]);
  };
  let delayMs = 0;
  const answerTo = (request: Buffer, broker: number): Buffer | undefined => {
    delayMs = 0;
    const [key, version] = [request.readInt16BE(0), request.readInt16BE(2)];
    const body = request.subarray(10 + Math.max(0, request.readInt16BE(8)));
    switch (key) {
      case KEY.apiVersions: {
        const rows = VERSIONS.map((row) => Buffer.concat(row.map(int16)));
        return Buffer.concat([int16(version === 0 ? 0 : 35), int32(rows.length), ...rows]);
      }
      case KEY.saslHandshake:
        return Buffer.concat([int16(0), int32(1), shortText('PLAIN')]);
      case KEY.saslAuthenticate: {
        const password = body.subarray(4).toString('latin1').split('\0')[2] as string;
        passwords.push(password);
        const isRight = password === 'right';
        const text = shortText(isRight ? '' : 'Authentication failed');
        const error = int16(isRight ? 0 : SASL_AUTHENTICATION_FAILED);
        return Buffer.concat([error, text, int32(0), ...(version === 0 ? [] : [int64(0n)])]);
      }
      case KEY.metadata:
        counts.metadata++;
        return metadata(version);
      case KEY.listOffsets: {
        const partition = [int32(0), int16(0), int64(-1n), int64(0n), int32(epoch)];
        return Buffer.concat([int32(0), int32(1), shortText(TOPIC), int32(1), ...partition]);
      }
      case KEY.fetch: {
        const one = readFetch(body.subarray(1), broker);
        if (one !== undefined) asked.push(one);
        const made = answer(one, counts.fetches++, broker);
        if (made === undefined) return undefined;
        delayMs = made.delayMs ?? 0;
        const whole = fetchAnswer(made, 7);
        return made.isCut ? whole.subarray(0, whole.length / 2) : whole;
      }
      default:
        return undefined;
    }
  };
  const serve = (broker: number): Server =>
    createServer((socket) => {
      sockets.add(socket);
      let received = Buffer.alloc(0);
      socket.on('error', () => {});
      socket.on('data', (chunk: Buffer) => {
        received = Buffer.concat([received, chunk]);
        while (received.length >= 4 && received.length >= 4 + received.readInt32BE(0)) {
          const request = received.subarray(4, 4 + received.readInt32BE(0));
          received = received.subarray(4 + request.length);
          const made = answerTo(request, broker);
          if (made === undefined) {
            socket.destroy();
            return;
          }
          const answer = Buffer.concat([int32(4 + made.length), request.subarray(4, 8), made]);
          if (delayMs === 0) socket.write(answer);
          else realClock.after(delayMs, () => socket.write(answer));
        }
      });
    });
  const servers = Array.from({ length: count }, (_, i) => serve(i + 1));
  for (const server of servers) {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    ports.push((server.address() as AddressInfo).port);
  }
  return {
    address: `127.0.0.1:${ports[0]}`,
    lead: (broker, at) => {
      [leader, epoch] = [broker, at];
    },
    asked,
    counts,
    passwords,
    async close() {
      for (const socket of sockets) socket.destroy();
      await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
    },
  };
}
