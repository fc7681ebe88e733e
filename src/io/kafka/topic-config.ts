/** Configuration of a topic, requested over Kafka's protocol: node-rdkafka has no call for it.
 *
 *  Body of a DescribeConfigs request, version 1 (Source: Kafka protocol guide):
 *    resources i32 x (type i8 = 2 for a topic, name str, names i32 = -1 for all) | synonyms i8
 *  Response:
 *    throttle i32
 *    | results i32 x (error i16, message nullable str, type i8, name str, configs i32 x (name str,
 *    value nullable str, read only i8, source i8, sensitive i8, synonyms i32 x (name str, value
 *    nullable str, source i8)))
 */
import { askBrokers } from './connection.ts';
import { int32, readResponse, requestFrame, shortText } from './frame.ts';
import type { BrokerOptions } from './port.ts';

const DESCRIBE_CONFIGS = 32;
const TOPIC = 2;
const COUNT_MAX = 10_000;

export const encodeDescribeTopic = (clientId: string, topic: string): Buffer =>
  requestFrame(
    { key: DESCRIBE_CONFIGS, version: 1, clientId },
    int32(1),
    Buffer.from([TOPIC]),
    shortText(topic),
    int32(-1),
    Buffer.from([0]),
  );

/** Decodes the response after its size field; undefined for a malformed response or an error. */
export const decodeDescribeTopic = (body: Buffer): ReadonlyMap<string, string> | undefined =>
  readResponse(body, (fields) => {
    fields.skip(4);
    if (fields.count(COUNT_MAX) !== 1 || fields.i16() !== 0) return undefined;
    fields.text();
    fields.skip(1);
    fields.text();
    const config = new Map<string, string>();
    for (let left = fields.count(COUNT_MAX); left > 0; left--) {
      const name = fields.text();
      const value = fields.text();
      fields.skip(3);
      for (let synonyms = fields.count(COUNT_MAX); synonyms > 0; synonyms--) {
        fields.text();
        fields.text();
        fields.skip(1);
      }
      if (name !== undefined && value !== undefined) config.set(name, value);
    }
    return config;
  });

/** Configuration of a topic; undefined when no broker of the list can be reached or answers. */
export const topicConfig = (
  options: BrokerOptions,
  topic: string,
  timeoutMs: number,
): Promise<ReadonlyMap<string, string> | undefined> =>
  askBrokers(options, encodeDescribeTopic(options.clientId, topic), timeoutMs, decodeDescribeTopic);
