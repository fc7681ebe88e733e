import { Kafka } from 'kafkajs';
import { brokers, deserializer, serializer, topic } from './serde.mjs';

const kafka = new Kafka({ brokers: brokers.split(',') });
const producer = kafka.producer();
await producer.connect();
const value = serializer.serialize({ id: 2n ** 53n + 1n, state: 'sent by kafkajs' });
await producer.send({ topic, messages: [{ value, headers: serializer.headers }] });

const consumer = kafka.consumer({ groupId: `${topic}-kafkajs` });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
await consumer.run({
  eachMessage: async ({ message: { value, headers } }) =>
    console.log(await deserializer.deserialize(value, headers)),
});
