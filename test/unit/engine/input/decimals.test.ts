/** Decimals of every format as values: exact at the stated places, or an invalid record that says
 *  why. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { CONFLUENT, GOOGLE, proto, twos, valuesIn } from './decimals-kit.ts';
import { avro, decoded, json, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const ASKED = { key: 'k', time: '@timestamp', aggregate: 'sum(v:decimal2)' } as const;
const decimal = (precision: number, scale: number) => ({
  ...{ type: 'bytes', logicalType: 'decimal' },
  ...{ precision, scale },
});
const fixed = (size: number, precision: number, scale: number) => ({
  ...{ type: 'fixed', name: 'F', size, logicalType: 'decimal' },
  ...{ precision, scale },
});
const GREATEST = 2n ** 63n - 1n;

describe('decimals of JSON', () => {
  it.each([
    ['12.5', 1250n],
    ['-0.01', -1n],
    ['7', 700n],
    ['1e2', 10_000n],
    ['12.500000', 1250n],
    ['-0.0', 0n],
    ['123456789012345.67', 12_345_678_901_234_567n],
    ['92233720368547758.07', GREATEST],
    ['-92233720368547758.08', -(2n ** 63n)],
    ['92233720368547758.08', 'BAD_VALUE'],
    ['0.001', 'BAD_VALUE'],
    ['12.505', 'BAD_VALUE'],
    ['1e17', 'BAD_VALUE'],
    ['1e999', 'BAD_VALUE'],
    ['9223372036854775807', 'BAD_VALUE'],
    ['"12.50"', 1250n],
    ['"+1."', 100n],
    ['".5"', 50n],
    ['"1\\u0032.50"', 1250n],
    ['"1e-2"', 1n],
    ['""', 'BAD_VALUE'],
    ['"12,50"', 'BAD_VALUE'],
    ['" 1"', 'BAD_VALUE'],
    ['"\\u0661"', 'BAD_VALUE'],
    ['"NaN"', 'BAD_VALUE'],
    ['true', 'BAD_VALUE'],
    ['{}', 'BAD_VALUE'],
    ['null', null],
  ])('the value %s is %s hundredths', async (text, expected) => {
    const { input } = openedInput({ format: 'json', ...ASKED });
    expect(await valuesIn(input, recordsOf([json(`{"k":1,"v":${text}}`), json('{"k":1}')]))).toEqual([
      expected,
      null,
    ]);
  });

  it('a text is read up to its limit of 1,000 characters', async () => {
    const { input } = openedInput({ format: 'json', ...ASKED });
    const texts = [`${'0'.repeat(999)}1`, `${'0'.repeat(1000)}1`, `${'9'.repeat(100_000)}`];
    const records = recordsOf(texts.map((v) => json({ k: 1, v })));
    expect(await valuesIn(input, records)).toEqual([100n, 'BAD_VALUE', 'BAD_VALUE']);
  });

  it('a decimal of -value is the value of the event, and a record without it is invalid', async () => {
    const { input } = openedInput({ format: 'json', key: 'k', value: 'v.a:decimal1', time: '@timestamp' });
    const rows = await decoded(
      input,
      recordsOf(
        ['{"a":"2.5"}', '{"a":-3}', '{"a":2.55}', '{"a":null}', '{}', 'null'].map((v) =>
          json(`{"k":1,"v":${v}}`),
        ),
      ),
    );
    expect(rows).toEqual([
      [1n, 5000n, 25n],
      [1n, 5001n, -30n],
      'BAD_VALUE',
      'MISSING_FIELD',
      'MISSING_FIELD',
      'MISSING_FIELD',
    ]);
    expect(input.definition).toMatchObject({ value: 'v.a:decimal1' });
  });

  it('an invalid record names its field and value', async () => {
    const { input } = openedInput({ format: 'json', ...ASKED });
    const records = recordsOf([json('{"k":1,"v":"1.005"}')]);
    await input.decode(records, EventBatch.create(1));
    expect(input.describe(records, 0)).toContain('v is "1.005"');
  });
});

describe.each(SIDES)('decimals of framed records on the %s kernels', (side) => {
  const read = async (
    schema: string,
    values: readonly unknown[],
    format: 'avro' | 'protobuf' = 'avro',
    aggregate: string = ASKED.aggregate,
  ) => {
    const registry = new MemoryRegistry();
    const id = registry.add(format === 'avro' ? 'AVRO' : 'PROTOBUF', schema);
    const { input } = openedInput({ ...ASKED, format, aggregate }, { side, registry });
    const records = recordsOf(values.map((v) => registry.frame(id, { k: 1n, v })));
    const found = await valuesIn(input, records);
    return { found, faults: found.map((_, row) => input.describe(records, row)) };
  };
  const avroOf = (type: unknown): string => avro({ name: 'k', type: 'long' }, { name: 'v', type });

  it('bytes of Avro have the places of their type, and a longer form of a number is the number', async () => {
    const { found } = await read(avroOf(['null', decimal(30, 2)]), [
      ...[twos(1250n), twos(-1n), twos(0n), twos(1250n, 12), twos(-1n, 600), twos(GREATEST), null],
      ...[twos(GREATEST + 1n), twos(-GREATEST - 1n), Buffer.alloc(0), Buffer.alloc(600, 0x7f)],
    ]);
    expect(found).toEqual([
      ...[1250n, -1n, 0n, 1250n, -1n, GREATEST, null],
      ...['BAD_VALUE', -GREATEST - 1n, 'BAD_VALUE', 'BAD_VALUE'],
    ]);
  });

  it('bytes of Avro with other places are converted exactly, or the record is invalid and says why', async () => {
    const { found, faults } = await read(avroOf(decimal(30, 4)), [
      ...[twos(12_500n), twos(-100n), twos(12_505n), twos(GREATEST * 100n), twos(GREATEST * 1000n)],
      Buffer.alloc(0),
    ]);
    expect(found).toEqual([125n, -1n, 'BAD_VALUE', GREATEST, 'BAD_VALUE', 'BAD_VALUE']);
    expect([faults[2], faults[4], faults[5]]).toEqual([
      'schema 1: v has more than 2 decimal places',
      'schema 1: v is beyond 92233720368547758.07',
      'schema 1: v is no decimal number',
    ]);
    expect((await read(avroOf(decimal(9, 0)), [twos(3n)])).found).toEqual([300n]);
  });

  it.each([
    [1, 2],
    [8, 18],
    [9, 20],
    [16, 38],
    [17, 40],
    [32, 76],
    [33, 78],
  ])('a fixed of %i bytes is a decimal', async (size, precision) => {
    const most = size < 8 ? 99n : GREATEST;
    const values = [0n, 1n, -1n, 77n, -most, most];
    const { found } = await read(
      avroOf(fixed(size, precision, 2)),
      values.map((value) => twos(value, size)),
    );
    expect(found).toEqual(values);
    if (size > 8)
      expect((await read(avroOf(fixed(size, 20, 2)), [twos(GREATEST + 1n, size)])).found).toEqual([
        'BAD_VALUE',
      ]);
  });

  it('integers and strings of Avro are decimals where the job says so', async () => {
    expect((await read(avroOf('int'), [7, -7])).found).toEqual([700n, -700n]);
    expect((await read(avroOf('long'), [2n ** 55n, 2n ** 62n, -(2n ** 40n)])).found).toEqual([
      100n * 2n ** 55n,
      'BAD_VALUE',
      -100n * 2n ** 40n,
    ]);
    expect((await read(avroOf(['null', 'string']), ['1.5', 'x', null, '1.005'])).found).toEqual([
      150n,
      'BAD_VALUE',
      null,
      'BAD_VALUE',
    ]);
  });

  it('a string, integers and both decimal messages of Protobuf are decimals', async () => {
    const of = async (head: string, type: string, values: readonly unknown[]) =>
      (await read(proto(head, `message M { int64 k = 1; ${type} v = 2; }`), values, 'protobuf')).found;
    expect(await of('', 'string', ['12.50', '-1', '', 'x', '1.005'])).toEqual([
      1250n,
      -100n,
      'BAD_VALUE',
      'BAD_VALUE',
      'BAD_VALUE',
    ]);
    expect(await of('', 'optional string', ['1.5', undefined])).toEqual([150n, null]);
    expect(await of('', 'uint64', [2n ** 63n, 5n])).toEqual(['BAD_VALUE', 500n]);
    expect(await of('', 'uint32', [2 ** 32 - 1])).toEqual([429_496_729_500n]);
    expect(
      await of(GOOGLE, 'google.type.Decimal', [{ value: '2.5e1' }, { value: '' }, undefined, { value: 'x' }]),
    ).toEqual([2500n, 0n, null, 'BAD_VALUE']);
    const confluent = (value: Buffer, scale: number) => ({ value, precision: 40, scale });
    expect(
      await of(CONFLUENT, 'confluent.type.Decimal', [
        ...[confluent(twos(1250n), 2), confluent(twos(-125n), 1), confluent(twos(3n), -2)],
        ...[confluent(twos(12_500n), 3), confluent(twos(1n), 3), confluent(twos(1n), -(2 ** 31))],
        ...[confluent(twos(1n), 2 ** 31 - 1), confluent(twos(0n), 2 ** 31 - 1)],
        ...[confluent(Buffer.alloc(0), 0), undefined],
      ]),
    ).toEqual([1250n, -1250n, 30_000n, 1250n, 'BAD_VALUE', 'BAD_VALUE', 'BAD_VALUE', 0n, 'BAD_VALUE', null]);
  });

  it('a decimal of -value is the value of the event, and null makes the record invalid', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avroOf(['null', decimal(9, 2)]));
    const asked = { format: 'avro', key: 'k', value: 'v:decimal3', time: '@timestamp' } as const;
    const { input } = openedInput(asked, { side, registry });
    const records = recordsOf([twos(-150n), null].map((v) => registry.frame(id, { k: 1n, v })));
    expect(await decoded(input, records)).toEqual([[1n, 5000n, -1500n], 'MISSING_FIELD']);
    const other = new MemoryRegistry();
    const m = other.add('PROTOBUF', proto(GOOGLE, 'message M { int64 k = 1; google.type.Decimal v = 2; }'));
    const messages = openedInput({ ...asked, format: 'protobuf' }, { side, registry: other }).input;
    const frames = [{ value: '-1.5' }, undefined].map((v) => other.frame(m, { k: 1n, v }));
    expect(await decoded(messages, recordsOf(frames))).toEqual([[1n, 5000n, -1500n], 'MISSING_FIELD']);
  });

  it('a writer that changes the places of its type is read exactly, each record by its own schema', async () => {
    const registry = new MemoryRegistry();
    const ids = [decimal(9, 1), decimal(9, 3), 'long', 'string'].map((type) =>
      registry.add('AVRO', avroOf(type)),
    );
    const { input } = openedInput({ format: 'avro', ...ASKED }, { side, registry });
    const values = [twos(15n), twos(1500n), 2n, '2.25'];
    const records = recordsOf(values.map((v, at) => registry.frame(ids[at] as number, { k: 1n, v })));
    expect(await valuesIn(input, records)).toEqual([150n, 150n, 200n, 225n]);
  });

  it('conditions compare decimals exactly, and read texts as decimals where they say so', async () => {
    const held = async (
      format: 'avro' | 'protobuf',
      schema: string,
      where: string,
      values: readonly unknown[],
    ) => {
      const registry = new MemoryRegistry();
      const id = registry.add(format === 'avro' ? 'AVRO' : 'PROTOBUF', schema);
      const { input } = openedInput({ format, key: 'k', time: '@timestamp', where }, { side, registry });
      const rows = await decoded(input, recordsOf(values.map((v) => registry.frame(id, { k: 1n, v }))));
      return rows.map((row) => Array.isArray(row));
    };
    const money = avroOf(['null', decimal(40, 2)]);
    const big = 10n ** 20n;
    expect(await held('avro', money, 'v >= 0.3', [twos(30n), twos(29n), null])).toEqual([true, false, false]);
    expect(
      await held('avro', money, `v = ${big}.01`, [twos(big * 100n + 1n), twos(big * 100n + 2n)]),
    ).toEqual([true, false]);
    expect(await held('avro', money, 'v is null', [twos(0n), null])).toEqual([false, true]);
    const long = [twos(-1n, 600), Buffer.alloc(600, 0x55), Buffer.alloc(0)];
    expect(await held('avro', money, 'v < 0 or v >= 0', long)).toEqual([true, false, false]);
    expect(await held('avro', avroOf(fixed(16, 38, 2)), 'v < -0.01', [twos(-2n, 16), twos(-1n, 16)])).toEqual(
      [true, false],
    );
    expect(
      await held('avro', avroOf('string'), 'v:decimal > 9', ['10', '9', 'x', '9.0000000000000001']),
    ).toEqual([true, false, false, true]);
    expect(await held('avro', avroOf('string'), 'v > 9', ['10'])).toEqual([false]);
    expect(await held('avro', avroOf('long'), 'v:decimal > 9.5', [10n, 9n])).toEqual([true, false]);
    const google = proto(GOOGLE, 'message M { int64 k = 1; google.type.Decimal v = 2; }');
    expect(
      await held('protobuf', google, 'v <= 2.5', [{ value: '2.50' }, { value: '2.51' }, undefined]),
    ).toEqual([true, false, false]);
    const confluent = proto(CONFLUENT, 'message M { int64 k = 1; confluent.type.Decimal v = 2; }');
    const of = (value: bigint, scale: number) => ({ value: twos(value), precision: 9, scale });
    expect(await held('protobuf', confluent, 'v = 2.5', [of(25n, 1), of(2500n, 3), of(25n, 2)])).toEqual([
      true,
      true,
      false,
    ]);
  });

  it.each([
    ['sum(v)', decimal(9, 3), 'state its decimal places: sum(v:decimal3)'],
    ['sum(v:double)', fixed(16, 20, 5), 'state its decimal places: sum(v:decimal5)'],
    ['sum(v)', decimal(40, 25), 'state its decimal places, up to 18, such as sum(v:decimal18)'],
    ['sum(v:decimal2)', 'double', 'a decimal or a text of digits with its decimal places'],
    ['sum(v:decimal2)', 'boolean', 'a decimal or a text of digits with its decimal places'],
    ['sum(v:decimal2)', 'bytes', 'a decimal or a text of digits with its decimal places'],
    ['sum(v:decimal2)', { type: 'string', logicalType: 'uuid' }, 'a decimal or a text of digits'],
  ])('the aggregate %s of another type is refused with what to give', async (aggregate, type, next) => {
    await expect(read(avroOf(type), [undefined].slice(1), 'avro', aggregate)).resolves.toMatchObject({
      found: [],
    });
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avroOf(type));
    const { input } = openedInput({ ...ASKED, format: 'avro', aggregate }, { side, registry });
    const records = recordsOf([Buffer.from([0, 0, 0, 0, id, 2, 0])]);
    await expect(valuesIn(input, records)).rejects.toMatchObject({
      code: 'unsupported_field',
      next: expect.stringContaining(next),
    });
  });

  it('a decimal as an integer value is refused with the flag to give', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avroOf(decimal(9, 4)));
    const more = { format: 'avro', key: 'k', time: '@timestamp' } as const;
    const records = recordsOf([registry.frame(id, { k: 1n, v: twos(1n) })]);
    const plain = openedInput({ ...more, value: 'v' }, { side, registry }).input;
    await expect(decoded(plain, records)).rejects.toMatchObject({
      code: 'unsupported_field',
      next: 'state its decimal places: -value=v:decimal4',
    });
    const missing = openedInput({ ...more, value: 'gone:decimal2' }, { side, registry }).input;
    expect(await decoded(missing, records)).toEqual(['MISSING_FIELD']);
    expect(missing.describe(records, 0)).toContain('no field gone (-value)');
    const other = new MemoryRegistry();
    const m = other.add('PROTOBUF', proto(GOOGLE, 'message M { int64 k = 1; google.type.Decimal v = 2; }'));
    const message = recordsOf([other.frame(m, { k: 1n, v: { value: '1' } })]);
    const asked = { ...more, format: 'protobuf', value: 'v' } as const;
    await expect(decoded(openedInput(asked, { side, registry: other }).input, message)).rejects.toMatchObject(
      {
        code: 'unsupported_field',
        next: 'state its decimal places, up to 18, such as -value=v:decimal2',
      },
    );
  });
});
