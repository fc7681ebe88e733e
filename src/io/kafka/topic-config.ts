/** Configuration of a topic, requested over Kafka's protocol: node-rdkafka has no call for it.
 *
 *  DescribeConfigs request, version 1 (Source: Kafka protocol guide):
 *    size i32 | key i16 = 32 | version i16 = 1 | correlation i32 | client id: i16 length, bytes
 *    | resources i32 x (type i8 = 2 for a topic, name str, names i32 = -1 for all) | synonyms i8
 *  Response:
 *    size i32 | correlation i32 | throttle i32
 *    | results i32 x (error i16, message nullable str, type i8, name str, configs i32 x (name str,
 *    value nullable str, read only i8, source i8, sensitive i8, synonyms i32 x (name str, value
 *    nullable str, source i8)))
 */
import { askBrokers, int32, shortText } from './connection.ts';
import type { BrokerOptions } from './port.ts';

const DESCRIBE_CONFIGS = 32;
const TOPIC = 2;
const CORRELATION = 0x6d74;
const COUNT_MAX = 10_000;

export function encodeDescribeTopic(clientId: string, topic: string): Buffer {
  const body = Buffer.concat([
    Buffer.from([0, DESCRIBE_CONFIGS, 0, 1]),
    int32(CORRELATION),
    shortText(clientId),
    int32(1),
    Buffer.from([TOPIC]),
    shortText(topic),
    int32(-1),
    Buffer.from([0]),
  ]);
  return Buffer.concat([int32(body.length), body]);
}

/** Decodes the response after its size field; undefined for a malformed response or an error. */
export function decodeDescribeTopic(body: Buffer): ReadonlyMap<string, string> | undefined {
  let at = 0;
  /** Advances by this many bytes and returns the position before them. */
  const skip = (bytes: number): number => {
    at += bytes;
    if (at > body.length) throw new RangeError('the answer is cut short');
    return at - bytes;
  };
  const i16 = (): number => body.readInt16BE(skip(2));
  const i32 = (): number => body.readInt32BE(skip(4));
  const count = (): number => {
    const found = i32();
    if (found < 0 || found > COUNT_MAX) throw new RangeError('a count out of range');
    return found;
  };
  const text = (): string | undefined => {
    const length = i16();
    if (length < 0) return undefined;
    const start = skip(length);
    return body.toString('utf8', start, at);
  };
  try {
    if (i32() !== CORRELATION) return undefined;
    skip(4);
    if (count() !== 1 || i16() !== 0) return undefined;
    text();
    skip(1);
    text();
    const config = new Map<string, string>();
    for (let left = count(); left > 0; left--) {
      const name = text();
      const value = text();
      skip(3);
      for (let synonyms = count(); synonyms > 0; synonyms--) {
        text();
        text();
        skip(1);
      }
      if (name !== undefined && value !== undefined) config.set(name, value);
    }
    return config;
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

/** Configuration of a topic; undefined when no broker of the list can be reached or answers. */
export const topicConfig = (
  options: BrokerOptions,
  topic: string,
  timeoutMs: number,
): Promise<ReadonlyMap<string, string> | undefined> =>
  askBrokers(options, encodeDescribeTopic(options.clientId, topic), timeoutMs, decodeDescribeTopic);
