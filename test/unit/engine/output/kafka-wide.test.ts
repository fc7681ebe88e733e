/** Wide records of the Kafka sink: every record that is written can be read, and a wider one is
 *  refused before it is written. */
import { describe, expect, it } from 'vitest';
import { ACCUMULATOR, AGGREGATE } from '../../../../src/core/layout/layouts.gen.ts';
import { CELL } from '../../../../src/core/layout/row-form.ts';
import { addToTop, TOP_CELLS } from '../../../../src/core/layout/top.ts';
import { ValueColumns } from '../../../../src/core/layout/value-columns.ts';
import { Aggregates } from '../../../../src/engine/aggregate/definition.ts';
import { IdHash } from '../../../../src/engine/aggregate/id-hash.ts';
import { KeyColumn } from '../../../../src/engine/keys/column.ts';
import { KEY_BYTES_MAX } from '../../../../src/engine/keys/type.ts';
import { resultShape } from '../../../../src/engine/output/columns.ts';
import {
  RECORD_FORMATS,
  type RecordFormat,
  RegisteredRecords,
} from '../../../../src/engine/output/registered/records.ts';
import { KafkaSink, SCRATCH_FAMILIES } from '../../../../src/engine/output/sink/kafka.ts';
import { ResultRows } from '../../../../src/engine/output/sink/rows.ts';
import type { WindowResult } from '../../../../src/engine/window/accumulator.ts';
import type { FiredPage } from '../../../../src/engine/window/firing.ts';
import { simBrokerDriver } from '../../../../src/sim/broker.ts';
import { SimKv } from '../../../../src/sim/kv.ts';
import { windowBounds } from '../../../contract/fired-kit.ts';
import { realClock } from '../../../wait.ts';
import { registry } from './registry-kit.ts';

const BROKERS = 'sim:1';
/** Most values of the greatest length that a list has. */
const VALUES = 58;
const VALUE_BYTES = 254;

/** Page with one row: each list has all values, under the longest key.
 *  @param type letter of the type of the values
 *  @param fill character of values and key
 *  @param last last character of the key */
function widePage(aggregate: string, type: 's' | 'b', fill: string, last = fill): FiredPage {
  const form = Aggregates.of(aggregate);
  const rows = new Uint8Array(form.bytes);
  const first = ACCUMULATOR.BYTES + form.cellOf(AGGREGATE.TOP, { path: ['b'], kind: 'text' }) * CELL;
  const cells = new BigInt64Array(rows.buffer, first, TOP_CELLS);
  const { texts } = new ValueColumns(1, 1);
  const ids = new IdHash();
  for (let value = 0; value < VALUES; value++) {
    const text = `${type}${String(value).padStart(2, '0')}`.padEnd(1 + VALUE_BYTES, fill);
    const at = BigInt(texts.add(ids.hash(text), text));
    addToTop(cells, texts.cells as BigInt64Array, at, 0n, BigInt(value));
  }
  const key = new TextEncoder().encode(`${fill.repeat(KEY_BYTES_MAX - 1)}${last}`);
  return {
    ...{ bounds: windowBounds(0, 10), form, rows, rowCount: 1 },
    keys: new KeyColumn(key, Uint32Array.of(key.length)),
  };
}

const shapeOf = (aggregate: string) => resultShape({ input: { format: 'json', key: 'k:string', aggregate } });

/** Topic of a cluster of its own, with sinks on it. */
function topicOf(format: RecordFormat, aggregate: string) {
  const { client } = registry();
  const driver = simBrokerDriver({ brokers: BROKERS, seed: 1, clock: realClock });
  return (): KafkaSink =>
    new KafkaSink({
      ...{ driver, brokers: BROKERS, topic: 'out', partitions: 1, replicationFactor: 1 },
      records: new RegisteredRecords({ client, format, topic: 'out', aggregate }),
      scratch: async () => {
        const store = await new SimKv().open('s', { budgetBytes: 1 << 24, families: SCRATCH_FAMILIES });
        return { store, done: () => store.close() };
      },
    });
}

async function resultsOf(sink: KafkaSink): Promise<WindowResult[]> {
  const found: WindowResult[] = [];
  for await (const page of sink.read()) found.push(...page);
  return found;
}

describe.each(RECORD_FORMATS)('wide records in %s', (format) => {
  it.each([
    ['texts whose characters are escaped', 's', '\u0001'],
    ['bytes', 'b', '\u007f'],
  ] as const)('the longest list of %s is read as it was written', async (_, type, fill) => {
    const aggregate = 'topk(b,100)';
    const page = widePage(aggregate, type, fill);
    const open = topicOf(format, aggregate);
    const sink = open();
    const shape = shapeOf(aggregate);
    await sink.bind(shape.keyType, shape);
    await sink.migrate();
    await sink.write([page]);
    await sink.close();
    const { key, aggregates } = new ResultRows(page).result(0);
    expect(JSON.parse(String(aggregates?.[0]))).toHaveLength(VALUES);
    const found = await resultsOf(open());
    expect(found.map((one) => [one.key, one.aggregates])).toEqual([[key, aggregates]]);
  });
});

describe('record keys of many escaped characters', () => {
  it('keys that differ in their last character alone are two results, and a later record replaces one', async () => {
    const aggregate = 'topk(b,2)';
    const open = topicOf('json', aggregate);
    const sink = open();
    const shape = shapeOf(aggregate);
    await sink.bind(shape.keyType, shape);
    await sink.migrate();
    const pages = ['x', 'y', 'x'].map((last) => widePage(aggregate, 's', '\u0001', last));
    await sink.write(pages);
    await sink.close();
    const keyOf = (page: FiredPage): Uint8Array | undefined => new ResultRows(page).result(0).key;
    const found = await resultsOf(open());
    expect(new Set(found.map(({ key }) => key))).toEqual(new Set(pages.slice(0, 2).map(keyOf)));
  });
});

describe('a result that is too wide for a record', () => {
  it('a result of more than 1 MB is refused before it is written', async () => {
    const aggregate = Array.from({ length: 32 }, (_, at) => `topk(b,${at + 60}) as list${at}`).join();
    const open = topicOf('json', aggregate);
    const sink = open();
    const shape = shapeOf(aggregate);
    await sink.bind(shape.keyType, shape);
    await sink.migrate();
    await expect(sink.write([widePage(aggregate, 's', '\u0001')])).rejects.toMatchObject({
      code: 'sink_refused',
      message: expect.stringMatching(/topic out has \d{7} bytes, more than a record of 1000000 holds/),
      next: expect.stringContaining('topk(FIELD,N)'),
    });
    expect(await resultsOf(open())).toEqual([]);
  });
});
