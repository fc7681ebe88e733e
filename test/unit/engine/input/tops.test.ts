/** Values that topk counts, in each format: those that -dedup compares, as texts. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../../../src/core/layout/layouts.gen.ts';
import type { RecordBatch } from '../../../../src/core/layout/record-batch.ts';
import { knownValues } from '../../../../src/engine/aggregate/values.ts';
import { idText } from '../../../../src/engine/dedup/ids.ts';
import type { TopicInput } from '../../../../src/engine/source/input/topic-input.ts';
import { avro, json, MemoryRegistry, openedInput, recordsOf, SIDES } from './input-kit.ts';

const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));
const ASKED = { key: 'k', time: '@timestamp', aggregate: 'topk(id,3)' } as const;
/** Column of the values, behind the place of the record. */
const COLUMN = 2;

/** Texts of the values of records; null for null, and the status of an invalid record. */
async function textsIn(input: TopicInput, records: RecordBatch): Promise<readonly (string | null)[]> {
  const events = EventBatch.create(records.rowCapacity);
  await input.decode(records, events);
  const values = knownValues(events);
  return Array.from({ length: events.rowCount }, (_, row) => {
    const status = events.columns.status[row] as number;
    if (status !== EVENT_STATUS.OK) return NAMES.get(status) as string;
    const cell = COLUMN * (values?.capacity ?? 0) + row;
    if (values?.valid[cell] !== 1) return null;
    const bytes = Buffer.from((values.texts.cells as BigInt64Array).buffer);
    const at = (Number(values.cells[cell]) + 1) * 8;
    return idText(bytes.subarray(at + 1, at + 1 + (bytes[at] as number)));
  });
}

describe('values of JSON', () => {
  it('integers and texts of up to 254 bytes are values, a missing field is null, and others make the record invalid', async () => {
    const of = (id: unknown) => json({ k: 1, id });
    const records = recordsOf([
      ...[of(7), of('7'), of('é'), of(''), of('a\u0000'), of(null), json({ k: 1 }), of(7.5), of(['a'])],
      ...[of('x'.repeat(254)), of('x'.repeat(255))],
    ]);
    expect(await textsIn(openedInput({ format: 'json', ...ASKED }).input, records)).toEqual([
      ...['7', '7', 'é', '', 'a\ufffd', null, null, 'BAD_VALUE', 'BAD_VALUE'],
      ...['x'.repeat(254), 'BAD_VALUE'],
    ]);
  });
});

const UUID = '123E4567-e89b-12d3-a456-426614174000';

describe.each(SIDES)('values of framed records on the %s kernels', (side) => {
  it.each([
    ['long', 'long', [7n, -(2n ** 63n)], ['7', '-9223372036854775808']],
    ['a nullable string', ['null', 'string'], ['a', null], ['a', null]],
    ['bytes', 'bytes', [Buffer.from([0, 255])], ['00ff']],
    ['uuid', { type: 'string', logicalType: 'uuid' }, [UUID], [UUID.toLowerCase()]],
    ['a text of 255 bytes', 'string', ['x'.repeat(255), 'y'], ['BAD_VALUE', 'y']],
  ])('values of Avro %s have their text', async (_, type, values, expected) => {
    const registry = new MemoryRegistry();
    const id = registry.add('AVRO', avro({ name: 'k', type: 'long' }, { name: 'id', type }));
    const { input } = openedInput({ format: 'avro', ...ASKED }, { side, registry });
    const records = recordsOf(values.map((value) => registry.frame(id, { k: 1n, id: value })));
    expect(await textsIn(input, records)).toEqual(expected);
  });

  it.each([
    ['string', 'a', 'a'],
    ['bytes', Buffer.from([1]), '01'],
    ['uint64', 2n ** 64n - 1n, '18446744073709551615'],
  ])('values of Protobuf %s have their text', async (type, value, expected) => {
    const registry = new MemoryRegistry();
    const text = `syntax = "proto3"; message M { int64 k = 1; ${type} id = 2; }`;
    const id = registry.add('PROTOBUF', text);
    const { input } = openedInput({ format: 'protobuf', ...ASKED }, { side, registry });
    const records = recordsOf([registry.frame(id, { k: 1n, id: value })]);
    expect(await textsIn(input, records)).toEqual([expected]);
  });

  it('a double has no text, and is refused with what can be counted', async () => {
    const registry = new MemoryRegistry();
    const schema = avro({ name: 'k', type: 'long' }, { name: 'id', type: 'double' });
    const id = registry.add('AVRO', schema);
    const { input } = openedInput({ format: 'avro', ...ASKED }, { side, registry });
    await expect(textsIn(input, recordsOf([registry.frame(id, { k: 1n, id: 1 })]))).rejects.toMatchObject({
      code: 'unsupported_field',
      next: expect.stringContaining('topk'),
    });
  });
});
