/** JSON records as events, and what an input judges by its first records. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isoMs } from '../../../../src/engine/source/input/iso.ts';
import { runs } from '../../../tier.ts';
import { avro, decoded, json, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const FIELDS = { key: 'id', time: 'at:ms', value: 'v' } as const;
const MAX = (1n << 63n) - 1n;

describe('JSON input', () => {
  it('integers of 64 bits are exact, whatever their notation', async () => {
    const { input } = openedInput({ format: 'json', ...FIELDS });
    const rows = await decoded(
      input,
      recordsOf([
        json(`{"id":${MAX},"at":1,"v":${-MAX - 1n}}`),
        json('{"at":2.0,"x":{"id":9},"id":-3e2,"v":-0}'),
        json('  {"id":1,"at":1,"id":2,"v":9007199254740993,"a":[1,{"v":3}]} '),
        json(`{"id":${MAX + 1n},"at":1,"v":1}`),
        json('{"id":1.5,"at":1,"v":1}'),
        json('{"id":"1","at":1,"v":1}'),
        json('{"id":1,"at":1,"v":true}'),
        json('{"id":1,"at":1,"v":null}'),
        json('{"id":1,"at":"x","v":1}'),
        json('{"id":1,"at":4503599627370496,"v":1}'),
        json('{"id":1,"v":1}'),
        json('{"id":1,"at":1,"v":1}}'),
        json(''),
        json('[1]'),
        null,
      ]),
    );
    expect(rows).toEqual([
      [MAX, 1n, -MAX - 1n],
      [BigInt.asUintN(64, -300n), 2n, 0n],
      [2n, 1n, 9007199254740993n],
      'BAD_KEY',
      'BAD_KEY',
      'BAD_KEY',
      'BAD_VALUE',
      'MISSING_FIELD',
      'BAD_TIME',
      'BAD_TIME',
      'MISSING_FIELD',
      'MALFORMED_PAYLOAD',
      'MALFORMED_PAYLOAD',
      'MISSING_FIELD',
      'NULL',
    ]);
  });

  it('unsigned keys are read where the flag says so', async () => {
    const { input } = openedInput({ format: 'json', key: 'id:u64', time: '@timestamp' });
    const texts = [`{"id":${2n * MAX + 1n}}`, '{"id":-1}', `{"id":${2n * MAX + 2n}}`];
    expect(await decoded(input, recordsOf(texts.map(json)))).toEqual([
      [2n * MAX + 1n, 5000n, 0n],
      'BAD_KEY',
      'BAD_KEY',
    ]);
  });

  it('framed JSON is read behind its frame, nested fields by their path, and times as ISO 8601', async () => {
    const { input } = openedInput({ format: 'json', key: 'order.customer.id', time: 'order.at' });
    const text = json('{"order":{"at":"2026-01-31T12:00:00Z","customer":{"id":5}}}');
    const rows = await decoded(
      input,
      recordsOf([text, Buffer.concat([Buffer.from([0, 0, 0, 0, 9]), text]), Buffer.from([0, 1])]),
    );
    const at = BigInt(Date.parse('2026-01-31T12:00:00Z'));
    expect(rows).toEqual([[5n, at, 0n], [5n, at, 0n], 'TRUNCATED_FRAME']);
  });

  it('a condition reads texts, numbers, truth values and nulls, and comes before key and value', async () => {
    const where = `not (kind = 'té\\u0073t' or big = 9007199254740993) and ok = true and gone is null`;
    const { input } = openedInput({ format: 'json', ...FIELDS, where });
    const row = (more: string) => json(`{"at":7,${more}}`);
    const rows = await decoded(
      input,
      recordsOf([
        row('"id":1,"v":2,"ok":true,"kind":"t","big":9007199254740992'),
        row('"ok":true,"kind":"t\\u00e9st"'),
        row('"ok":true,"big":9007199254740993'),
        row('"ok":1'),
        row('"ok":true,"gone":{}'),
        row('"ok":true,"gone":null'),
      ]),
    );
    const filtered = 'FILTERED 7';
    expect(rows).toEqual([[1n, 7n, 2n], filtered, filtered, filtered, filtered, 'MISSING_FIELD']);
  });

  it('a record that is no event is described by its fields', async () => {
    const { input } = openedInput({ format: 'json', key: 'id', time: 'at', value: 'v' });
    const records = recordsOf([json('{"at":1700000000,"v":"x"}'), json('{')]);
    await decoded(input, records);
    expect(input.describe(records, 0)).toBe(
      'at is 1700000000, a number without a unit: give -time=at:ms, or s, us or ns; id is missing; v is "x"',
    );
    expect(input.describe(records, 1)).toBe('the value is not JSON');
  });
});

describe('ISO 8601 times', () => {
  const ms = (text: string): number => isoMs(Buffer.from(`[${text}]`), 1, 1 + Buffer.byteLength(text));

  it('ISO 8601 times equal those of Date, with fractions rounded down', () => {
    const times = fc.integer({
      min: Date.parse('0001-01-01T00:00:00Z'),
      max: Date.parse('9998-12-31T23:59:59Z'),
    });
    const zone = fc.integer({ min: -14 * 60, max: 14 * 60 });
    fc.assert(
      fc.property(times, zone, fc.stringMatching(/^\d{0,9}$/), (at, minutes, more) => {
        const local = new Date(at + minutes * 60_000).toISOString().replace('Z', '');
        const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
        const offset = `${minutes < 0 ? '-' : '+'}${String(hours).padStart(2, '0')}:${String(rest).padStart(2, '0')}`;
        if (local.startsWith('0000') || local.length > 23) return;
        expect(ms(`${local}${more}${offset}`)).toBe(at);
        expect(ms(`${local.replace('T', ' ')}${offset.replace(':', '')}`)).toBe(at);
      }),
      { numRuns: runs(500) },
    );
    expect(ms('2024-02-29T00:00Z')).toBe(Date.parse('2024-02-29T00:00Z'));
  });

  it.each([
    ['no zone', '2026-01-31T12:00:00'],
    ['a day that does not exist', '2026-02-29T12:00:00Z'],
    ['an hour that does not exist', '2026-01-31T24:00:00Z'],
    ['a leap second', '2026-12-31T23:59:60Z'],
    ['text behind the zone', '2026-01-31T12:00:00Zx'],
    ['an empty fraction', '2026-01-31T12:00:00.Z'],
    ['a date alone', '2026-01-31'],
    ['a wide zone', '2026-01-31T12:00:00+24:00'],
    ['nothing', ''],
  ])('a text with %s is no time', (_what, text) => {
    expect(ms(text)).toBeNaN();
  });
});

describe('an input without settings', () => {
  const AT = { name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } };

  it.each([
    ['8 bytes, big-endian', 'long', Buffer.from([255, 255, 255, 255, 255, 255, 255, 254]), -2n],
    ['4 bytes, big-endian', 'int', Buffer.from([255, 255, 255, 254]), -2n],
    ['decimal digits', 'text', Buffer.from('-2'), -2n],
    ['eight digits', 'text', Buffer.from('12345678'), 12345678n],
  ])('a record key of %s is the key, and is named in the log', async (_what, form, key, id) => {
    const { input, logged } = openedInput({});
    const rows = await decoded(input, recordsOf([{ key, value: json('{}') }]));
    expect(rows).toEqual([[BigInt.asUintN(64, id), 5000n, 0n]]);
    expect(input.definition).toEqual({
      ...{ format: 'json', key: `@key:${form}`, time: '@timestamp' },
      inferred: ['format', 'key', 'time'],
    });
    expect(logged.at(-1)).toMatchObject({ text: 'input inferred from the first records' });
  });

  it.each(SIDES)(
    'the only timestamp field of framed records is their time, with %s kernels',
    async (side) => {
      const registry = new MemoryRegistry();
      const id = registry.add('AVRO', avro({ name: 'x', type: 'string' }, AT));
      const proto = registry.add(
        'PROTOBUF',
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { string x = 1; google.protobuf.Timestamp made = 2; }',
      );
      const key = Buffer.from('9');
      const one = openedInput({}, { side, registry }).input;
      const value = registry.frame(id, { x: '', at: 77n });
      expect(await decoded(one, recordsOf([{ key, value }]))).toEqual([[9n, 77n, 0n]]);
      expect(one.definition).toMatchObject({ format: 'avro', key: '@key:text', time: 'at' });
      const two = openedInput({}, { side, registry }).input;
      const message = registry.frame(proto, { x: '', made: { seconds: -1n, nanos: 999_999_999 } });
      expect(await decoded(two, recordsOf([{ key, value: message }]))).toEqual([[9n, -1n, 0n]]);
      expect(two.definition).toMatchObject({ format: 'protobuf', key: '@key:text', time: 'made' });
    },
  );

  it('two timestamp fields leave the timestamp of the record', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(AT, { ...AT, name: 'sent' }));
    const { input } = openedInput({}, { registry });
    const value = registry.frame(id, { at: 1n, sent: 2n });
    expect(await decoded(input, recordsOf([{ key: Buffer.from('9'), value }]))).toEqual([[9n, 5000n, 0n]]);
    expect(input.definition.time).toBe('@timestamp');
  });

  it('the judgement waits for a record with a value and with a known schema', async () => {
    const registry = new MemoryRegistry();
    const { input } = openedInput({}, { registry });
    expect(await decoded(input, recordsOf([null]))).toEqual(['NULL']);
    expect(await decoded(input, recordsOf([Buffer.from([0, 0, 0, 0, 1, 2])]))).toEqual(['UNKNOWN_SCHEMA_ID']);
    expect(input.definition).toEqual({ format: 'undecided' });
    const id = registry.add('AVRO', avro(AT));
    const value = registry.frame(id, { at: 4n });
    expect(await decoded(input, recordsOf([{ key: Buffer.from('9'), value }]))).toEqual([[9n, 4n, 0n]]);
  });

  it('values of 256 bytes are the fixed layout, even if some begin as frames do', async () => {
    const event = (id: bigint): Buffer => {
      const value = Buffer.alloc(256);
      value.writeBigUInt64LE(id, 0);
      return value;
    };
    const { input } = openedInput({});
    const ids = [256n, 1n, 512n];
    const rows = await decoded(input, recordsOf(ids.map((id) => event(id))));
    expect(rows).toEqual(ids.map((id) => [id, 0n, 0n]));
    expect(input.definition).toMatchObject({ format: 'binary256' });
    expect(await decoded(input, recordsOf([json('{}')]))).toEqual(['BAD_LENGTH']);
  });

  it.each([
    [
      'keys that are neither integers nor texts',
      {},
      [{ key: Buffer.of(1, 2, 3), value: json('{}') }],
      /neither integers nor texts.*-key=FIELD.*@key:bytes/,
    ],
    ['no keys', {}, [json('{}')], /neither integers nor texts/],
    ['frames without a registry', {}, [Buffer.from([0, 0, 0, 0, 1, 2])], /need the registry.*-registry=/],
    ['fields for the fixed layout', { key: 'id' }, [Buffer.alloc(256)], /-key has no meaning/],
  ] as const)('records with %s end the run with advice', async (_what, asked, records, message) => {
    const { input } = openedInput(asked);
    const refused = (async () => decoded(input, recordsOf(records)))();
    await expect(refused).rejects.toMatchObject({ code: 'bad_setting' });
    await refused.catch((error) => expect(error.toLine()).toMatch(message));
  });
});
