/** Keys of variable length: their kinds, their canonical bytes and the records that have none. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import {
  isKeyType,
  isSameType,
  KEY_BYTES_MAX,
  type KeyType,
  keyOfText,
  keyValues,
  partNames,
  typeText,
  valueText,
} from '../../../../src/engine/keys/type.ts';
import { type InputDefinition, keyTypeOf } from '../../../../src/engine/source/input/definition.ts';
import type { TopicInput } from '../../../../src/engine/source/input/topic-input.ts';
import { EventWords } from '../../../../src/engine/source/input/words.ts';
import { avro, json, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const UUID = '00112233-4455-6677-8899-aabbccddeeff';

/** Decodes records. Returns the texts of the parts of each key, or the name of the status. */
async function keysOf(input: TopicInput, records: RecordBatch): Promise<Array<readonly string[] | string>> {
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  const type = keyTypeOf(input.definition) as KeyType;
  return Array.from({ length: events.rowCount }, (_, row) => {
    const status = events.columns.status[row];
    if (status !== EVENT_STATUS.OK)
      return Object.entries(EVENT_STATUS).find(([, value]) => value === status)?.[0] as string;
    return keyValues(type, EventWords.of(events).keys.key(row)).map(valueText);
  });
}

const definition = (asked: Partial<InputDefinition>) => ({ time: '@timestamp', ...asked });

describe('keys of JSON records', () => {
  const keys = (key: string, ...values: readonly unknown[]) =>
    keysOf(openedInput(definition({ format: 'json', key })).input, recordsOf(values.map((v) => json(v))));

  it('texts are string keys, whatever escapes they are written with', async () => {
    const rows = await keys('k', { k: 'a' }, '{"k":"\\u0061"}', { k: 'ä€😀' }, { k: '' }, { k: '7' });
    expect(rows).toEqual([['a'], ['a'], ['ä€😀'], [''], ['7']]);
  });

  it('a text without UTF-8, with U+0000, too long, or of another kind is no key', async () => {
    const rows = await keys(
      'k:string',
      '{"k":"\\ud800"}',
      '{"k":"\\ud83d\\ude00"}',
      '{"k":"a\\u0000"}',
      { k: 'x'.repeat(KEY_BYTES_MAX + 1) },
      { k: 'x'.repeat(KEY_BYTES_MAX) },
      { k: 7 },
      { k: null },
      {},
    );
    const long = ['x'.repeat(KEY_BYTES_MAX)];
    expect(rows).toEqual([
      'BAD_KEY',
      ['😀'],
      'BAD_KEY',
      'BAD_KEY',
      long,
      'BAD_KEY',
      'MISSING_FIELD',
      'MISSING_FIELD',
    ]);
  });

  it('uuids are 16 bytes in any case of letters, and bytes are base64', async () => {
    expect(
      await keys('k:uuid', { k: UUID }, { k: UUID.toUpperCase() }, { k: `${UUID}0` }, { k: 'x' }),
    ).toEqual([[UUID], [UUID], 'BAD_KEY', 'BAD_KEY']);
    // AB== and AA== would decode to the same byte.
    expect(await keys('k:bytes', { k: 'AP8=' }, { k: '' }, { k: 'AA==' }, { k: 'AB==' }, { k: '*' })).toEqual(
      [['00ff'], [''], ['00'], 'BAD_KEY', 'BAD_KEY'],
    );
  });

  it('kinds are judged by the first records and become a part of the definition', async () => {
    const { input } = openedInput(definition({ key: 'a.country,id,tag' }));
    const records = recordsOf([
      json({ a: { country: null }, id: 1, tag: 'x' }),
      json({ a: { country: 'DE' }, id: -2, tag: 7 }),
      json({ a: { country: 'AT' }, id: 3, tag: 'y' }),
    ]);
    expect(await keysOf(input, records)).toEqual(['MISSING_FIELD', 'BAD_KEY', ['AT', '3', 'y']]);
    expect(input.definition.key).toBe('a.country:string,id,tag:string');
  });

  it('keys of several parts are equal only when every part is', async () => {
    const { input } = openedInput(definition({ format: 'json', key: 'a:string,b:string' }));
    const events = EventBatch.create(8);
    await input.decode(recordsOf([json({ a: 'x', b: 'yz' }), json({ a: 'xy', b: 'z' })]), events);
    const { keys: spans } = EventWords.of(events);
    expect(Buffer.compare(spans.key(0), spans.key(1))).not.toBe(0);
  });
});

describe.each(SIDES)('keys of registered records with the %s kernels', (side) => {
  it('Avro strings, bytes, fixed values and uuids are keys of their kinds', async () => {
    const cases: ReadonlyArray<readonly [unknown, unknown, string, string]> = [
      ['string', 'ä', 'k:string', 'ä'],
      [['null', 'string'], 'x', 'k:string', 'x'],
      ['bytes', Buffer.of(0, 255), 'k:bytes', '00ff'],
      [{ type: 'fixed', name: 'F', size: 2 }, Buffer.of(1, 2), 'k:bytes', '0102'],
      [{ type: 'string', logicalType: 'uuid' }, UUID, 'k:uuid', UUID],
      [
        { type: 'fixed', name: 'U', size: 16, logicalType: 'uuid' },
        Buffer.from(UUID.replaceAll('-', ''), 'hex'),
        'k:uuid',
        UUID,
      ],
    ];
    for (const [type, value, key, text] of cases) {
      const registry = new MemoryRegistry();
      const id = registry.add('AVRO', avro({ name: 'k', type }));
      const { input } = openedInput(definition({ format: 'avro', key: 'k' }), { side, registry });
      expect(await keysOf(input, recordsOf([registry.frame(id, { k: value })])), key).toEqual([[text]]);
      expect(input.definition.key).toBe(key);
    }
  });

  it('an Avro tuple is read from fields of any kind, and a null part is missing', async () => {
    const registry = new MemoryRegistry();
    const fields = [
      { name: 'country', type: ['null', 'string'] },
      { name: 'id', type: 'long' },
      { name: 'small', type: 'int' },
    ];
    const id = registry.add('AVRO', avro(...fields));
    const { input } = openedInput(definition({ format: 'avro', key: 'country,id,small' }), {
      side,
      registry,
    });
    const values = [
      { country: 'DE', id: -(2n ** 63n), small: -1 },
      { country: '', id: 2n ** 63n - 1n, small: 5 },
      { country: null, id: 1n, small: 5 },
    ];
    expect(await keysOf(input, recordsOf(values.map((value) => registry.frame(id, value))))).toEqual([
      ['DE', `${-(2n ** 63n)}`, '-1'],
      ['', `${2n ** 63n - 1n}`, '5'],
      'MISSING_FIELD',
    ]);
    expect(input.definition.key).toBe('country:string,id,small');
  });

  it('Protobuf strings, bytes and tuples with unsigned integers are keys', async () => {
    const registry = new MemoryRegistry();
    const id = registry.add(
      'PROTOBUF',
      'syntax = "proto3"; message M { string s = 1; bytes b = 2; uint64 u = 3; sint32 i = 4; }',
    );
    const { input } = openedInput(definition({ format: 'protobuf', key: 's,b,u,i' }), { side, registry });
    const value = { s: 'x', b: Buffer.of(9), u: 2n ** 64n - 1n, i: -5 };
    expect(await keysOf(input, recordsOf([registry.frame(id, value)]))).toEqual([
      ['x', '09', `${2n ** 64n - 1n}`, '-5'],
    ]);
    expect(input.definition.key).toBe('s:string,b:bytes,u:u64,i:i64');
    const bytes = openedInput(definition({ format: 'protobuf', key: 'b:uuid' }), { side, registry });
    const uuid = Buffer.from(UUID.replaceAll('-', ''), 'hex');
    const rows = recordsOf([registry.frame(id, { ...value, b: uuid }), registry.frame(id, value)]);
    expect(await keysOf(bytes.input, rows)).toEqual([[UUID], 'BAD_KEY']);
  });

  it('a later schema whose key has another kind makes its records invalid', async () => {
    const registry = new MemoryRegistry();
    const text = registry.add('AVRO', avro({ name: 'k', type: 'string' }));
    const long = registry.add('AVRO', avro({ name: 'k', type: 'long' }));
    const { input } = openedInput(definition({ format: 'avro', key: 'k' }), { side, registry });
    const records = recordsOf([registry.frame(text, { k: '7' }), registry.frame(text, { k: '8' })]);
    expect(await keysOf(input, records)).toEqual([['7'], ['8']]);
    expect(await keysOf(input, recordsOf([registry.frame(long, { k: 7n })]))).toEqual([
      'INCOMPATIBLE_SCHEMA',
    ]);
  });
});

describe('keys of records', () => {
  const keyed = (...keys: ReadonlyArray<Buffer | null>) =>
    recordsOf(keys.map((key) => ({ key, value: json('{}') })));
  const texts = (...keys: readonly string[]) => keyed(...keys.map((key) => Buffer.from(key)));

  it.each([
    ['texts of 8 bytes', texts('user-001', 'user-002'), '@key:string'],
    ['some digits and some texts', texts('1', 'x'), '@key:string'],
    ['digits', texts('1', '-22'), '@key:text'],
    ['integers of 8 bytes', keyed(Buffer.of(0, 0, 0, 0, 0, 0, 1, 0)), '@key:long'],
    ['integers of 4 bytes', keyed(Buffer.of(0, 0, 0x41, 0x42)), '@key:int'],
  ] as const)('record keys that are %s are judged by the first records', async (_what, records, key) => {
    const { input } = openedInput({});
    await input.decode(records, EventBatch.create(records.rowCapacity));
    expect(input.definition.key).toBe(key);
  });

  it('string, bytes and uuid keys have their form, or the record is invalid', async () => {
    const keys = [Buffer.from('ä'), Buffer.of(0xff), Buffer.of(0x61, 0), Buffer.from(UUID), null];
    const of = (key: string) =>
      keysOf(openedInput(definition({ format: 'json', key })).input, keyed(...keys));
    expect(await of('@key:string')).toEqual([['ä'], 'BAD_KEY', 'BAD_KEY', [UUID], 'MISSING_FIELD']);
    const hex = Buffer.from(UUID).toString('hex');
    expect(await of('@key:bytes')).toEqual([['c3a4'], ['ff'], ['6100'], [hex], 'MISSING_FIELD']);
    expect(await of('@key:uuid')).toEqual(['BAD_KEY', 'BAD_KEY', 'BAD_KEY', [UUID], 'MISSING_FIELD']);
  });
});

describe('texts of keys', () => {
  const value = {
    i64: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
    u64: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String),
    string: fc.string({ unit: 'grapheme', maxLength: 20 }).filter((text) => !text.includes('\0')),
    bytes: fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes).toString('hex')),
    uuid: fc.uuid(),
  } as const;
  const kinds = fc.constantFrom('i64', 'u64', 'string', 'bytes', 'uuid');

  it('a key that is read from the text of its parts has these parts, and other texts give other bytes', () => {
    fc.assert(
      fc.property(
        fc.array(kinds, { minLength: 1, maxLength: 4 }).chain((list) => {
          const texts = fc.tuple(...list.map((kind) => value[kind as keyof typeof value]));
          return fc.tuple(fc.constant(list), texts, texts);
        }),
        ([list, a, b]) => {
          const type = list.map((kind, at) => ({ name: `f${at}`, kind })) as KeyType;
          const keyOf = (parts: readonly string[]) =>
            keyOfText(
              type,
              type.length === 1
                ? (parts[0] as string)
                : parts.map((part) => part.replaceAll('%', '%25').replaceAll(',', '%2C')).join(),
            ) as Uint8Array;
          expect(keyValues(type, keyOf(a)).map(valueText)).toEqual(a);
          expect(Buffer.compare(keyOf(a), keyOf(b)) === 0).toBe(a.join('\n') === b.join('\n'));
        },
      ),
    );
  });

  it('texts that are no key of the type are refused', () => {
    const of = (kind: KeyType[number]['kind'], text: string) => keyOfText([{ name: 'k', kind }], text);
    expect(of('i64', '9223372036854775808')).toBeUndefined();
    expect(of('u64', '-1')).toBeUndefined();
    expect(of('bytes', 'abc')).toBeUndefined();
    expect(of('uuid', 'abc')).toBeUndefined();
    expect(of('string', 'a\0')).toBeUndefined();
    expect(of('string', 'x'.repeat(1025))).toBeUndefined();
    const pair = [
      { name: 'a', kind: 'string' },
      { name: 'b', kind: 'i64' },
    ] as const;
    expect(keyOfText(pair, 'x')).toBeUndefined();
    expect(keyOfText(pair, 'x,1,2')).toBeUndefined();
    expect(() => keyValues(pair, Uint8Array.of(0, 1))).toThrow();
    expect(() => keyValues([{ name: 'k', kind: 'uuid' }], Uint8Array.of(1))).toThrow();
  });

  it('types have texts and names for people', () => {
    const type = [
      { name: 'a.id', kind: 'string' },
      { name: 'b.id', kind: 'i64' },
    ] as const;
    expect(typeText(type)).toBe('a.id:string,b.id:i64');
    expect(partNames(type)).toEqual(['a.id', 'b.id']);
    expect(partNames([type[0]])).toEqual(['id']);
    expect(isSameType(type, type)).toBe(true);
    expect(isSameType(type, [type[0]])).toBe(false);
    expect(isKeyType(JSON.parse(JSON.stringify(type)))).toBe(true);
    for (const wrong of [null, {}, [], [null], [{ name: 'k' }], [{ name: 'k', kind: 'text' }]])
      expect(isKeyType(wrong)).toBe(false);
  });
});
