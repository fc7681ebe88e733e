/** Identifiers of -dedup in each format: equal values give equal identifiers in every form that a
 *  writer may choose, and other values never do. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { EventIds, ID_BYTES_MAX } from '../../../../src/engine/dedup/ids.ts';
import type { TopicInput } from '../../../../src/engine/source/input/topic-input.ts';
import { avro, json, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));

async function idsIn(input: TopicInput, records: RecordBatch): Promise<readonly (string | undefined)[]> {
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  return Array.from({ length: events.rowCount }, (_, row) => {
    const status = events.columns.status[row] as number;
    return status === EVENT_STATUS.OK ? EventIds.of(events).text(row) : NAMES.get(status);
  });
}

const UUID = '123E4567-e89b-12d3-a456-426614174000';
const UUID_ID = 'u123e4567e89b12d3a456426614174000';
const LATIN = Buffer.from('é', 'utf8').toString('latin1');

describe('identifiers of JSON', () => {
  const input = () => openedInput({ format: 'json', key: 'k', time: '@timestamp', dedup: 'id' }).input;
  const of = (id: unknown) => json({ k: 1, id });

  it('integers, texts and escaped texts are identifiers; other values make the record invalid', async () => {
    const texts = ['{"k":1,"id":7.0}', '{"k":1,"id":18446744073709551615}', '{"k":1,"id":"\\u00e9"}'];
    const records = recordsOf([
      ...[of(7), of(-7), of('7'), of('é'), of(''), of(7.5), of(true), of([1]), of(null), json({ k: 1 })],
      ...texts.map(json),
      of('x'.repeat(ID_BYTES_MAX)),
      of('é'.repeat(ID_BYTES_MAX / 2 + 1)),
    ]);
    expect(await idsIn(input(), records)).toEqual([
      ...['i7', 'i-7', 's7', `s${LATIN}`, 's', 'BAD_VALUE', 'BAD_VALUE', 'BAD_VALUE'],
      ...['MISSING_FIELD', 'MISSING_FIELD', 'i7', 'i18446744073709551615', `s${LATIN}`],
      ...[`s${'x'.repeat(ID_BYTES_MAX)}`, 'BAD_VALUE'],
    ]);
  });
});

describe.each(SIDES)('identifiers of framed records on the %s kernels', (side) => {
  const KEY = { name: 'k', type: 'long' };
  const avroIds = async (type: unknown, values: readonly unknown[]) => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro(KEY, { name: 'id', type }));
    const asked = { format: 'avro', key: 'k', time: '@timestamp', dedup: 'id' } as const;
    const { input } = openedInput(asked, { side, registry });
    return idsIn(input, recordsOf(values.map((value) => registry.frame(id, { k: 1n, id: value }))));
  };

  it.each([
    ['int', 'int', [7, -1], ['i7', 'i-1']],
    ['long', 'long', [7n, -(2n ** 63n)], ['i7', 'i-9223372036854775808']],
    ['string', 'string', ['7', 'é'], ['s7', `s${LATIN}`]],
    ['bytes', 'bytes', [Buffer.from([0, 255])], ['b\u0000\u00ff']],
    ['a nullable string', ['null', 'string'], ['a', null], ['sa', 'MISSING_FIELD']],
    ['uuid text', { type: 'string', logicalType: 'uuid' }, [UUID, UUID.toLowerCase()], [UUID_ID, UUID_ID]],
  ])('an identifier of Avro %s equals that of the same value', async (_, type, values, expected) => {
    expect(await avroIds(type, values)).toEqual(expected);
  });

  it('a field of another Avro type is refused with what can be compared', async () => {
    await expect(avroIds('double', [1])).rejects.toMatchObject({
      code: 'unsupported_field',
      next: expect.stringContaining('a uuid'),
    });
  });

  it('integers, texts and bytes of Protobuf are identifiers', async () => {
    const registry = new MemoryRegistry();
    const text = (type: string): string => `syntax = "proto3"; message M { int64 k = 1; ${type} id = 2; }`;
    const cases = [
      ['int64', -5n, 'i-5'],
      ['uint64', 2n ** 64n - 1n, 'i18446744073709551615'],
      ['uint32', 7, 'i7'],
      ['string', 'a', 'sa'],
      ['bytes', Buffer.from([255]), 'b\u00ff'],
    ] as const;
    for (const [type, value, expected] of cases) {
      const id = registry.add('PROTOBUF', text(type));
      const asked = { format: 'protobuf', key: 'k', time: '@timestamp', dedup: 'id' } as const;
      const { input } = openedInput(asked, { side, registry });
      expect(await idsIn(input, recordsOf([registry.frame(id, { k: 1n, id: value })]))).toEqual([expected]);
    }
  });
});

it('-dedup has no meaning for the fixed layout, and its path must be a field', () => {
  expect(() => openedInput({ format: 'binary256', dedup: 'id' })).toThrow(/-dedup has no meaning/);
  expect(() => openedInput({ format: 'json', dedup: 'items[0]' })).toThrow(
    /-dedup=items\[0\] is not the path/,
  );
});
