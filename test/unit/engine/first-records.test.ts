/** First records of a topic: they are held until they decide the definition of the input, and are
 *  then the events that they would have been without holding. */
import { describe, expect, it } from 'vitest';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { EVENT_STATUS, TIMESTAMP_TYPE } from '../../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../../src/core/layout/record-batch.ts';
import { savedJob } from '../../../src/engine/durability/checkpoint/restore.ts';
import type { Job } from '../../../src/engine/job.ts';
import type { EventRows, EventSource, Receipt } from '../../../src/engine/source/events.ts';
import { FIRST_RECORDS_WAIT_MS, FirstRecordsSource } from '../../../src/engine/source/first/source.ts';
import type { InputDefinition } from '../../../src/engine/source/input/definition.ts';
import { JUDGED_RECORDS } from '../../../src/engine/source/input/judge.ts';
import { ListRows } from '../../../src/engine/source/list/rows.ts';
import { ListSource } from '../../../src/engine/source/list/source.ts';
import { SimDisk } from '../../../src/sim/disk.ts';
import { drawFrom, engineIn, MemorySink, MemorySource, untilKilled } from '../../property/engine-kit.ts';
import { avro, json, MemoryRegistry, openedInput } from './input/input-kit.ts';

type Value = Buffer | null;

/** Topic of one partition whose batches arrive one a read; `undefined`: a read without records. Its
 *  buffers are used again for each batch, as those of the broker client are. */
class Topic implements EventSource {
  readonly partitionCount = 1;
  receipts: readonly Receipt[] = [];
  /** Batches that may still be read before the process dies. */
  batchesLeft = Number.POSITIVE_INFINITY;
  readonly batches: Array<readonly Value[] | undefined>;
  private readonly records: RecordBatch;
  private readonly events: EventBatch;
  private at = 0;
  private offset = 0;
  /** Records of the next batch that lie before the offset of the start. */
  private skipped = 0;

  constructor(batches: ReadonlyArray<readonly Value[] | undefined>, arenaBytes = 1 << 20) {
    this.batches = [...batches];
    this.records = RecordBatch.create(2048, arenaBytes);
    this.events = EventBatch.create(2048);
  }
  get high(): number {
    return this.batches.reduce((sum, batch) => sum + (batch?.length ?? 0), 0);
  }
  async bounds() {
    return [{ low: 0, high: this.high }];
  }
  async added(): Promise<readonly number[]> {
    return [];
  }
  async start([offset = 0]: readonly number[]): Promise<void> {
    this.at = 0;
    this.offset = offset;
    this.skipped = offset;
    while (this.skipped > 0 && this.at < this.batches.length) {
      const rows = this.batches[this.at]?.length ?? 0;
      if (rows > this.skipped) break;
      this.skipped -= rows;
      this.at++;
    }
  }
  async next(): Promise<EventRows | undefined> {
    if (this.batchesLeft-- <= 0) throw new Error('killed');
    const batch = this.batches[this.at++]?.slice(this.skipped);
    this.skipped = 0;
    if (batch === undefined) return undefined;
    const { records } = this;
    records.columns.arena.fill(0xff);
    records.clear();
    for (const value of batch) {
      const offset = BigInt(this.offset++);
      const key = Buffer.from('k');
      const at = { partition: 0, offset, timestamp: 5000n + offset, timestampType: TIMESTAMP_TYPE.CREATE };
      expect(records.append({ ...at, key, value })).toBe(true);
    }
    this.receipts = [{ rows: batch.length, atMs: this.at }];
    return { records, events: this.events };
  }
  endOf(): number {
    return this.at >= this.batches.length ? this.offset : -1;
  }
  async stop(): Promise<void> {}
}

class SetClock {
  now = 0;
  monotonicMs = (): number => this.now;
}

function openedSource(
  topic: Topic,
  asked: Parameters<typeof openedInput>[0],
  { hasEnd = false, registry }: { hasEnd?: boolean; registry?: MemoryRegistry } = {},
) {
  const { input, logged } = openedInput(asked, { side: 'reference', registry });
  const clock = new SetClock();
  const decoder = input.list === undefined ? input : { decode() {}, isReady: true };
  const source = new FirstRecordsSource({
    ...{ source: topic, input, decoder, clock, hasEnd },
    stages: { enter() {} },
  });
  return { input, logged, clock, source };
}

/** Statuses of rows by their offsets, such as `0: OK`. */
const NAMES = new Map(Object.entries(EVENT_STATUS).map(([name, status]) => [status as number, name]));
const rowsOf = (rows: EventRows | undefined): readonly string[] | undefined =>
  rows &&
  Array.from(
    { length: rows.records.rowCount },
    (_, row) =>
      `${rows.records.columns.offset[row]}: ${NAMES.get(rows.events.columns.status[row] as number)}`,
  );

const numbers = (count: number): readonly Buffer[] =>
  Array.from({ length: count }, (_, id) => json({ id, t: id }));
const TEXT = json({ id: 'x', t: 1 });
const BY_ID = { key: 'id', time: 't:ms' } as const;
const warnings = (logged: ReturnType<typeof openedSource>['logged']) =>
  logged.filter(({ text }) => text.includes('few records'));

describe('first records of a topic', () => {
  it('a first record that differs from most others decides nothing', async () => {
    const topic = new Topic([[TEXT], numbers(2), numbers(JUDGED_RECORDS)]);
    const { source, input, logged } = openedSource(topic, BY_ID);
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    expect(await source.next(0)).toBeUndefined();
    expect(input.definition.format).toBe('undecided');
    expect(source.endOf(0)).toBe(-1);
    const first = await source.next(0);
    expect(input.definition).toMatchObject({ format: 'json', key: 'id' });
    expect(logged.at(-1)).toMatchObject({
      text: 'input inferred from the first records',
      fields: { records: JUDGED_RECORDS },
    });
    expect(rowsOf(first)).toEqual(['0: BAD_KEY']);
    expect(rowsOf(await source.next(0))).toEqual(['1: OK', '2: OK']);
    expect(source.endOf(0)).toBe(-1);
    expect(rowsOf(await source.next(0))).toHaveLength(JUDGED_RECORDS);
    expect(source.endOf(0)).toBe(topic.high);
    expect(await source.next(0)).toBeUndefined();
  });

  it('batches keep their receipts', async () => {
    const topic = new Topic([numbers(1), undefined, numbers(2), numbers(JUDGED_RECORDS)]);
    const { source } = openedSource(topic, BY_ID);
    await source.start([0]);
    const seen: unknown[] = [];
    for (let read = 0; read < 6; read++) if ((await source.next(0)) !== undefined) seen.push(source.receipts);
    expect(seen).toEqual([
      [{ rows: 1, atMs: 1 }],
      [{ rows: 2, atMs: 3 }],
      [{ rows: JUDGED_RECORDS, atMs: 4 }],
    ]);
  });

  it('a live topic that stays short is decided after a stated time, and the log warns with the number of records', async () => {
    const topic = new Topic([undefined, numbers(1), numbers(1), undefined, undefined, [TEXT]]);
    const { source, input, clock, logged } = openedSource(topic, BY_ID);
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    clock.now = 10 * FIRST_RECORDS_WAIT_MS;
    expect(await source.next(0)).toBeUndefined();
    expect(await source.next(0)).toBeUndefined();
    clock.now += FIRST_RECORDS_WAIT_MS - 1;
    expect(await source.next(0)).toBeUndefined();
    expect(input.isDecided).toBe(false);
    clock.now++;
    expect(rowsOf(await source.next(0))).toEqual(['0: OK']);
    expect(rowsOf(await source.next(0))).toEqual(['1: OK']);
    expect(rowsOf(await source.next(0))).toEqual(['2: BAD_KEY']);
    expect(warnings(logged)).toMatchObject([{ fields: { records: 2 } }]);
  });

  it('a run with an end is decided by all of its records, without a warning', async () => {
    const { source, input, logged } = openedSource(new Topic([[TEXT], numbers(2)]), BY_ID, { hasEnd: true });
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    expect(rowsOf(await source.next(0))).toEqual(['0: BAD_KEY']);
    expect(rowsOf(await source.next(0))).toEqual(['1: OK', '2: OK']);
    expect(input.definition.key).toBe('id');
    expect(warnings(logged)).toEqual([]);
  });

  it('large records decide before they are many', async () => {
    const large = [json({ id: 1, t: 1, pad: 'x'.repeat(6 << 20) })];
    const { source, input } = openedSource(new Topic([large, large, large], 8 << 20), BY_ID);
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    expect(await source.next(0)).toBeUndefined();
    expect(input.isDecided).toBe(false);
    expect(rowsOf(await source.next(0))).toEqual(['0: OK']);
  });

  it('a full first batch is returned without a copy', async () => {
    const { source } = openedSource(new Topic([numbers(JUDGED_RECORDS)]), BY_ID);
    await source.start([0]);
    const rows = await source.next(0);
    expect(rows?.records.rowCapacity).toBe(2048);
    expect(rowsOf(rows)).toHaveLength(JUDGED_RECORDS);
  });

  it('settings that leave nothing open are decided by the first batch', async () => {
    const asked = { ...BY_ID, format: 'json', key: 'id:i64' } as const;
    const { source, input, logged } = openedSource(new Topic([[TEXT], numbers(1)]), asked);
    await source.start([0]);
    expect(rowsOf(await source.next(0))).toEqual(['0: BAD_KEY']);
    expect(input.definition).toMatchObject(asked);
    expect(warnings(logged)).toEqual([]);
  });

  it('a start elsewhere drops held records, and reads them again', async () => {
    const topic = new Topic([numbers(1), numbers(1), numbers(JUDGED_RECORDS)]);
    const { source } = openedSource(topic, BY_ID);
    await source.start([0]);
    await source.next(0);
    await source.start([1]);
    expect(await source.next(0)).toBeUndefined();
    expect(rowsOf(await source.next(0))).toEqual(['1: OK']);
  });

  it('records that decide nothing are invalid, and the next records decide', async () => {
    const registry = new MemoryRegistry();
    const unknown = Buffer.from([0, 0, 0, 0, 1, 2]);
    // Most of the sample is framed, so a batch of JSON among it decides nothing either.
    const topic = new Topic([[unknown, null, unknown], [json({})], [unknown], undefined]);
    const { source, input, clock } = openedSource(topic, {}, { registry });
    await source.start([0]);
    for (let read = 0; read < 3; read++) expect(await source.next(0)).toBeUndefined();
    clock.now = FIRST_RECORDS_WAIT_MS;
    expect(rowsOf(await source.next(0))).toEqual(['0: UNKNOWN_SCHEMA_ID', '1: NULL', '2: UNKNOWN_SCHEMA_ID']);
    expect(rowsOf(await source.next(0))).toEqual(['3: BAD_MAGIC']);
    expect(rowsOf(await source.next(0))).toEqual(['4: UNKNOWN_SCHEMA_ID']);
    expect(input.isDecided).toBe(false);
    const id = registry.add(
      'AVRO',
      avro({ name: 'at', type: { type: 'long', logicalType: 'timestamp-millis' } }),
    );
    topic.batches.push(Array.from({ length: JUDGED_RECORDS }, () => registry.frame(id, { at: 1n })));
    expect((await source.next(0))?.records.rowCount).toBe(JUDGED_RECORDS);
    expect(input.definition).toMatchObject({ format: 'avro', time: 'at', key: '@key:string' });
  });

  it('tombstones alone decide nothing, and are not held for ever', async () => {
    const { source, input, clock } = openedSource(new Topic([[null], undefined]), BY_ID);
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    clock.now = FIRST_RECORDS_WAIT_MS;
    expect(rowsOf(await source.next(0))).toEqual(['0: NULL']);
    expect(input.isDecided).toBe(false);
  });

  it('elements of lists are those of the held records', async () => {
    const order = (...skus: readonly unknown[]): Buffer => json({ t: 1, items: skus });
    const asked = { key: 'items[]', time: 't:ms' } as const;
    const opened = openedSource(new Topic([[order(1)], [order('a', 'b'), order('c')]]), asked, {
      hasEnd: true,
    });
    const source = new ListSource({
      ...{ source: opened.source, input: opened.input, stages: { enter() {} } },
      ...{ rowCapacity: 8, arenaBytes: 1 << 20 },
    });
    await source.start([0]);
    expect(await source.next(0)).toBeUndefined();
    expect(rowsOf(await source.next(0))).toEqual(['0: BAD_KEY']);
    const rows = await source.next(0);
    expect(rowsOf(rows)).toEqual(['1: OK', '1: OK', '2: OK']);
    expect(ListRows.of(rows?.records as RecordBatch)?.elementsMax).toBe(8);
  });
});

const JOB: Job = {
  ...{ topic: 'events', skewMs: 0, latenessMs: 0, watermark: 'partition' },
  ...{ input: { format: 'undecided', ...BY_ID, value: 'v' } as InputDefinition },
  ...{ window: 'tumbling', sizeMs: 10 },
};

describe('a crash before the first records have decided', () => {
  const values = Array.from({ length: 12 }, (_, at) => json({ id: at % 3, t: at * 5, v: 1 }));
  // The first record alone would make the key a string.
  const batches = [[TEXT], values.slice(0, 4), values.slice(4, 8), values.slice(8)];

  async function live(disk: SimDisk, sink: MemorySink, batchesLeft: number) {
    const topic = new Topic(batches);
    topic.batchesLeft = batchesLeft;
    const { source, input } = openedSource(topic, JOB.input as InputDefinition, { hasEnd: true });
    const engine = engineIn(
      {
        ...{ job: JOB, partitions: 1, shards: 1, disk, sink, checkpointIntervalMs: 1 },
        source: new MemorySource([], 1, 1),
      },
      { source, input },
    );
    await engine.restore();
    return { input, summary: await engine.run(new AbortController().signal) };
  }

  it('a restart holds the same records again, and gives the results of a run without a crash', async () => {
    const whole = new MemorySink();
    const { summary } = await live(new SimDisk(), whole, Number.POSITIVE_INFINITY);
    expect(summary).toMatchObject({ consumed: 13, accepted: 12, invalid: 1 });
    for (let read = 0; read < batches.length; read++) {
      const disk = new SimDisk();
      const sink = new MemorySink();
      await expect(live(disk, sink, read)).rejects.toThrow('killed');
      expect((await savedJob(disk.view()))?.input?.format).toBe('undecided');
      const resumed = await live(disk, sink, Number.POSITIVE_INFINITY);
      expect(resumed.summary).toMatchObject({ consumed: 13, accepted: 12, invalid: 1 });
      expect(sink.sorted()).toEqual(whole.sorted());
    }
  });

  it('a loss of power at any write to the state folder changes no result', async () => {
    const whole = new MemorySink();
    await live(new SimDisk(), whole, Number.POSITIVE_INFINITY);
    for (let changes = 0; changes < 60; changes++) {
      const disk = new SimDisk();
      const sink = new MemorySink();
      disk.changesLeft = changes;
      await untilKilled(live(disk, sink, Number.POSITIVE_INFINITY));
      sink.crash();
      disk.crash(drawFrom(changes));
      disk.changesLeft = Number.POSITIVE_INFINITY;
      const { input } = await live(disk, sink, Number.POSITIVE_INFINITY);
      expect(input.definition.key).toBe('id');
      expect([sink.sorted(), sink.changed]).toEqual([whole.sorted(), 0]);
    }
  });
});
