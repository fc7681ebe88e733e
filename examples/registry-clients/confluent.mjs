import confluent from '@confluentinc/kafka-javascript';
import { brokers, deserializer, serializer, topic } from './serde.mjs';

const kafka = new confluent.KafkaJS.Kafka({ 'bootstrap.servers': brokers });
const producer = kafka.producer();
await producer.connect();
const value = serializer.serialize({ id: 2n ** 53n + 1n, state: 'sent by confluent' });
await producer.send({ topic, messages: [{ value, headers: serializer.headers }] });

const consumer = kafka.consumer({ 'group.id': `${topic}-confluent`, 'auto.offset.reset': 'earliest' });
await consumer.connect();
await consumer.subscribe({ topic });
await consumer.run({
  eachMessage: async ({ message: { value, headers } }) =>
    console.log(await deserializer.deserialize(value, headers)),
});
