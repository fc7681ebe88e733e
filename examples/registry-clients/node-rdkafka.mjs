import rdkafka from 'node-rdkafka';
import { brokers, deserializer, serializer, topic } from './serde.mjs';

const client = { 'metadata.broker.list': brokers };
const writer = rdkafka.Producer.createWriteStream(client, {}, { topic });
writer.end(serializer.serialize({ id: 2n ** 53n + 1n, state: 'sent by node-rdkafka' }));

const group = { ...client, 'group.id': `${topic}-node-rdkafka` };
const reader = rdkafka.KafkaConsumer.createReadStream(
  group,
  { 'auto.offset.reset': 'earliest' },
  { topics: [topic] },
);
for await (const { value, headers } of reader) console.log(await deserializer.deserialize(value, headers));
