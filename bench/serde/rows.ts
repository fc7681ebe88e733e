/** Rows of the table: which side is compared with which, and their goals. */
import { type BenchResult, result, type Series } from '../harness.ts';
import { machineFactor } from '../unit.ts';
import type { SerdeCase } from './case.ts';

interface Row {
  readonly metric: string;
  /** Name of Millrace's side. */
  readonly ours: string;
  /** Microseconds on the reference machine, for the shapes S and L. */
  readonly goalUs?: Readonly<Record<'S' | 'L', number>>;
  /** Sides to compare with; a number is the smallest ratio that is good enough. */
  readonly against: Readonly<Record<string, number | null>>;
}

const AVRO_ROWS: readonly Row[] = [
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
    const goal =
      goalUs === undefined ? {} : { goal: { onReference: goalUs[one.shape.name], factor: machineFactor() } };
    const compared = Object.entries(against).filter(([name]) => sides[name] !== undefined);
    if (goalUs !== undefined || compared.length === 0) results.push(result({ ...shared, ...goal }));
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
