/** Random events of any schema: the same for the same seed, valid, and in both forms. */
import { describe, expect, it } from 'vitest';
import { avroPair } from '../../../bench/compatibility/avro-pairs.ts';
import { protoPair } from '../../../bench/compatibility/proto-pairs.ts';
import { type SchemaEventsOptions, schemaEvents } from '../../../src/bin/gen/schema-events.ts';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { readJson } from '../../../src/formats/json/text.ts';
import { jsonEncoder } from '../../../src/formats/json-values.ts';
import { parseSchema, type Schema } from '../../../src/formats/schema.ts';
import { readerUnjudged } from '../../../src/serde/codec.ts';
import { readMessage, readPrefixId } from '../../../src/serde/frame.ts';

const ID = 77;
const COUNT = 120;
const versionOf = (schema: Schema) => ({ subject: 's', version: 1, id: ID, context: '', guid: '', schema });

function eventsOf(schema: Schema, over: Partial<SchemaEventsOptions> = {}, batchRows = 50): Buffer[] {
  const source = schemaEvents({
    version: versionOf(schema),
    seed: 1n,
    count: COUNT,
    isFramed: true,
    ...over,
  });
  const batch = RecordBatch.create(batchRows, 1 << 20);
  const found: Buffer[] = [];
  while (source.fill(batch, batchRows) > 0)
    for (let row = 0; row < batch.rowCount; row++) found.push(Buffer.from(batch.value(row) as Uint8Array));
  return found;
}

const SCHEMAS: ReadonlyArray<readonly [string, Schema]> = [
  ...[1, 2, 3].map(
    (seed) => ['avro', parseSchema('AVRO', avroPair(seed).writer, { lenient: true })] as const,
  ),
  ...[1, 2, 3].map((seed) => ['protobuf', parseSchema('PROTOBUF', protoPair(seed).writer)] as const),
];

describe.each(SCHEMAS)('%s', (_name, schema) => {
  it('a seed gives the same events in batches of any size, and another seed gives others', () => {
    const events = eventsOf(schema);
    expect(events).toEqual(eventsOf(schema, {}, 7));
    expect(events).toHaveLength(COUNT);
    expect(new Set(events.map((event) => event.toString('hex'))).size).toBeGreaterThan(1);
    expect(events).not.toEqual(eventsOf(schema, { seed: 2n }));
  });

  it('every event is a framed value of the schema', () => {
    for (const event of eventsOf(schema)) {
      const recordId = readPrefixId(event);
      expect(recordId.id).toBe(ID);
      const { path, payloadStart } = readMessage(recordId, schema.format === 'PROTOBUF');
      expect(() => readerUnjudged(schema, schema, path)(event, payloadStart, event.length)).not.toThrow();
    }
  });

  it('the lines of the same events are values that the JSON encoder accepts', () => {
    const lines = eventsOf(schema, { isFramed: false });
    const framed = eventsOf(schema);
    expect(lines.map((line) => line.toString().split('\n'))).toEqual(
      framed.map(() => [expect.any(String), '']),
    );
    const { encode } = jsonEncoder(schema);
    for (const line of lines)
      expect(() =>
        encode(readJson(line.toString().trimEnd(), { comments: false, repeatedKeys: false })),
      ).not.toThrow();
  });
});

describe('schemas without events', () => {
  it('a JSON Schema and a type without a finite value are refused', () => {
    expect(() => eventsOf(parseSchema('JSON', '{"type":"object"}'))).toThrow('is a JSON Schema');
    const endless = '{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}';
    expect(() => eventsOf(parseSchema('AVRO', endless, { lenient: true }))).toThrow('has no finite value');
  });
});
