/** Reason why a topic is not in the list of the cluster's topics: brokers leave out the topics that
 *  the user may not describe. node-rdkafka reports no error of a single topic, so the topic is
 *  requested by name over Kafka's protocol.
 *
 *  Metadata request, version 4 (Source: Kafka protocol guide):
 *    size i32 | key i16 = 3 | version i16 = 4 | correlation i32 | client id: i16 length, bytes
 *    | topics i32 x (name str) | allow creation i8 = 0
 *  Response:
 *    size i32 | correlation i32 | throttle i32
 *    | brokers i32 x (id i32, host str, port i32, rack nullable str) | cluster nullable str
 *    | controller i32 | topics i32 x (error i16, ...)
 */
import type { MillraceError } from '../../core/errors.ts';
import { askBrokers, int32, shortText } from './connection.ts';
import { brokerEvent, errorOfEvent } from './errors.ts';
import type { BrokerOptions } from './port.ts';

const METADATA = 3;
const CORRELATION = 0x6d76;
const BROKERS_MAX = 10_000;
const TOPIC_AUTHORIZATION_FAILED = 29;
const TIMEOUT_MS = 5000;

export function encodeTopicMetadata(clientId: string, topic: string): Buffer {
  const body = Buffer.concat([
    Buffer.from([0, METADATA, 0, 4]),
    int32(CORRELATION),
    shortText(clientId),
    int32(1),
    shortText(topic),
    // A broker with automatic topic creation must not create it.
    Buffer.from([0]),
  ]);
  return Buffer.concat([int32(body.length), body]);
}

/** Error code of the one topic of a response; undefined for a malformed response. */
export function decodeTopicError(body: Buffer): number | undefined {
  let at = 0;
  /** Advances by this many bytes and returns the position before them. */
  const skip = (bytes: number): number => {
    at += bytes;
    if (at > body.length) throw new RangeError('the answer is cut short');
    return at - bytes;
  };
  const i16 = (): number => body.readInt16BE(skip(2));
  const i32 = (): number => body.readInt32BE(skip(4));
  const text = (): void => void skip(Math.max(0, i16()));
  try {
    if (i32() !== CORRELATION) return undefined;
    skip(4);
    const brokers = i32();
    if (brokers < 0 || brokers > BROKERS_MAX) return undefined;
    for (let left = brokers; left > 0; left--) {
      skip(4);
      text();
      skip(4);
      text();
    }
    text();
    skip(4);
    return i32() === 1 ? i16() : undefined;
  } catch (thrown) {
    if (thrown instanceof RangeError) return undefined;
    throw thrown;
  }
}

/** @returns broker_forbidden where the user may not describe the topic; undefined where it does not
 *    exist, or the brokers give no reason
 */
export async function topicRefusal(
  options: BrokerOptions,
  topic: string,
): Promise<MillraceError | undefined> {
  const request = encodeTopicMetadata(options.clientId, topic);
  const code = await askBrokers(options, request, TIMEOUT_MS, decodeTopicError);
  if (code !== TOPIC_AUTHORIZATION_FAILED) return undefined;
  return errorOfEvent(`describe topic ${topic}`, brokerEvent(TOPIC_AUTHORIZATION_FAILED));
}
