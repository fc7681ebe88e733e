/** Avro records as events: fields, units, nested records, schemas that change in the stream. */
import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { serdeError } from '../../../../src/serde/errors.ts';
import { avro, decoded, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const ID = { name: 'id', type: 'long' };
const AMOUNT = { name: 'amount', type: 'int' };
const timeOf = (logicalType: string, name = 'at') => ({ name, type: { type: 'long', logicalType } });
const U64 = (id: bigint): bigint => BigInt.asUintN(64, id);
const FIELDS = { key: 'id', time: 'at', value: 'amount' } as const;

describe.each(SIDES)('Avro input with %s kernels', (side) => {
  it('fields of a record become key, time and value, with a negative key as its 64 bits', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'AVRO',
      avro({ name: 'note', type: 'string' }, ID, timeOf('timestamp-millis'), AMOUNT),
    );
    const { input } = openedInput({ format: 'avro', ...FIELDS }, { side, registry });
    const value = (key: bigint, at: bigint, amount: number) =>
      registry.frame(id, { note: 'x', id: key, at, amount });
    const rows = await decoded(
      input,
      recordsOf([
        value(7n, 1000n, 5),
        value(-1n, -3n, -5),
        null,
        Buffer.from('no frame'),
        value(-(1n << 63n), 0n, 0),
      ]),
    );
    expect(rows).toEqual([[7n, 1000n, 5n], [U64(-1n), -3n, -5n], 'NULL', 'BAD_MAGIC', [1n << 63n, 0n, 0n]]);
    expect(registry.requests).toBe(2);
  });

  it('times of every unit are rounded down to ms', async () => {
    const cases: ReadonlyArray<readonly [unknown, string, bigint, bigint | string]> = [
      [timeOf('timestamp-millis'), 'at', -1n, -1n],
      [timeOf('timestamp-micros'), 'at', 1_700_000_000_123_999n, 1_700_000_000_123n],
      [timeOf('timestamp-micros'), 'at', -1n, -1n],
      [timeOf('timestamp-nanos'), 'at', 1_700_000_000_123_999_999n, 1_700_000_000_123n],
      [timeOf('timestamp-nanos'), 'at', -1_000_001n, -2n],
      [{ name: 'at', type: 'long' }, 'at:s', 1_700_000_000n, 1_700_000_000_000n],
      [{ name: 'at', type: 'long' }, 'at:us', -1n, -1n],
      [{ name: 'at', type: 'long' }, 'at:ms', 1n << 52n, 'BAD_TIME'],
      [{ name: 'at', type: 'long' }, 'at:s', (1n << 63n) - 1n, 'BAD_TIME'],
      [{ name: 'at', type: 'long' }, 'at:ns', -(1n << 63n), -9_223_372_036_855n],
    ];
    for (const [field, time, at, expected] of cases) {
      const registry = new MemoryRegistry();
      const id = registry.add('AVRO', avro(ID, field));
      const { input } = openedInput({ format: 'avro', key: 'id', time }, { side, registry });
      const [row] = await decoded(input, recordsOf([registry.frame(id, { id: 1n, at })]));
      expect([time, at, typeof row === 'string' ? row : row?.[1]]).toEqual([time, at, expected]);
    }
  });

  it('ISO 8601 texts are times', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(ID, { name: 'at', type: ['null', 'string'] }));
    const { input } = openedInput({ format: 'avro', key: 'id', time: 'at' }, { side, registry });
    const texts = ['2026-01-31T12:00:00.5+01:00', '2026-01-31T12:00:00', null];
    const rows = await decoded(input, recordsOf(texts.map((at) => registry.frame(id, { id: 1n, at }))));
    expect(rows).toEqual([
      [1n, BigInt(Date.parse('2026-01-31T11:00:00.5Z')), 0n],
      'BAD_TIME',
      'MISSING_FIELD',
    ]);
  });

  it('paths lead through nested and optional records; a null on the path is a missing field', async () => {
    const registry = new MemoryRegistry();
    const customer = { type: 'record', name: 'Customer', fields: [{ name: 'id', type: ['null', 'long'] }] };
    const id = registry.add(
      'AVRO',
      avro({ name: 'customer', type: ['null', customer] }, timeOf('timestamp-millis')),
    );
    const { input } = openedInput({ format: 'avro', key: 'customer.id', time: 'at' }, { side, registry });
    const values = [
      { customer: { id: 3n }, at: 9n },
      { customer: { id: null }, at: 9n },
      { customer: null, at: 9n },
    ];
    const rows = await decoded(input, recordsOf(values.map((value) => registry.frame(id, value))));
    expect(rows).toEqual([[3n, 9n, 0n], 'MISSING_FIELD', 'MISSING_FIELD']);
  });

  it('each writer of a mixed batch is read by its own schema', async () => {
    const registry = new MemoryRegistry();
    const int = registry.add('AVRO', avro({ name: 'id', type: 'int' }, timeOf('timestamp-millis'), AMOUNT));
    const long = registry.add('AVRO', avro(timeOf('timestamp-micros'), { name: 'amount', type: 'long' }, ID));
    const { input } = openedInput({ format: 'avro', ...FIELDS }, { side, registry });
    const values = Array.from({ length: 50 }, (_, i) =>
      i % 3 === 0
        ? registry.frame(int, { id: -i, at: BigInt(i), amount: i })
        : registry.frame(long, { at: BigInt(i) * 1000n, amount: 1n << 40n, id: BigInt(i) << 40n }),
    );
    const rows = await decoded(input, recordsOf(values));
    expect(rows).toEqual(
      values.map((_, i) => {
        const at = BigInt(i);
        return i % 3 === 0 ? [U64(-at), at, at] : [at << 40n, at, 1n << 40n];
      }),
    );
  });

  it('the schema of the subject resolves renamed fields and defaults that an older writer lacks', async () => {
    const registry = new MemoryRegistry();
    const old = registry.add('AVRO', avro({ name: 'account', type: 'int' }, timeOf('timestamp-millis')));
    const bare = registry.add('AVRO', avro(timeOf('timestamp-millis')));
    const text = avro({ name: 'id', type: 'long', aliases: ['account'] }, timeOf('timestamp-millis'), {
      name: 'amount',
      type: 'long',
      default: 4,
    });
    const { input } = openedInput(
      { format: 'avro', ...FIELDS },
      { side, registry, reader: parseSchema('AVRO', text) },
    );
    const records = recordsOf([
      registry.frame(old, { account: -2, at: 8n }),
      registry.frame(bare, { at: 8n }),
    ]);
    expect(await decoded(input, records)).toEqual([[U64(-2n), 8n, 4n], 'MISSING_FIELD']);
    expect(input.describe(records, 1)).toBe('schema 2: its schema has no field id (-key), and no default');
  });

  it('a writer without the key, an unknown id and a broken payload have their reasons', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(ID, timeOf('timestamp-millis')));
    const other = registry.add('AVRO', avro(timeOf('timestamp-millis')));
    const text = registry.add('AVRO', avro({ name: 'id', type: 'string' }, timeOf('timestamp-millis')));
    const proto = registry.add('PROTOBUF', 'syntax = "proto3"; message M { int64 id = 1; }');
    const { input } = openedInput({ format: 'avro', key: 'id' }, { side, registry });
    const good = registry.frame(id, { id: 1n, at: 2n });
    const rows = await decoded(
      input,
      recordsOf([
        good,
        registry.frame(other, { at: 2n }),
        Buffer.from([0, 0, 0, 0, 77, 1]),
        good.subarray(0, good.length - 1),
        Buffer.from([0, 0]),
        registry.frame(text, { id: 'x', at: 2n }),
        registry.frame(proto, { id: 1n }),
      ]),
    );
    expect(rows).toEqual([
      [1n, 2n, 0n],
      'MISSING_FIELD',
      'UNKNOWN_SCHEMA_ID',
      'MALFORMED_PAYLOAD',
      'TRUNCATED_FRAME',
      'INCOMPATIBLE_SCHEMA',
      'INCOMPATIBLE_SCHEMA',
    ]);
  });

  it('a condition selects rows by texts, numbers, enums and nulls; the others keep their time only', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'AVRO',
      avro(
        ID,
        timeOf('timestamp-millis'),
        AMOUNT,
        {
          name: 'status',
          type: { type: 'enum', name: 'Status', symbols: ['PAID', 'OPEN'] },
        },
        { name: 'city', type: ['null', 'string'] },
      ),
    );
    const bare = registry.add('AVRO', avro(ID, timeOf('timestamp-millis')));
    const where = `status = 'PAID' and amount > 3 and (city is null or city in ('Rome', 'Bonn'))`;
    const { input, logged } = openedInput(
      { format: 'avro', ...FIELDS, value: 'id', where },
      { side, registry },
    );
    const value = (amount: number, status: string, city: string | null) =>
      registry.frame(id, { id: 1n, at: 6n, amount, status, city });
    const rows = await decoded(
      input,
      recordsOf([
        value(4, 'PAID', null),
        value(4, 'PAID', 'Bonn'),
        value(4, 'PAID', 'Oslo'),
        value(3, 'PAID', null),
        value(4, 'OPEN', null),
        registry.frame(bare, { id: 1n, at: 6n }),
      ]),
    );
    const kept = [1n, 6n, 1n];
    expect(rows).toEqual([kept, kept, ...Array.from({ length: 4 }, () => 'FILTERED 6')]);
    expect(logged.filter(({ text }) => text.includes('-where'))).toEqual([]);
  });

  it('a field of -where that no schema has is reported', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(ID, timeOf('timestamp-millis')));
    const { input, logged } = openedInput(
      { format: 'avro', key: 'id', where: 'stauts = 1' },
      { side, registry },
    );
    expect(await decoded(input, recordsOf([registry.frame(id, { id: 1n, at: 6n })]))).toEqual(['FILTERED 6']);
    expect(logged.at(-1)).toMatchObject({ fields: { fields: ['stauts'] } });
  });
});

describe('types that the Avro input refuses', () => {
  it.each([
    ['a text as an integer key', { key: 'f:i64' }, 'string', /-key=f is the type string.*integers, strings/],
    ['an integer as a uuid', { key: 'f:uuid' }, 'long', /the type long instead of uuid/],
    ['a double in a tuple', { key: 'id,f' }, 'double', /the type double instead of i64/],
    [
      'a double as value',
      { value: 'f' },
      'double',
      /-value=f is the type double.*floats and doubles need -aggregate=sum\(FIELD:double\)/,
    ],
    [
      'a decimal as value',
      { value: 'f' },
      { type: 'bytes', logicalType: 'decimal', precision: 9, scale: 2 },
      /the type bytes \(decimal\)/,
    ],
    ['an enum as key', { key: 'f' }, { type: 'enum', name: 'E', symbols: ['A'] }, /the enum type E/],
    ['a boolean as value', { value: 'f' }, 'boolean', /the type boolean/],
    ['an integer without a unit as time', { time: 'f' }, 'long', /the type long without a unit/],
    ['a date as time', { time: 'f:s' }, { type: 'int', logicalType: 'date' }, /the type int \(date\)/],
    [
      'a local time as time',
      { time: 'f' },
      { type: 'long', logicalType: 'local-timestamp-millis' },
      /local-timestamp-millis\) without a unit/,
    ],
    [
      'a timestamp in another unit',
      { time: 'f:s' },
      { type: 'long', logicalType: 'timestamp-millis' },
      /its unit is ms and not s/,
    ],
    ['a union as key', { key: 'f' }, ['long', 'string'], /-key=f is /],
    [
      'a record in a condition',
      { where: 'f = 1' },
      { type: 'record', name: 'R', fields: [] },
      /-where=f is the record type R/,
    ],
    ['bytes in a condition', { where: 'f = 1' }, 'bytes', /-where=f is the type bytes/],
  ] as const)('a new run with %s ends with one error', async (_what, more, type, message) => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(ID, timeOf('timestamp-millis', 'made'), { name: 'f', type }));
    const { input } = openedInput({ format: 'avro', key: 'id', time: 'made', ...more }, { registry });
    const records = recordsOf([Buffer.from([0, 0, 0, 0, id, 0])]);
    const refused = decoded(input, records);
    await expect(refused).rejects.toMatchObject({ code: 'unsupported_field' });
    await refused.catch((error) => expect(error.toLine()).toMatch(message));
    const resumed = openedInput({ format: 'avro' }, { registry }).input;
    resumed.resume({ format: 'avro', key: 'id', time: 'made', ...more });
    expect(await decoded(resumed, records)).toEqual(['INCOMPATIBLE_SCHEMA']);
  });
});

describe('a registry that is away', () => {
  it('a registry that is away makes the input wait and makes no record invalid', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(ID, timeOf('timestamp-millis')));
    registry.failures = [
      serdeError('registry_unavailable', 'down'),
      serdeError('registry_unavailable', 'still down'),
    ];
    const { input, logged } = openedInput({ format: 'avro', key: 'id' }, { registry });
    const rows = await decoded(input, recordsOf([registry.frame(id, { id: 1n, at: 6n })]));
    expect(rows).toEqual([[1n, 6n, 0n]]);
    expect(logged.filter(({ text }) => text.startsWith('registry unavailable'))).toHaveLength(2);
    expect(input.isReady).toBe(true);
    expect(input.takeWaitedMs()).toBeGreaterThanOrEqual(0);
  });

  it('a run that is to end stops waiting, and its input is not ready', async () => {
    const registry = new MemoryRegistry();
    const drain = new AbortController();
    registry.failures = [serdeError('registry_unavailable', 'down')];
    const { input } = openedInput(
      { format: 'avro', key: 'id' },
      { registry, signal: drain.signal, sleep: async () => drain.abort() },
    );
    await decoded(input, recordsOf([Buffer.from([0, 0, 0, 0, 1, 2])]));
    expect(input.isReady).toBe(false);
  });
});
