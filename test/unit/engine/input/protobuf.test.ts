/** Protobuf records as events: integer kinds, timestamps, presence, messages that change. */
import { describe, expect, it } from 'vitest';
import { parseSchema } from '../../../../src/formats/schema.ts';
import { decoded, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const IMPORT = 'import "google/protobuf/timestamp.proto";';
const proto = (body: string, head = IMPORT): string => `syntax = "proto3"; ${head} ${body}`;
const KINDS = ['int32', 'sint32', 'sfixed32', 'int64', 'sint64', 'sfixed64'] as const;
const UNSIGNED = ['uint32', 'fixed32', 'uint64', 'fixed64'] as const;

describe.each(SIDES)('Protobuf input with %s kernels', (side) => {
  it.each(KINDS)('a key of type %s keeps its sign', async (kind) => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      proto(`message M { ${kind} id = 1; google.protobuf.Timestamp at = 2; ${kind} v = 3; }`),
    );
    const { input } = openedInput({ format: 'protobuf', key: 'id', value: 'v' }, { side, registry });
    const wide = kind.endsWith('64');
    const cast = (n: number) => (wide ? BigInt(n) : n);
    const value = (key: number) =>
      registry.frame(id, { id: cast(key), at: { seconds: 3n, nanos: 5_999_999 }, v: cast(-key) });
    const rows = await decoded(input, recordsOf([value(7), value(-7), value(0)]));
    expect(rows).toEqual([
      [7n, 3005n, -7n],
      [BigInt.asUintN(64, -7n), 3005n, 7n],
      [0n, 3005n, 0n],
    ]);
    expect(input.definition).toMatchObject({ key: 'id:i64', time: 'at' });
  });

  it.each(UNSIGNED)('a key of type %s has no sign, up to its greatest number', async (kind) => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', proto(`message M { ${kind} id = 1; }`));
    const { input } = openedInput({ format: 'protobuf', key: 'id' }, { side, registry });
    const top = kind.endsWith('64') ? (1n << 64n) - 1n : 0xffff_ffff;
    const rows = await decoded(input, recordsOf([registry.frame(id, { id: top })]));
    expect(rows).toEqual([[BigInt(top), 5000n, 0n]]);
    expect(input.definition.key).toBe('id:u64');
  });

  it('a number outside the range of the job is no key and no value', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', proto('message M { fixed64 id = 1; sint32 s = 2; }'));
    const big = registry.frame(id, { id: 1n << 63n, s: -1 });
    const one = openedInput({ format: 'protobuf', key: 'id:i64' }, { side, registry }).input;
    expect(await decoded(one, recordsOf([big]))).toEqual(['BAD_KEY']);
    const two = openedInput({ format: 'protobuf', key: 's:u64' }, { side, registry }).input;
    expect(await decoded(two, recordsOf([big]))).toEqual(['BAD_KEY']);
    const three = openedInput({ format: 'protobuf', key: 's', value: 'id' }, { side, registry }).input;
    expect(await decoded(three, recordsOf([big]))).toEqual(['BAD_VALUE']);
  });

  it('an absent field without presence is its zero; with presence it is missing', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      proto('message M { int64 id = 1; optional int64 v = 2; google.protobuf.Timestamp at = 3; }'),
    );
    const { input } = openedInput({ format: 'protobuf', key: 'id', value: 'v' }, { side, registry });
    const rows = await decoded(
      input,
      recordsOf([
        registry.frame(id, { v: 1n, at: {} }),
        registry.frame(id, { at: {} }),
        registry.frame(id, { v: 1n }),
        registry.frame(id, { v: 1n, at: { seconds: 1n, nanos: -1 } }),
      ]),
    );
    expect(rows).toEqual([[0n, 0n, 1n], 'MISSING_FIELD', 'MISSING_FIELD', 'BAD_TIME']);
  });

  it('nested fields, ISO 8601 texts and JSON names are found, and enums compare by their names', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      proto(
        'message O { message C { int64 user_id = 1; } C by = 1; string at = 2; S s = 3; } enum S { NEW = 0; PAID = 1; }',
      ),
    );
    const { input } = openedInput(
      { format: 'protobuf', key: 'by.userId', time: 'at:iso', where: `s in ('PAID', 'NEW') and s != 'NEW'` },
      { side, registry },
    );
    const at = '2026-01-31T12:00:00Z';
    const rows = await decoded(
      input,
      recordsOf([
        registry.frame(id, { by: { user_id: 4n }, at, s: 'PAID' }),
        registry.frame(id, { at, s: 'PAID' }),
        registry.frame(id, { by: { user_id: 4n }, at, s: 'NEW' }),
        registry.frame(id, { by: { user_id: 4n }, at, s: 77 }),
      ]),
    );
    const ms = BigInt(Date.parse(at));
    expect(rows).toEqual([[4n, ms, 0n], 'MISSING_FIELD', `FILTERED ${ms}`, `FILTERED ${ms}`]);
  });

  it('records of several messages of one schema are read by their indexes', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      proto('message A { int64 id = 1; message B { int32 id = 9; } } message C { string x = 1; }'),
    );
    const { input } = openedInput({ format: 'protobuf', key: 'id', time: '@timestamp' }, { side, registry });
    const records = recordsOf([
      registry.frame(id, { id: 5n }, 'A'),
      registry.frame(id, { id: 6 }, 'A.B'),
      registry.frame(id, { x: 'y' }, 'C'),
      Buffer.from([0, 0, 0, 0, id, 2, 40]),
      registry.frame(id, { id: -6 }, 'A.B'),
    ]);
    expect(await decoded(input, records)).toEqual([
      [5n, 5000n, 0n],
      [6n, 5001n, 0n],
      'MISSING_FIELD',
      'BAD_MESSAGE_INDEX',
      [BigInt.asUintN(64, -6n), 5004n, 0n],
    ]);
    expect(input.describe(records, 3)).toContain('no message at [20]');
  });

  it('a field that was renamed is found by its number in the subject, if the writer has the number', async () => {
    const registry = new MemoryRegistry();
    const old = registry.add('PROTOBUF', proto('message M { int32 account = 1; }'));
    const bare = registry.add('PROTOBUF', proto('message M { int32 other = 2; }'));
    const reader = parseSchema('PROTOBUF', proto('message M { int64 id = 1; }'));
    const { input } = openedInput(
      { format: 'protobuf', key: 'id', time: '@timestamp' },
      { side, registry, reader },
    );
    const records = recordsOf([registry.frame(old, { account: -3 }), registry.frame(bare, { other: 3 })]);
    expect(await decoded(input, records)).toEqual([[BigInt.asUintN(64, -3n), 5000n, 0n], 'MISSING_FIELD']);
  });
});

describe('messages of a Protobuf topic', () => {
  const MESSAGES = proto(
    `message Audit { string id = 1; google.protobuf.Timestamp written = 2; }
     message Order {
       fixed64 id = 1; int64 v = 2; google.protobuf.Timestamp paid_at = 3;
       message Refund { string id = 1; google.protobuf.Timestamp back_at = 2; }
     }`,
  );
  const key = Buffer.from('7');
  const at = { seconds: 3n, nanos: 0 };

  it.each(SIDES)(
    'the second message of a schema gives the kind and the time, with %s kernels',
    async (side) => {
      const registry = new MemoryRegistry();
      const id = registry.add('PROTOBUF', MESSAGES);
      const { input, logged } = openedInput({ key: 'id', value: 'v' }, { side, registry });
      const top = (1n << 64n) - 1n;
      const value = registry.frame(id, { id: top, v: 5n, paid_at: at }, 'Order');
      expect(await decoded(input, recordsOf([value]))).toEqual([[top, 3000n, 5n]]);
      expect(input.definition).toMatchObject({ key: 'id:u64', time: 'paid_at' });
      expect(logged.at(-1)).toMatchObject({ fields: { message: 'Order', records: 1 } });
    },
  );

  it.each(SIDES)('a nested message gives the kind and the time, with %s kernels', async (side) => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', MESSAGES);
    const { input } = openedInput({}, { side, registry });
    const value = registry.frame(id, { id: 'x', back_at: at }, 'Order.Refund');
    expect(await decoded(input, recordsOf([{ key, value }]))).toEqual([[7n, 3000n, 0n]]);
    expect(input.definition).toMatchObject({ format: 'protobuf', time: 'back_at' });
    const named = openedInput({ key: 'id' }, { side, registry }).input;
    await named.decide(recordsOf([value]));
    expect(named.definition).toMatchObject({ key: 'id:string', time: 'back_at' });
  });

  it('the message of most records decides, over all versions of the schema, and the log names the others', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', MESSAGES);
    const later = registry.add('PROTOBUF', MESSAGES.replace('int64 v = 2;', 'int64 v = 2; bool more = 4;'));
    const orders = [id, id, later, later].map((one) => registry.frame(one, { id: 1n, paid_at: at }, 'Order'));
    const audit = registry.frame(id, { id: 'x', written: at }, 'Audit');
    const { input, logged } = openedInput({ key: 'id' }, { registry });
    const rows = await decoded(input, recordsOf([audit, audit, audit, ...orders]));
    const [invalid, event] = ['MISSING_FIELD', [1n, 3000n, 0n]];
    expect(rows).toEqual([invalid, invalid, invalid, event, event, event, event]);
    expect(logged.find(({ text }) => text.includes('several messages'))?.fields).toEqual({
      ...{ records: 7, decidedBy: 'Order' },
      messages: { Audit: 3, Order: 4 },
    });
  });

  it('a message without the named fields does not decide, even if most records have it', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', MESSAGES);
    const order = registry.frame(id, { id: 1n, v: 2n, paid_at: at }, 'Order');
    const audit = registry.frame(id, { id: 'x', written: at }, 'Audit');
    const { input } = openedInput({ key: 'id', value: 'v' }, { registry });
    const rows = await decoded(input, recordsOf([audit, audit, order]));
    expect(rows).toEqual(['MISSING_FIELD', 'MISSING_FIELD', [1n, 3000n, 2n]]);
    expect(input.definition).toMatchObject({ key: 'id:u64', time: 'paid_at' });
  });

  it('records whose message indexes the schema lacks decide nothing', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('PROTOBUF', MESSAGES);
    const { input } = openedInput({}, { registry });
    const lost = Buffer.from([0, 0, 0, 0, id, 2, 40]);
    expect(await decoded(input, recordsOf([{ key, value: lost }]))).toEqual(['BAD_MESSAGE_INDEX']);
    expect(input.definition).toEqual({ format: 'undecided' });
  });
});

describe('types that the Protobuf input refuses', () => {
  it.each([
    ['a text as an integer key', { key: 'f:i64' }, 'string f = 1;', /the type string/],
    ['a boolean in a tuple', { key: 'id,f' }, 'bool f = 1;', /the type bool/],
    ['bytes as a string', { key: 'f:string' }, 'bytes f = 1;', /the type bytes instead of string/],
    ['a double as value', { value: 'f' }, 'double f = 1;', /the type double/],
    ['an enum as key', { key: 'f' }, 'E f = 1;', /the enum E/],
    ['a boolean as value', { value: 'f' }, 'bool f = 1;', /the type bool/],
    ['a list as key', { key: 'f' }, 'repeated int64 f = 1;', /in a list or a map/],
    ['a map on the path', { key: 'f.x' }, 'map<string, N> f = 1;', /in a list or a map/],
    ['an integer without a unit as time', { time: 'f' }, 'int64 f = 1;', /int64 without a unit/],
    ['a timestamp with a unit', { time: 'f:ms' }, 'google.protobuf.Timestamp f = 1;', /which has no unit/],
    ['a message in a condition', { where: 'f = 1' }, 'N f = 1;', /the message N/],
  ] as const)('a new run with %s ends with one error', async (_what, more, field, message) => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      proto(`message M { ${field} int64 id = 2; } message N { int64 x = 1; } enum E { Z = 0; }`),
    );
    const { input } = openedInput(
      { format: 'protobuf', key: 'id', time: '@timestamp', ...more },
      { registry },
    );
    const refused = decoded(input, recordsOf([Buffer.from([0, 0, 0, 0, id, 0])]));
    await expect(refused).rejects.toMatchObject({ code: 'unsupported_field' });
    await refused.catch((error) => expect(error.toLine()).toMatch(message));
  });
});
