/** Rows of the table: which side is compared with which, and their goals. */
import { type BenchResult, result, type Series } from '../harness.ts';
import { machineFactor } from '../unit.ts';
import type { SerdeCase } from './case.ts';

interface Row {
  readonly metric: string;
  /** Name of Millrace's side. */
  readonly ours: string;
  /** Microseconds on the reference machine, by shape. */
  readonly goalUs?: Readonly<Partial<Record<'S' | 'L', number>>>;
  /** Sides to compare with; a number is the smallest ratio that is good enough. */
  readonly against: Readonly<Record<string, number | null>>;
}

/** Goals of the batch decoder, in microseconds. */
const COLUMNS_GOAL = { S: 0.3, L: 0.55 } as const;
const TWO_FIELDS_GOAL = { S: 0.12 } as const;
/** Goals of the batch encoder. */
const ENCODE_GOAL = { S: 0.35, L: 0.6 } as const;

const AVRO_ROWS: readonly Row[] = [
  {
    metric: 'batch to columns, all fields',
    ours: 'columns, all fields',
    goalUs: COLUMNS_GOAL,
    against: {
      'arrow-avro, decode': 1.7,
      'avsc, decode': 3.5,
      'columns in TypeScript, all fields': 1.5,
    },
  },
  {
    metric: 'batch to columns, all fields, reader schema',
    ours: 'columns, reader schema',
    goalUs: COLUMNS_GOAL,
    against: {
      'arrow-avro, decode with a reader schema': 1.7,
      'avsc, decode with a resolver': 3.5,
    },
  },
  {
    metric: 'batch to columns, two fields',
    ours: 'columns, two fields',
    goalUs: TWO_FIELDS_GOAL,
    against: { 'arrow-avro, decode two fields': null },
  },
  {
    metric: 'batch to columns, first and last field',
    ours: 'columns, first and last field',
    against: {},
  },
  {
    metric: 'lazy row, three fields read',
    ours: 'lazy row, three fields',
    against: { 'avsc, decode': 3 },
  },
  {
    metric: 'batch encode from columns',
    ours: 'columns, encode',
    goalUs: ENCODE_GOAL,
    against: {
      'arrow-avro, encode': null,
      'avsc, encode into a slab': null,
      'columns in TypeScript, encode': 1.5,
    },
  },
  {
    metric: 'serialize(value), bigint',
    ours: 'serialize, bigint',
    against: { 'raw bytes': null, 'avsc with bigint, encode into a slab': null },
  },
  {
    metric: 'serialize(value), numbers',
    ours: 'serialize, numbers',
    against: { 'avsc, encode into a slab': 1, 'kafkajs, encode': null, 'confluent, serialize': null },
  },
  {
    metric: 'deserialize to an object',
    ours: 'deserializeSync',
    against: { 'avsc, decode': null },
  },
  {
    metric: 'deserialize to an object, reader schema',
    ours: 'deserializeSync, reader schema',
    against: { 'avsc, decode with a resolver': null },
  },
  {
    metric: 'public deserializer, awaited',
    ours: 'deserialize, awaited',
    against: { 'kafkajs, decode': null, 'confluent, deserialize': null },
  },
  {
    metric: 'public deserializer, awaited, reader schema',
    ours: 'deserialize, awaited, reader schema',
    against: {
      'kafkajs, decode with a reader schema': 50,
      'confluent, deserialize with a reader schema': 20,
    },
  },
];

const PROTOBUF_ROWS: readonly Row[] = [
  {
    metric: 'batch to columns, all fields',
    ours: 'columns, all fields',
    goalUs: COLUMNS_GOAL,
    against: { 'protobufjs, decode': 8, 'columns in TypeScript, all fields': 1.5 },
  },
  {
    metric: "batch to columns, all fields, reader's message",
    ours: 'columns, reader schema',
    goalUs: COLUMNS_GOAL,
    against: { "protobufjs, decode with the reader's message": 8 },
  },
  {
    metric: 'batch to columns, two fields',
    ours: 'columns, two fields',
    goalUs: TWO_FIELDS_GOAL,
    against: {},
  },
  {
    metric: 'batch to columns, first and last field',
    ours: 'columns, first and last field',
    against: {},
  },
  {
    metric: 'lazy row, three fields read',
    ours: 'lazy row, three fields',
    against: { 'protobufjs, decode': null },
  },
  {
    metric: 'batch encode from columns',
    ours: 'columns, encode',
    goalUs: ENCODE_GOAL,
    against: {
      'protobufjs, encode': null,
      '@bufbuild/protobuf, toBinary of a message': null,
      'columns in TypeScript, encode': 1.5,
    },
  },
  {
    metric: 'serialize(value), bigint',
    ours: 'serialize, bigint',
    against: { 'raw bytes': null },
  },
  {
    metric: 'serialize(value), numbers',
    ours: 'serialize, numbers',
    against: { 'protobufjs, encode': 3, '@bufbuild/protobuf, toBinary of a message': null },
  },
  {
    metric: 'deserialize to an object',
    ours: 'deserializeSync',
    against: { 'protobufjs, decode': null, '@bufbuild/protobuf, fromBinary': null },
  },
  {
    metric: 'deserialize to an object, reader schema',
    ours: 'deserializeSync, reader schema',
    against: {
      "protobufjs, decode with the reader's message": null,
      "@bufbuild/protobuf, fromBinary of the reader's message": null,
    },
  },
  {
    metric: 'public deserializer, awaited',
    ours: 'deserialize, awaited',
    against: { 'kafkajs, decode': null, 'confluent, deserialize': null },
  },
];

/** Makes the rows of a case from the measured sides, in microseconds of CPU for one record. A
 *  comparison with a side that was not measured is left out. */
export function rowsOf(one: SerdeCase, sides: Readonly<Record<string, Series>>): BenchResult[] {
  const rows = one.format === 'AVRO' ? AVRO_ROWS : PROTOBUF_ROWS;
  const results: BenchResult[] = [];
  for (const { metric, ours, goalUs, against } of rows) {
    const series = sides[ours];
    if (series === undefined) continue;
    const shared = {
      metric: `${one.title}: ${metric}`,
      unit: 'us CPU/record',
      better: 'less',
      ours: series,
    } as const;
    const onReference = goalUs?.[one.shape.name];
    const goal = onReference === undefined ? {} : { goal: { onReference, factor: machineFactor() } };
    const compared = Object.entries(against).filter(([name]) => sides[name] !== undefined);
    if (onReference !== undefined || compared.length === 0) results.push(result({ ...shared, ...goal }));
    for (const [name, ratio] of compared)
      results.push(
        result({
          ...shared,
          against: { name, series: sides[name] as Series },
          ...(ratio === null ? {} : { goal: { ratioAtLeast: ratio } }),
        }),
      );
  }
  return results;
}
