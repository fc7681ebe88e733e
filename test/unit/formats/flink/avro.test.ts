/** Columns of Flink SQL tables over Avro schemas, and the schemas of their readers. */
import { describe, expect, it } from 'vitest';
import { flinkAvro } from '../../../../src/formats/flink/avro.ts';
import { type AvroSchema, parseSchema } from '../../../../src/formats/schema.ts';

const field = (name: string, type: unknown, more: object = {}) => ({ name, type, ...more });
const schemaOf = (...fields: readonly object[]): AvroSchema =>
  parseSchema('AVRO', JSON.stringify({ type: 'record', name: 'R', namespace: 'a.b', fields })) as AvroSchema;
const columns = (...fields: readonly object[]) =>
  flinkAvro(schemaOf(...fields).tree).columns.map(({ name, type }) => `${name} ${type}`);

describe('types of columns', () => {
  it.each([
    ['a nullable long', ['null', 'long'], 'BIGINT'],
    ['an int', 'int', 'INT NOT NULL'],
    ['a union of one type', ['string'], 'STRING NOT NULL'],
    ['a date', { type: 'int', logicalType: 'date' }, 'DATE NOT NULL'],
    ['a time in ms', { type: 'int', logicalType: 'time-millis' }, 'TIME(3) NOT NULL'],
    ['a timestamp in ms', { type: 'long', logicalType: 'timestamp-millis' }, 'TIMESTAMP(3) NOT NULL'],
    ['a timestamp in us', { type: 'long', logicalType: 'timestamp-micros' }, 'BIGINT NOT NULL'],
    ['a local timestamp', { type: 'long', logicalType: 'local-timestamp-millis' }, 'BIGINT NOT NULL'],
    [
      'a decimal',
      { type: 'bytes', logicalType: 'decimal', precision: 10, scale: 2 },
      'DECIMAL(10, 2) NOT NULL',
    ],
    ['a decimal of 40 digits', { type: 'bytes', logicalType: 'decimal', precision: 40 }, 'BYTES NOT NULL'],
    ['a uuid', { type: 'string', logicalType: 'uuid' }, 'STRING NOT NULL'],
    ['a fixed', { type: 'fixed', name: 'F', size: 4 }, 'VARBINARY(4) NOT NULL'],
    ['an enum', { type: 'enum', name: 'E', symbols: ['A'] }, 'STRING NOT NULL'],
    ['a list', { type: 'array', items: ['null', 'double'] }, 'ARRAY<DOUBLE> NOT NULL'],
    ['a map', { type: 'map', values: 'boolean' }, 'MAP<STRING NOT NULL, BOOLEAN NOT NULL> NOT NULL'],
    [
      'a record',
      ['null', { type: 'record', name: 'N', fields: [field('x', 'float')] }],
      'ROW<`x` FLOAT NOT NULL>',
    ],
  ])('the column of %s has the type that Flink derives', (_, type, sql) => {
    expect(columns(field('f', type))).toEqual([`f ${sql}`]);
  });

  it.each([
    ['a union of several types', ['int', 'string'], 'f', /union of several types/],
    ['a null', 'null', 'f', /always null/],
    ['a list of unions', { type: 'array', items: ['int', 'string'] }, 'f[]', /union/],
    [
      'a type that contains itself',
      { type: 'record', name: 'N', fields: [field('next', ['null', 'N'])] },
      'f.next',
      /contains itself/,
    ],
    ['a record without fields', { type: 'record', name: 'N', fields: [] }, 'f', /has no fields/],
  ])('the field of %s is an obstacle with its path', (_, type, path, why) => {
    const { obstacles } = flinkAvro(schemaOf(field('f', type)).tree);
    expect(obstacles).toEqual([{ path, why: expect.stringMatching(why) }]);
  });
});

describe('the schema of the reader', () => {
  it('a schema that Flink reads as it is needs no other', () => {
    const { reader, unwritable } = flinkAvro(schemaOf(field('f', 'int')).tree);
    expect({ reader, unwritable }).toEqual({ reader: undefined, unwritable: [] });
  });

  it('an annotation that Flink misreads is left out, and the column says what it was', () => {
    const made = flinkAvro(
      schemaOf(field('at', { type: 'long', logicalType: 'timestamp-micros' }), field('f', 'int')).tree,
    );
    expect(JSON.parse(made.reader as string)).toEqual({
      type: 'record',
      name: 'R',
      namespace: 'a.b',
      fields: [field('at', 'long'), field('f', 'int')],
    });
    expect(made.columns[0]?.notes).toEqual(['at: microseconds since the epoch']);
    expect(made.unwritable).toEqual(['at (timestamp-micros) is read in its plain form']);
  });

  it('some fields keep their types, aliases and defaults, and a type is defined at its first use', () => {
    const fixed = { type: 'fixed', name: 'F', namespace: '', size: 2, aliases: ['a.G'] };
    const schema = schemaOf(
      field('left', { type: 'fixed', name: 'H', size: 1 }),
      field('big', 'long', { default: 1, aliases: ['old'] }),
      field('one', fixed),
      field('two', ['null', 'F'], { default: null }),
      field('kind', { type: 'enum', name: 'K', symbols: ['A', 'B'], default: 'B' }),
    );
    const only = new Set(['big', 'one', 'two', 'kind']);
    const { reader, columns: made } = flinkAvro(schema.tree, { only, isPlain: true });
    expect(made.map(({ name }) => name)).toEqual(['big', 'one', 'two', 'kind']);
    const read = parseSchema('AVRO', reader as string) as AvroSchema;
    expect(JSON.parse(read.text).fields).toEqual([
      field('big', 'long', { default: 1, aliases: ['old'] }),
      field('one', fixed),
      field('two', ['null', 'F'], { default: null }),
      field('kind', { type: 'enum', name: 'K', symbols: ['A', 'B'], default: 'B' }),
    ]);
  });

  it('a default beyond the integers of a double keeps its digits', () => {
    const schema = parseSchema(
      'AVRO',
      '{"type":"record","name":"R","fields":[{"name":"a","type":"long","default":9007199254740993},{"name":"b","type":"int"}]}',
    ) as AvroSchema;
    expect(flinkAvro(schema.tree, { only: new Set(['a']) }).reader).toContain('9007199254740993');
  });
});
