// Publishes the messages of the outbox in the order of their ids, and marks them once the broker
// has acknowledged them. After a crash in between it publishes them again.
import rdkafka from 'node-rdkafka';
import { pause, pool, serve } from './parts.mjs';

const producer = new rdkafka.Producer({
  'metadata.broker.list': process.env.BROKERS,
  'enable.idempotence': true,
  'message.timeout.ms': 5000,
  dr_cb: true,
});
producer.setPollInterval(20);
producer.on('event.error', (error) => console.error(error.message));
producer.on('delivery-report', (error, { opaque }) => opaque(error));
await new Promise((resolve, reject) =>
  producer.connect({ timeout: 60_000 }, (error) => (error ? reject(error) : resolve())),
);

const publish = ({ id, parcel_id: parcel }) =>
  new Promise((resolve, reject) => {
    const done = (error) => (error ? reject(error) : resolve());
    producer.produce(
      process.env.TOPIC,
      null,
      Buffer.from(JSON.stringify({ id, parcel })),
      parcel,
      null,
      done,
    );
  });

let isReady = false;
serve(() => isReady);
for (;;) {
  try {
    const { rows } = await pool.query('SELECT * FROM outbox WHERE sent_at IS NULL ORDER BY id LIMIT 200');
    await Promise.all(rows.map(publish));
    await pool.query('UPDATE outbox SET sent_at = now() WHERE id = ANY($1)', [rows.map(({ id }) => id)]);
    isReady = true;
    if (rows.length === 0) await pause(50);
  } catch (error) {
    console.error(error.message);
    isReady = false;
    await pause(200);
  }
}
