/** Deletes what an engine needs no more from the topic that it reads, so that hours of a load fit
 *  on a disk: everything behind the offsets of the oldest checkpoint that is kept. node-rdkafka has
 *  no call for it.
 *
 *  DeleteRecords request, version 1 (Source: Kafka protocol guide):
 *    size i32 | key i16 = 21 | version i16 = 1 | correlation i32 | client id str
 *    | topics i32 x (name str, partitions i32 x (partition i32, offset i64)) | timeout i32
 *  Response:
 *    size i32 | correlation i32 | throttle i32 | topics i32 x (name str, partitions i32 x
 *    (partition i32, low i64, error i16))
 *  A broker removes a segment when it looks for such next time, and deletes nothing of the newest
 *  one.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { coreError } from '../../src/core/errors.ts';

const DELETE_RECORDS = 21;
const CORRELATION = 0x6d74;
const CLIENT = 'bench';
const ANSWER_MS = 10_000;
const NOT_LEADER = 6;

const text = (of: string): Buffer => {
  const bytes = Buffer.from(of);
  const length = Buffer.alloc(2);
  length.writeInt16BE(bytes.length);
  return Buffer.concat([length, bytes]);
};
const int32 = (value: number): Buffer => {
  const out = Buffer.alloc(4);
  out.writeInt32BE(value);
  return out;
};
const int64 = (value: number): Buffer => {
  const out = Buffer.alloc(8);
  out.writeBigInt64BE(BigInt(value));
  return out;
};

function encodeDeleteRecords(topic: string, offsets: readonly number[]): Buffer {
  const body = Buffer.concat([
    Buffer.from([0, DELETE_RECORDS, 0, 1]),
    int32(CORRELATION),
    text(CLIENT),
    int32(1),
    text(topic),
    int32(offsets.length),
    ...offsets.flatMap((offset, partition) => [int32(partition), int64(offset)]),
    int32(ANSWER_MS),
  ]);
  return Buffer.concat([int32(body.length), body]);
}

/** Error of each partition, from a whole answer for one topic. */
export function decodeDeleteRecords(answer: Buffer): readonly number[] {
  let at = 12;
  const skip = (bytes: number): number => {
    at += bytes;
    return at - bytes;
  };
  const i32 = (): number => answer.readInt32BE(skip(4));
  const i16 = (): number => answer.readInt16BE(skip(2));
  if (answer.readInt32BE(4) !== CORRELATION || i32() !== 1)
    throw coreError('bad_file', 'a broker answered something else');
  skip(i16());
  return Array.from({ length: i32() }, () => {
    skip(12);
    return i16();
  });
}

function ask(address: string, request: Buffer): Promise<Buffer> {
  const [host = '', port] = address.split(/:(?=\d+$)/);
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => {
      socket.destroy();
      reject(coreError('unreachable', `${address} did not delete records: ${why}`));
    };
    const socket = connect({ host, port: Number(port) });
    socket.setTimeout(2 * ANSWER_MS, () => fail('no answer in time'));
    let got = Buffer.alloc(0);
    socket.on('connect', () => socket.write(request));
    socket.on('error', ({ message }) => fail(message));
    socket.on('close', () => fail('it hung up'));
    socket.on('data', (chunk) => {
      got = Buffer.concat([got, chunk]);
      if (got.length < 4 || got.length < 4 + got.readInt32BE(0)) return;
      resolve(got);
      socket.destroy();
    });
  });
}

/** Deletes each partition's records before its offset. @throws unreachable */
export async function deleteRecords(
  brokers: string,
  topic: string,
  offsets: readonly number[],
): Promise<void> {
  for (const address of brokers.split(',')) {
    // Each broker deletes what it leads.
    const errors = decodeDeleteRecords(await ask(address, encodeDeleteRecords(topic, offsets)));
    const bad = errors.find((error) => error !== 0 && error !== NOT_LEADER);
    if (bad !== undefined)
      throw coreError('unreachable', `${address} did not delete records of ${topic}: error ${bad}`);
  }
}

/** Offsets of the oldest checkpoint that stands in the folder; undefined where there is none. */
export function oldestOffsets(folder: string): readonly number[] | undefined {
  const numbers = readdirSync(folder)
    .map((name) => /^checkpoint-(\d+)\.manifest$/.exec(name)?.[1])
    .filter((number) => number !== undefined)
    .sort((a, b) => Number(a) - Number(b));
  for (const number of numbers) {
    let whole: string;
    try {
      whole = readFileSync(join(folder, `checkpoint-${number}.manifest`), 'utf8');
    } catch {
      // A newer one has taken its place meanwhile.
      continue;
    }
    const read = JSON.parse(whole.slice(0, whole.lastIndexOf('\ncrc32 '))) as { source_offsets: number[] };
    return read.source_offsets;
  }
  return undefined;
}
