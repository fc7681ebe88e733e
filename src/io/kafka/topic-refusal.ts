/** Reason why a topic is not in the list of the cluster's topics: brokers leave out the topics that
 *  the user may not describe. node-rdkafka reports no error of a single topic, so the topic is
 *  requested by name over Kafka's protocol.
 *
 *  Body of a Metadata request, version 4 (Source: Kafka protocol guide):
 *    topics i32 x (name str) | allow creation i8 = 0
 *  Response:
 *    throttle i32 | brokers i32 x (id i32, host str, port i32, rack nullable str)
 *    | cluster nullable str | controller i32 | topics i32 x (error i16, ...)
 */
import type { MillraceError } from '../../core/errors.ts';
import { askBrokers } from './connection.ts';
import { brokerEvent, errorOfEvent } from './errors.ts';
import { int32, readResponse, requestFrame, shortText } from './frame.ts';
import type { BrokerOptions } from './port.ts';

const METADATA = 3;
const BROKERS_MAX = 10_000;
const TOPIC_AUTHORIZATION_FAILED = 29;
const TIMEOUT_MS = 5000;

export const encodeTopicMetadata = (clientId: string, topic: string): Buffer =>
  requestFrame(
    { key: METADATA, version: 4, clientId },
    int32(1),
    shortText(topic),
    // A broker with automatic topic creation must not create it.
    Buffer.from([0]),
  );

/** Error code of the one topic of a response; undefined for a malformed response. */
export const decodeTopicError = (body: Buffer): number | undefined =>
  readResponse(body, (fields) => {
    fields.skip(4);
    for (let left = fields.count(BROKERS_MAX); left > 0; left--) {
      fields.skip(4);
      fields.text();
      fields.skip(4);
      fields.text();
    }
    fields.text();
    fields.skip(4);
    return fields.i32() === 1 ? fields.i16() : undefined;
  });

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
