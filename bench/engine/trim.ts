/** Deletes records that an engine no longer needs from its topic, so that hours of load fit on a
 *  disk: all records before the offsets of the oldest retained checkpoint. node-rdkafka does not
 *  support DeleteRecords.
 *
 *  DeleteRecords request, version 1 (Source: Kafka protocol guide):
 *        size i32 | key i16 = 21 | version i16 = 1 | correlation i32 | client id str
 *        | topics i32 x (name str, partitions i32 x (partition i32, offset i64)) | timeout i32
 *  Response:
 *        size i32 | correlation i32 | throttle i32 | topics i32 x (name str, partitions i32 x
 *        (partition i32, low i64, error i16))
 *  A broker removes segments periodically, and never the newest segment. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { coreError } from '../../src/core/errors.ts';
import { askOnce } from '../../src/io/kafka/connection.ts';
import type { BrokerAt } from '../effects/arrivals.ts';

const DELETE_RECORDS = 21;
const CORRELATION = 0x6d74;
const CLIENT = 'bench';
const RESPONSE_TIMEOUT_MS = 10_000;
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
    int32(RESPONSE_TIMEOUT_MS),
  ]);
  return Buffer.concat([int32(body.length), body]);
}

/** Decodes the error of each partition from a complete response for one topic. */
export function decodeDeleteRecords(response: Buffer): readonly number[] {
  let at = 12;
  const skip = (bytes: number): number => {
    at += bytes;
    return at - bytes;
  };
  const i32 = (): number => response.readInt32BE(skip(4));
  const i16 = (): number => response.readInt16BE(skip(2));
  if (response.readInt32BE(4) !== CORRELATION || i32() !== 1)
    throw coreError('bad_file', 'unexpected response of a broker');
  skip(i16());
  return Array.from({ length: i32() }, () => {
    skip(12);
    return i16();
  });
}

/** Response with its size field. @throws unreachable */
async function sendRequest(address: string, at: BrokerAt, request: Buffer): Promise<Buffer> {
  const [host = '', port] = address.split(/:(?=\d+$)/);
  const to = { host, port: Number(port) };
  const body = await askOnce(to, at.properties, request, 2 * RESPONSE_TIMEOUT_MS);
  if (body === undefined)
    throw coreError('unreachable', `${address} did not delete records: it gave no response`);
  return Buffer.concat([int32(body.length), body]);
}

/** Deletes the records of each partition before its offset. @throws unreachable */
export async function deleteRecords(at: BrokerAt, topic: string, offsets: readonly number[]): Promise<void> {
  for (const address of at.brokers.split(',')) {
    // Each broker deletes only the records of partitions that it leads.
    const response = await sendRequest(address, at, encodeDeleteRecords(topic, offsets));
    const fatal = decodeDeleteRecords(response).find((error) => error !== 0 && error !== NOT_LEADER);
    if (fatal !== undefined)
      throw coreError('unreachable', `${address} did not delete records of ${topic}: error ${fatal}`);
  }
}

/** Offsets of the oldest checkpoint in the folder; undefined if there is none. */
export function oldestOffsets(folder: string): readonly number[] | undefined {
  const numbers = readdirSync(folder)
    .map((name) => /^checkpoint-(\d+)\.manifest$/.exec(name)?.[1])
    .filter((number) => number !== undefined)
    .sort((a, b) => Number(a) - Number(b));
  for (const number of numbers) {
    let content: string;
    try {
      content = readFileSync(join(folder, `checkpoint-${number}.manifest`), 'utf8');
    } catch {
      // A newer checkpoint replaced it meanwhile.
      continue;
    }
    const read = JSON.parse(content.slice(0, content.lastIndexOf('\ncrc32 '))) as {
      source_offsets: number[];
    };
    return read.source_offsets;
  }
  return undefined;
}
