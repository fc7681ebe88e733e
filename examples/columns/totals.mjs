// Sums a topic's orders as columns, and writes the large ones to a second topic:
//   node totals.mjs REGISTRY_URL
import * as arrow from 'apache-arrow';
import { SchemaRegistry } from 'millrace/registry';

const registry = new SchemaRegistry({ url: process.argv[2] });
const price = { type: 'record', name: 'Item', fields: [{ name: 'cents', type: 'long' }] };
const fields = [
  { name: 'id', type: 'long' },
  { name: 'state', type: { type: 'enum', name: 'State', symbols: ['OPEN', 'PAID'] } },
  { name: 'items', type: { type: 'array', items: price } },
];
const schema = { type: 'record', name: 'Order', fields };
const serializer = await registry.serializer({ topic: 'orders', schema, autoRegister: true }).prefetch();
const order = (id, ...cents) => ({ id, state: 'OPEN', items: cents.map((one) => ({ cents: one })) });
// Stands for the values of records from a Kafka client.
const values = [order(1, 250, 300), order(2, 10), order(3)].map((one) => serializer.serialize(one));

// 1. Records to columns, with two of the fields.
const decoder = registry.columnDecoder({ readerSchema: schema, fields: ['id', 'items.cents'] });
const records = await decoder.decode([...values, Buffer.from('no record'), null]);
const { offsets } = records.column('items');
const { values: cents } = records.column('items.cents');
for (let row = 0; row < records.rowCount; row++) {
  if (records.stateOf(row) !== 'ok') console.log(row, records.stateOf(row), records.errorOf(row)?.code);
  else
    console.log(
      row,
      records.row(row).id,
      cents.slice(offsets[row], offsets[row + 1]).reduce((a, b) => a + b, 0n),
    );
}

// 2. The same columns in apache-arrow, without a copy.
console.log(new arrow.Table([records.toArrow(arrow)]).schema.fields.map(({ name }) => name).join());

// 3. Columns to records: of a decoded batch, and of an Arrow table.
const encoder = await registry.columnEncoder({ topic: 'large', schema, autoRegister: true }).prefetch();
const whole = await registry.columnDecoder({ readerSchema: schema }).decode(values);
const framed = encoder.encode(whole);
const table = new arrow.Table([whole.toArrow(arrow)]);
console.log(
  framed.rowCount,
  framed.refusedRows().length,
  encoder.encode(table).record(0).equals(framed.record(0)),
);
decoder.close();
