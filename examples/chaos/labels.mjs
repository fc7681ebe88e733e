// Prints a label for each message. Offsets are committed once a second, so after a crash up to a
// second of messages arrives again; UNIQUE (message_id) recognises them.
import { promisify } from 'node:util';
import rdkafka from 'node-rdkafka';
import { pause, pool, serve } from './parts.mjs';

const PRINT = `INSERT INTO labels (message_id, parcel_id)
SELECT * FROM unnest($1::bigint[], $2::uuid[]) ON CONFLICT DO NOTHING`;

const consumer = new rdkafka.KafkaConsumer(
  {
    'metadata.broker.list': process.env.BROKERS,
    'group.id': process.env.GROUP,
    'enable.auto.commit': false,
    'session.timeout.ms': 6000,
  },
  { 'auto.offset.reset': 'earliest' },
);
consumer.on('event.error', (error) => console.error(error.message));
await new Promise((resolve, reject) =>
  consumer.connect({ timeout: 60_000 }, (error) => (error ? reject(error) : resolve())),
);
consumer.subscribe([process.env.TOPIC]);
consumer.setDefaultConsumeTimeout(250);
const nextBatch = promisify(consumer.consume).bind(consumer);

async function print(records) {
  const messages = records.map(({ value }) => JSON.parse(value.toString()));
  for (;;) {
    try {
      await pool.query(PRINT, [messages.map(({ id }) => id), messages.map(({ parcel }) => parcel)]);
      return;
    } catch (error) {
      console.error(error.message);
      await pause(200);
    }
  }
}

serve(() => consumer.assignments().length > 0);
let committedMs = Date.now();
for (;;) {
  try {
    const records = await nextBatch(200);
    if (records.length > 0) await print(records);
    if (Date.now() < committedMs + 1000) continue;
    committedMs = Date.now();
    consumer.commit();
  } catch (error) {
    console.error(error.message);
    await pause(200);
  }
}
