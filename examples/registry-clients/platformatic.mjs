import { Consumer, Producer, stringSerializer } from '@platformatic/kafka';
import { brokers, deserializer, serializer, topic } from './serde.mjs';

const client = { clientId: 'parcels', bootstrapBrokers: brokers.split(',') };
const producer = new Producer({ ...client, serializers: { headerKey: stringSerializer } });
const value = serializer.serialize({ id: 2n ** 53n + 1n, state: 'sent by platformatic' });
await producer.send({ messages: [{ topic, value, headers: serializer.headers }] });

const consumer = new Consumer({ ...client, groupId: `${topic}-platformatic` });
const stream = await consumer.consume({ topics: [topic], mode: 'earliest' });
for await (const { value, headers } of stream) console.log(await deserializer.deserialize(value, headers));
