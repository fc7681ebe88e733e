/** The oracle's reader of framed Avro records, beside the codec and a registry that serves two
 *  schemas. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import avsc from 'avsc';
import { expect, it, onTestFinished } from 'vitest';
import { framedEvents } from '../../../bench/peers/oracle/framed.ts';
import { Payloads } from '../../../src/formats/payloads.ts';
import { parseSchema } from '../../../src/formats/schema.ts';
import { logicalOrder } from '../../../src/gen/order.ts';
import { ORDER_VERSIONS, orderAsWritten, orderSchema } from '../../../src/gen/order-versions.ts';
import { writerCodec } from '../../../src/serde/codec.ts';

const ORDER = { key: 'account_id', time: 'ts', value: 'amount_cents' };

/** Serves versions of the subject `s`; version n has the id 100 + n. */
async function serve(schemas: readonly string[]): Promise<string> {
  const server = createServer(({ url = '' }, answer) => {
    const version = Number(/^\/subjects\/s\/versions\/(\d+)$/.exec(url)?.[1] ?? 0);
    const all = schemas.map((_, at) => at + 1);
    answer.end(JSON.stringify(version === 0 ? all : { id: 100 + version, schema: schemas[version - 1] }));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function frame(id: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(id, 1);
  return Buffer.concat([head, payload]);
}

it('the oracle reads key, time and value of orders of every schema version', async () => {
  const texts = ORDER_VERSIONS.map((version) => orderSchema(version, 'avro'));
  const read = await framedEvents(await serve(texts), 's', ORDER);
  const payloads = new Payloads(1, 4096);
  for (const version of ORDER_VERSIONS) {
    const { encode } = writerCodec(parseSchema('AVRO', texts[version - 1] as string));
    for (let index = 0; index < 200; index++) {
      const order = logicalOrder(7, index);
      payloads.clear();
      encode(orderAsWritten(order, version), payloads);
      const value = frame(100 + version, payloads.bytes.subarray(0, payloads.used));
      expect(read(value)).toEqual({
        schemaId: 100 + version,
        key: order.account_id,
        timeMs: order.ts,
        value: order.amount_cents,
      });
    }
  }
});

it('the oracle skips fields of every Avro type', async () => {
  const point = { type: 'record', name: 'Point', fields: [{ name: 'x', type: 'double' }] };
  const schema = {
    type: 'record',
    name: 'Event',
    namespace: 'n',
    fields: [
      { name: 'flag', type: 'boolean' },
      { name: 'map', type: { type: 'map', values: { type: 'array', items: 'float' } } },
      { name: 'k', type: 'int' },
      { name: 'point', type: point },
      { name: 'more', type: ['null', 'n.Point', 'bytes'] },
      { name: 'hash', type: { type: 'fixed', name: 'Hash', size: 3 } },
      { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } },
      { name: 'text', type: 'string' },
      { name: 'v', type: 'long' },
    ],
  };
  const event = {
    flag: true,
    map: { a: [1, 2], b: [] },
    k: -3,
    point: { x: 0.5 },
    more: { x: 2 },
    hash: Buffer.from('abc'),
    at: 1_700_000_000_000,
    text: 'zażółć',
    v: -(2 ** 40),
  };
  const payload = avsc.Type.forSchema(schema as avsc.Schema).toBuffer(event);
  const read = await framedEvents(await serve([JSON.stringify(schema)]), 's', {
    key: 'k',
    time: 'at',
    value: 'v',
  });
  expect(read(frame(101, payload))).toEqual({
    schemaId: 101,
    key: -3n,
    timeMs: 1_700_000_000_000n,
    value: -(2n ** 40n),
  });
});

it('a value without a frame, of another schema, cut short or too long is no event', async () => {
  const text = orderSchema(1, 'avro');
  const read = await framedEvents(await serve([text]), 's', ORDER);
  const payloads = new Payloads(1, 4096);
  writerCodec(parseSchema('AVRO', text)).encode(orderAsWritten(logicalOrder(1, 0), 1), payloads);
  const payload = payloads.bytes.slice(0, payloads.used);
  expect(read(frame(101, payload))).toBeDefined();
  for (const value of [
    null,
    Buffer.alloc(0),
    Buffer.from([0, 0, 0]),
    payload,
    frame(102, payload),
    frame(101, payload.subarray(0, -1)),
    frame(101, Buffer.concat([payload, Buffer.of(0)])),
  ])
    expect(read(value)).toBeUndefined();
});

it('a schema without the fields, or with another type of one, is refused', async () => {
  const url = await serve([orderSchema(1, 'avro')]);
  await expect(framedEvents(url, 's', { ...ORDER, key: 'absent' })).rejects.toThrow(
    'schema 101 lacks one of absent, ts, amount_cents',
  );
  await expect(framedEvents(url, 's', { ...ORDER, value: 'currency' })).rejects.toThrow(
    'currency of schema 101 is no integer',
  );
});
