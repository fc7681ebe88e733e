/** Smoke run of the serde bench beside its npm peers: every side reads and writes the same values
 *  as the exact decoder, and each goal has its figure. */
import { expect, it } from 'vitest';
import { bench } from '../../bench/serde.ts';
import { goalOf, smokeContext } from '../unit/bench/context.ts';

const PEERS = ['protobufjs', 'bufbuild', 'kafkajs', 'confluent'];

it('the serde bench compares all sides with the exact decoder and measures them', async () => {
  const said: string[] = [];
  const closing: Array<() => Promise<void> | void> = [];
  const results = await bench
    .run(
      smokeContext({
        settings: { native: 'auto' },
        peers: PEERS,
        say: (line) => void said.push(line),
        onClose: (close) => void closing.push(close),
      }),
    )
    .finally(async () => {
      for (const close of closing.reverse()) await close();
    });
  expect(said.filter((line) => line.startsWith('skipped'))).toEqual([]);
  for (const one of results) {
    // The difference of two percentiles may be any number in a short run.
    expect(one.value, one.metric).toBeGreaterThan(one.metric.includes('over raw bytes') ? -1e6 : 0);
    if (one.against !== null) expect(one.against_value, one.metric).toBeGreaterThan(0);
  }
  // arrow-avro takes no part: a test does not compile Rust.
  const goals = results.filter(({ goal }) => goal !== null);
  const named = goals.map(
    (one) => `${one.metric}: ${goalOf(one)}${one.against === null ? '' : `, ${one.against}`}`,
  );
  const overRaw = (title: string): string[] => [
    `${title}: serialize(value) over raw bytes, p50: value < 8`,
    `${title}: serialize(value) over raw bytes, p99: value < 30`,
  ];
  const encoded = (title: string, encodeUs: number): string[] => [
    `${title}: batch encode from columns: value <= ${encodeUs}, scaled`,
    `${title}: batch encode from columns: ratio >= 1.5, columns in TypeScript, encode`,
  ];
  const avro = (title: string, columnsUs: number, encodeUs: number, twoFieldsUs?: number): string[] => [
    ...overRaw(title),
    `${title}: batch to columns, all fields: value <= ${columnsUs}, scaled`,
    `${title}: batch to columns, all fields: ratio >= 3.5, avsc, decode`,
    `${title}: batch to columns, all fields: ratio >= 1.5, columns in TypeScript, all fields`,
    `${title}: batch to columns, all fields, reader schema: value <= ${columnsUs}, scaled`,
    `${title}: batch to columns, all fields, reader schema: ratio >= 3.5, avsc, decode with a resolver`,
    ...(twoFieldsUs === undefined
      ? []
      : [`${title}: batch to columns, two fields: value <= ${twoFieldsUs}, scaled`]),
    `${title}: lazy row, three fields read: ratio >= 3, avsc, decode`,
    ...encoded(title, encodeUs),
    `${title}: serialize(value), numbers: ratio >= 1, avsc, encode into a slab`,
    `${title}: public deserializer, awaited, reader schema: ratio >= 50, kafkajs, decode with a reader schema`,
    `${title}: public deserializer, awaited, reader schema: ratio >= 20, confluent, deserialize with a reader schema`,
  ];
  const protobuf = (title: string, columnsUs: number, encodeUs: number, twoFieldsUs?: number): string[] => [
    ...overRaw(title),
    `${title}: batch to columns, all fields: value <= ${columnsUs}, scaled`,
    `${title}: batch to columns, all fields: ratio >= 8, protobufjs, decode`,
    `${title}: batch to columns, all fields: ratio >= 1.5, columns in TypeScript, all fields`,
    `${title}: batch to columns, all fields, reader's message: value <= ${columnsUs}, scaled`,
    `${title}: batch to columns, all fields, reader's message: ratio >= 8, protobufjs, decode with the reader's message`,
    ...(twoFieldsUs === undefined
      ? []
      : [`${title}: batch to columns, two fields: value <= ${twoFieldsUs}, scaled`]),
    ...encoded(title, encodeUs),
    `${title}: serialize(value), numbers: ratio >= 3, protobufjs, encode`,
  ];
  expect(named).toEqual([
    ...avro('Avro, S', 0.3, 0.35, 0.12),
    ...protobuf('Protobuf, S', 0.3, 0.35, 0.12),
    ...avro('Avro, L', 0.55, 0.6),
    ...protobuf('Protobuf, L', 0.55, 0.6),
    'warm look-up of a schema id: value <= 1, scaled',
    'cold look-up, p99: value < 25',
    'generate a random order: value <= 1.5, scaled',
  ]);
});
