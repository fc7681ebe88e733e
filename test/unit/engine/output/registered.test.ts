/** Registered records of results: every value of every type comes back, keys are stable, and what
 *  the registry refuses is one error. */
import { describe, expect, it } from 'vitest';
import { coreError } from '../../../../src/core/errors.ts';
import { keyOfText } from '../../../../src/engine/keys/type.ts';
import { columnText, type ResultShape, resultShape } from '../../../../src/engine/output/columns.ts';
import {
  RECORD_FORMATS,
  type RecordFormat,
  RegisteredRecords,
} from '../../../../src/engine/output/registered/records.ts';
import { schemaTextOf } from '../../../../src/engine/output/registered/schemas.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import type { RegistryClient } from '../../../../src/serde/client.ts';
import { serdeError } from '../../../../src/serde/errors.ts';
import { registry } from './registry-kit.ts';

const open = (client: RegistryClient, format: RecordFormat): RegisteredRecords =>
  new RegisteredRecords({ client, format, topic: 'out' });
const UUID = '00112233-4455-6677-8899-aabbccddeeff';
const TUPLE = resultShape({ input: { format: 'json', key: 'b:bytes,u:uuid,n:u64,i:i64,s:string' } });
const keyOf = (shape: ResultShape, text: string): Uint8Array => keyOfText(shape.parts, text) as Uint8Array;
const result = (key: Uint8Array, over: Partial<WindowResult> = {}): WindowResult => ({
  ...{ accountId: 0n, key, windowStart: -(2 ** 52), windowEnd: 2 ** 52, count: 1n },
  ...{ sum: -(1n << 63n), min: -(1n << 63n), max: (1n << 63n) - 1n, lastUpdateTs: -5n, overflow: true },
  ...over,
});

describe.each(RECORD_FORMATS)('registered records in %s', (format) => {
  it('every value of every type comes back exactly', async () => {
    const { client } = registry();
    const records = open(client, format);
    await records.register(TUPLE);
    const texts = [
      `00ff,${UUID},18446744073709551615,-9223372036854775808,a"%2C\n\u{1f511}`,
      `,${UUID},0,0,`,
    ];
    const big = `80,${UUID},128,1,x`;
    for (const text of [...texts, big]) {
      const written = result(keyOf(TUPLE, text));
      const reader = open(client, format);
      const { key, ...read } = (await reader.decode(records.encode(written).value)) as WindowResult;
      const { key: writtenKey, ...others } = written;
      expect(read).toEqual(others);
      // Protobuf has no type for uuids: the part of the key is then their text.
      if (format !== 'protobuf') expect(key).toEqual(writtenKey);
      const columns = (reader.readShape as ResultShape).columns;
      expect(columns.map((one) => columnText(one.read({ ...read, key: key as Uint8Array })))).toEqual(
        TUPLE.columns.map((one) => columnText(one.read(written))),
      );
    }
  });

  it('a list of values comes back exactly, an empty one too', async () => {
    const shape = resultShape({
      input: { format: 'json', key: 's:string', aggregate: 'topk(sku,3),topk(b,1) as other,count' },
    });
    const { client } = registry();
    const records = open(client, format);
    await records.register(shape);
    const list = JSON.stringify([
      { value: 'a"\u00e9', count: 2 ** 47 },
      { value: '', count: 1 },
    ]);
    const aggregates = [list, 0, '[]', 3, 9n] as const;
    const written = result(keyOf(shape, 'x'), { aggregates });
    const aggregate = 'topk(sku,3),topk(b,1) as other,count';
    const reader = new RegisteredRecords({ client, format, topic: 'out', aggregate });
    const read = await reader.decode(records.encode(written).value);
    expect(read?.aggregates).toEqual(aggregates);
  });

  it('decimals come back exactly, with all their decimal places', async () => {
    const aggregate = 'sum(p:decimal2),avg(p:decimal2),min(p:decimal0),last(p:decimal18)';
    const shape = resultShape({ input: { format: 'json', key: 's:string', aggregate } });
    const { client, versions } = registry();
    const records = open(client, format);
    await records.register(shape);
    for (const aggregates of [
      ['-0.01', '0.00000000', '-9223372036854775808', '9.223372036854775807'],
      ['12.50', null, '127', '-0.000000000000000001'],
      ['850705917302346158658436518579420528.64', '-1.28000000', '128', null],
    ]) {
      const written = result(keyOf(shape, 'x'), { aggregates });
      const reader = new RegisteredRecords({ client, format, topic: 'out', aggregate });
      const read = await reader.decode(records.encode(written).value);
      expect(read?.aggregates).toEqual(aggregates);
    }
    const text = versions.get('out-value')?.[0]?.schema.text ?? '';
    if (format === 'avro') expect(text).toContain('"logicalType":"decimal","precision":38,"scale":8');
    else
      expect(text).toContain(format === 'json' ? '"sum_p":{"type":"string"' : 'optional string sum_p = 4;');
  });

  it('a double comes back exactly, also one that is no finite number', async () => {
    const aggregate = 'sum(d:double),min(d:double),max(d:double),p50(d:double),avg(i)';
    const shape = resultShape({ input: { format: 'json', key: 's:string', aggregate } });
    const { client } = registry();
    const records = open(client, format);
    await records.register(shape);
    for (const aggregates of [
      [Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, Number.NaN, 1 / 129, 0.1],
      [-0, 5e-324, Number.MAX_VALUE, -1e-7, 1 / 129, -0],
      [0, null, -1e21, null, null, 2 ** 53],
    ]) {
      const written = result(keyOf(shape, 'x'), { aggregates });
      const reader = new RegisteredRecords({ client, format, topic: 'out', aggregate });
      const read = await reader.decode(records.encode(written).value);
      expect(read?.aggregates).toEqual(aggregates);
    }
  });

  it('an integer key comes back with its sign, from the schema alone', async () => {
    for (const [key, value] of [
      ['id', -2n],
      ['id:u64', (1n << 64n) - 2n],
    ] as const) {
      const shape = resultShape({ input: { format: 'json', key } });
      const { client } = registry();
      const records = open(client, format);
      await records.register(shape);
      const { key: _, ...written } = result(new Uint8Array(0), { accountId: (1n << 64n) - 2n });
      const reader = open(client, format);
      const read = await reader.decode(records.encode(written).value);
      expect(read?.accountId).toBe(written.accountId);
      expect(reader.readShape?.columns[0]?.read(written)).toBe(value);
    }
  });

  it('a record key depends on the key and the window alone', async () => {
    const { client } = registry();
    const records = open(client, format);
    await records.register(TUPLE);
    const hex = (one: WindowResult): string => Buffer.from(records.encode(one).key).toString('hex');
    const one = result(keyOf(TUPLE, `00,${UUID},1,2,x`));
    expect(hex({ ...one, count: 9n, sum: 4n })).toBe(hex(one));
    expect(hex({ ...one, windowStart: 0 })).not.toBe(hex(one));
    expect(hex(result(keyOf(TUPLE, `00,${UUID},1,2,y`)))).not.toBe(hex(one));
    const again = open(client, format);
    await again.find(TUPLE);
    expect(Buffer.from(again.encode(one).key).toString('hex')).toBe(hex(one));
  });

  it('schemas that are not registered are missing, and what is no result is none', async () => {
    const { client } = registry();
    await expect(open(client, format).find(TUPLE)).rejects.toMatchObject({
      code: 'sink_missing',
      next: expect.stringContaining('-migrate'),
    });
    await client.register('other', 'AVRO', '"string"');
    expect(await open(client, format).decode(Uint8Array.of(0, 0, 0, 0, 1, 2, 65))).toBeUndefined();
    expect(await open(client, format).decode(Uint8Array.of(1, 2, 3))).toBeUndefined();
  });
});

describe('doubles in JSON records', () => {
  const shapeOf = (aggregate: string): ResultShape =>
    resultShape({ input: { format: 'json', key: 's:string', aggregate } });
  const jsonOf = (records: RegisteredRecords, shape: ResultShape, aggregates: readonly number[]): unknown =>
    JSON.parse(
      Buffer.from(records.encode(result(keyOf(shape, 'x'), { aggregates })).value.subarray(5)).toString(),
    );

  it('a double that is no finite number is a text', async () => {
    const shape = shapeOf('sum(d:double),min(d:double),max(d:double)');
    const records = open(registry().client, 'json');
    await records.register(shape);
    const json = jsonOf(records, shape, [Number.NaN, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]);
    expect(json).toMatchObject({ sum_d: 'NaN', min_d: '-Infinity', max_d: 'Infinity' });
  });

  it('a subject whose doubles are numbers alone keeps its schema, and other doubles are left out of its records', async () => {
    const [shape, more] = [shapeOf('sum(d:double)'), shapeOf('sum(d:double),max(d:double)')];
    const { client, versions } = registry();
    const earlier = shape.columns.map(({ mayBeNonFinite, ...column }) => column);
    await client.register('out-value', 'JSON', schemaTextOf('JSON', 'value', earlier, undefined));
    const records = open(client, 'json');
    await records.register(shape);
    expect(versions.get('out-value')).toHaveLength(1);
    expect(jsonOf(records, shape, [Number.NaN])).not.toHaveProperty('sum_d');
    expect(jsonOf(records, shape, [1.5])).toMatchObject({ sum_d: 1.5 });
    const extended = open(client, 'json');
    await extended.register(more);
    const json = jsonOf(extended, more, [Number.NaN, Number.NaN]);
    expect(json).toMatchObject({ max_d: 'NaN' });
    expect(json).not.toHaveProperty('sum_d');
  });
});

describe('a registry that refuses', () => {
  it('a schema that its subject refuses is one error that names subject and reason', async () => {
    const { client } = registry(serdeError('incompatible', 'field must was removed'));
    await expect(open(client, 'avro').register(TUPLE)).rejects.toMatchObject({
      code: 'sink_refused',
      message: expect.stringMatching(/subject out-value: field must was removed/),
      next: expect.stringContaining('compatibility level'),
    });
  });

  it('no part is registered when the registry finds one of them not compatible', async () => {
    const { client, versions } = registry();
    await client.register('out-value', 'AVRO', '"string"');
    const judging = {
      ...client,
      judge: async () => ({ compatible: false, messages: ['no union', 'no record'] }),
    };
    await expect(open(judging as unknown as RegistryClient, 'avro').register(TUPLE)).rejects.toMatchObject({
      code: 'sink_refused',
      message: expect.stringMatching(/subject out-value: no union; no record/),
    });
    expect([...versions.keys()]).toEqual(['out-value']);
  });

  it('a registry that is away stays an error to wait on', async () => {
    const { client } = registry(coreError('unreachable', 'no answer'));
    await expect(open(client, 'json').register(TUPLE)).rejects.toMatchObject({ code: 'unreachable' });
  });
});
