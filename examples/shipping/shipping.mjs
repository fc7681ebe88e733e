// Shipping has tables of its own. A line `PARCEL STATUS` on stdin moves a parcel on: its row and its event commit together. A relay
// publishes the events; a consumer of them keeps a history in which each stands once, whatever is killed when.
import { createInterface } from 'node:readline';
import { Metrics, openBroker, openSql, stderrLogger, systemClock } from 'millrace/drivers';
import { append, inboxTableSql, outboxTableSql, parkedTableSql, Service } from 'millrace/outbox';
import pg from 'pg';

const [brokers, postgres, schema, topic] = process.argv.slice(2);
const drivers = { sql: await openSql(), broker: await openBroker(), clock: systemClock };
const watching = { metrics: new Metrics(), log: stderrLogger('warn') };
const shipping = await Service.open({ ...drivers, ...watching, name: 'shipping', brokers, postgres, schema });
await shipping.migrate([
  `CREATE TABLE parcels (parcel uuid PRIMARY KEY, status text NOT NULL);
   CREATE TABLE history (place bigserial PRIMARY KEY, parcel uuid NOT NULL, status text NOT NULL);`,
  outboxTableSql('parcel_outbox') + inboxTableSql('history_inbox') + parkedTableSql('history_parked'),
]);
await shipping.relay({ table: 'parcel_outbox', topic });
shipping.consume({
  topic,
  inbox: 'history_inbox',
  parkedTable: 'history_parked',
  outboxTable: 'parcel_outbox',
  handle: async (session, record) => {
    const { parcel, status } = JSON.parse(Buffer.from(record.value).toString()).payload;
    await session.query('INSERT INTO history (parcel, status) VALUES ($1, $2)', [parcel, status]);
  },
});

const client = new pg.Client(shipping.postgres);
await client.connect();
for await (const line of createInterface({ input: process.stdin })) {
  const [parcel, status] = line.split(' ');
  await client.query('BEGIN');
  // The row's lock comes first, so that the events of a parcel have the order of its moves.
  const moved = `INSERT INTO parcels VALUES ($1, $2)
    ON CONFLICT (parcel) DO UPDATE SET status = $2 WHERE parcels.status < $2`;
  if ((await client.query(moved, [parcel, status])).rowCount > 0) {
    const event = { aggregateId: parcel, eventType: 'parcel.moved.v1', payload: { parcel, status } };
    await append(client, 'parcel_outbox', [event]);
  }
  await client.query('COMMIT');
}
await client.end();
await shipping.close();
