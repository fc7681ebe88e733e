// Each stdin line `PARCEL STATUS` updates a parcel and appends an event, in one transaction. A
// relay publishes the events; a consumer records each exactly once in `history`, despite any crash.
import { createInterface } from 'node:readline';
import { openDrivers, readBrokerConfig } from 'millrace/drivers';
import { append, Service } from 'millrace/outbox';

const [brokers, postgres, schema, topic] = process.argv.slice(2);
const drivers = await openDrivers(readBrokerConfig({ env: process.env }));
const service = await Service.open({ ...drivers, name: 'shipping', brokers, postgres, schema });
const parts = { outboxTable: 'parcel_outbox', inbox: 'history_inbox', parkedTable: 'history_parked' };
const tables = `CREATE TABLE parcels (parcel uuid PRIMARY KEY, status text NOT NULL);
   CREATE TABLE history (place bigserial PRIMARY KEY, parcel uuid NOT NULL, status text NOT NULL);`;
await service.migrate([tables], parts);
await service.relay({ table: parts.outboxTable, topic });
const handle = async (tx, record) => {
  const { parcel, status } = JSON.parse(Buffer.from(record.value).toString()).payload;
  await tx.query('INSERT INTO history (parcel, status) VALUES ($1, $2)', [parcel, status]);
};
service.consume({ ...parts, topic, handle });
// A part that ended with an error has logged it. A supervisor starts the process again.
service.failure().catch(() => process.exit(1));

for await (const line of createInterface({ input: process.stdin })) {
  const [parcel, status] = line.split(' ');
  const event = { aggregateId: parcel, eventType: 'parcel.moved.v1', payload: { parcel, status } };
  await service.pool.transaction(async (tx) => {
    // Locks the row first, so that a parcel's events have the order of its moves.
    const sql = `INSERT INTO parcels VALUES ($1, $2)
      ON CONFLICT (parcel) DO UPDATE SET status = $2 WHERE parcels.status < $2`;
    if ((await tx.query(sql, [parcel, status])).rowCount > 0) await append(tx, parts.outboxTable, [event]);
  });
}
await service.close();
