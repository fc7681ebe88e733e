/** Source of the elements of lists: batches that are cut between records, and what the engine
 *  learns about positions meanwhile. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../../src/core/layout/event-batch.ts';
import type { EventRows, EventSource, Receipt } from '../../../../src/engine/source/events.ts';
import { emptyCount } from '../../../../src/engine/source/invalid.ts';
import { ListSource } from '../../../../src/engine/source/list/source.ts';
import { json, openedInput, recordsOf } from '../input/input-kit.ts';

/** Source of one batch of records, each with a number of elements. */
class OneBatch implements EventSource {
  readonly partitionCount = 1;
  receipts: readonly Receipt[] = [];
  starts = 0;
  private readonly counts: readonly number[];

  constructor(counts: readonly number[], receipts: readonly Receipt[]) {
    this.counts = counts;
    this.receipts = receipts;
  }
  async bounds() {
    return [{ low: 0, high: this.counts.length }];
  }
  async added(): Promise<readonly number[]> {
    return [];
  }
  async start(): Promise<void> {
    this.starts++;
  }
  async next(): Promise<EventRows> {
    const records = recordsOf(
      this.counts.map((count) => json({ id: 1, t: 1, items: Array.from({ length: count }, (_, n) => n) })),
    );
    return { records, events: EventBatch.create(1) };
  }
  endOf(): number {
    return this.counts.length;
  }
  async stop(): Promise<void> {}
}

const opened = (counts: readonly number[], receipts: readonly Receipt[] = []) => {
  const definition = { format: 'json', key: 'id:i64', time: 't:ms', value: 'items[]' } as const;
  const { input } = openedInput(definition, { side: 'reference' });
  const records = new OneBatch(counts, receipts);
  const source = new ListSource({
    ...{ source: records, input, stages: { enter() {} }, rowCapacity: 4, arenaBytes: 1 << 12 },
  });
  return { source, records };
};

const offsets = ({ records }: EventRows): readonly number[] =>
  Array.from(records.columns.offset.subarray(0, records.rowCount), Number);

describe('source of the elements of lists', () => {
  it('a batch has whole records, and the last one ends its partition', async () => {
    const { source } = opened([2, 3, 0, 1]);
    const seen: Array<readonly [readonly number[], number]> = [];
    for (let batch = 0; batch < 2; batch++)
      seen.push([offsets((await source.next(0)) as EventRows), source.endOf(0)]);
    expect(seen).toEqual([
      [[0, 0], -1],
      [[1, 1, 1, 2], -1],
    ]);
    expect(offsets((await source.next(0)) as EventRows)).toEqual([3]);
    expect(source.endOf(0)).toBe(4);
  });

  it('receipts count the events of the records that were received together', async () => {
    const { source } = opened(
      [1, 0, 2, 3],
      [
        { rows: 1, atMs: 10 },
        { rows: 3, atMs: 20 },
      ],
    );
    await source.next(0);
    expect(source.receipts).toEqual([
      { rows: 1, atMs: 10 },
      { rows: 3, atMs: 20 },
    ]);
    await source.next(0);
    expect(source.receipts).toEqual([{ rows: 3, atMs: 20 }]);
  });

  it('a start elsewhere drops the rest of the records', async () => {
    const { source, records } = opened([3, 3]);
    await source.next(0);
    await source.start([1]);
    expect(records.starts).toBe(1);
    expect(source.endOf(0)).toBe(2);
    expect(offsets((await source.next(0)) as EventRows)).toEqual([0, 0, 0]);
  });

  it('records without an element are counted up to the limit of their partition', async () => {
    const { source } = opened([0, 1, 0]);
    const { records } = (await source.next(0)) as EventRows;
    expect(emptyCount(records, () => Number.POSITIVE_INFINITY)).toBe(2);
    expect(emptyCount(records, () => 2)).toBe(1);
    expect(emptyCount(recordsOf([json({})]), () => 9)).toBe(0);
  });
});
