/** Rounds of early results: what they write, when they begin, and what bounds them. */
import { describe, expect, it } from 'vitest';
import { hasUpdates } from '../../../src/bin/engine/emit.ts';
import { AdmittedBatch } from '../../../src/core/layout/admitted-batch.ts';
import { EventBatch } from '../../../src/core/layout/event-batch.ts';
import { RowForm } from '../../../src/core/layout/row-form.ts';
import { type Job, jobChanges } from '../../../src/engine/job.ts';
import { shapeOfKeys } from '../../../src/engine/output/columns.ts';
import { CHANGES_MAX, EarlyResults } from '../../../src/engine/output/early.ts';
import { ResultRows } from '../../../src/engine/output/sink/rows.ts';
import type { StateFiring } from '../../../src/engine/state/port.ts';
import { isEarlyRow } from '../../../src/engine/window/accumulator.ts';
import {
  SlidingWindows,
  TumblingWindows,
  type WindowAssigner,
} from '../../../src/engine/window/definition.ts';
import { until } from '../../wait.ts';

const { bytes: ROW } = RowForm.HEADS;

/** World of one EarlyResults: a state with a row of each key, and the rows that were offered. */
function worldOf(assigner: WindowAssigner = new TumblingWindows(10)) {
  const world = {
    now: 0,
    firedTo: Number.NEGATIVE_INFINITY,
    waiting: 0,
    asked: [] as number[],
    offered: [] as StateFiring[],
    written: [] as string[],
    beforeAnswer: async (): Promise<void> => {},
  };
  const state = {
    get firedTo() {
      return world.firedTo;
    },
    current: async (_end: number, keys: BigUint64Array, into: Uint8Array): Promise<number> => {
      world.asked.push(keys.length);
      await world.beforeAnswer();
      for (const [at, key] of keys.entries()) new DataView(into.buffer).setBigUint64(at * ROW, key, true);
      return keys.length;
    },
  };
  const early = new EarlyResults({
    ...{ state, assigner, form: RowForm.HEADS, intervalMs: 100 },
    clock: { monotonicMs: () => world.now },
    sleep: async () => {},
    offer: (firings) => world.offered.push(...firings),
    waitingRows: () => world.waiting,
    onEmitted: () => {},
  });
  /** Accumulates one event of each key in a slice. */
  const change = (slice: number, keys: readonly bigint[]): void => {
    const [events, admitted] = [EventBatch.create(keys.length), AdmittedBatch.create(keys.length)];
    for (const [row, key] of keys.entries()) {
      events.columns.accountId[row] = key;
      admitted.columns.slice[row] = BigInt(slice);
      admitted.columns.row[row] = row;
    }
    events.rowCount = keys.length;
    admitted.rowCount = keys.length;
    early.note(events, admitted);
  };
  /** Windows and keys that were offered since the last call. */
  const taken = async (): Promise<string[]> => {
    const found: string[] = [];
    for (const firing of world.offered.splice(0)) {
      const rows = new Uint8Array(firing.rowsMax * ROW);
      const rowCount = await firing.read(rows);
      const view = new ResultRows({ bounds: firing.bounds, rows, rowCount });
      for (let row = 0; row < rowCount; row++) {
        expect(isEarlyRow(new DataView(rows.buffer), row * ROW)).toBe(true);
        found.push(`${view.windowStart(row)}-${view.windowEnd(row)} ${view.accountId(row)}`);
      }
      firing.close();
    }
    return found;
  };
  return { world, early, change, taken };
}

describe('a round of early results', () => {
  it('a round begins after the interval and has each changed window once, ascending by key', async () => {
    const { world, early, change, taken } = worldOf();
    change(0, [3n, 1n, 3n]);
    change(10, [2n]);
    change(0, [2n ** 63n]);
    early.advance(99);
    await early.room(new AbortController().signal);
    expect(await taken()).toEqual([]);
    early.advance(100);
    await until('four rows', () => (world.offered.length === 2 ? true : undefined));
    expect(await taken()).toEqual(['0-10 1', '0-10 3', `0-10 ${2n ** 63n}`, '10-20 2']);
    // Nothing has changed since.
    early.advance(1000);
    await early.finish();
    expect(await taken()).toEqual([]);
  });

  it('a change of a slice changes every open window that contains it, and no other', async () => {
    const { world, early, change, taken } = worldOf(new SlidingWindows(30, 10));
    world.firedTo = 20;
    change(10, [7n]);
    await early.finish();
    expect(await taken()).toEqual(['0-30 7', '10-40 7']);
  });

  it('a window that fires while its row is read has no early result', async () => {
    const { world, early, change, taken } = worldOf();
    change(0, [1n]);
    change(10, [1n]);
    world.beforeAnswer = async () => {
      world.firedTo = 10;
    };
    await early.finish();
    expect(await taken()).toEqual(['10-20 1']);
  });

  it('a round waits while the sinks are behind, and ends when the run stops', async () => {
    const { world, early, change } = worldOf();
    world.waiting = 1_000_000;
    change(0, [1n]);
    early.advance(100);
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
    expect(world.asked).toEqual([]);
    early.stop();
    await early.finish();
    expect(world.offered).toEqual([]);
  });

  it('a full set of changes begins a round before the interval, and the next batch waits for it', async () => {
    const { world, early, change } = worldOf();
    for (let from = 0; from < CHANGES_MAX; from += 16_384)
      change(
        0,
        Array.from({ length: 16_384 }, (_, i) => BigInt(from + i)),
      );
    early.advance(1);
    for (let from = 0; from < CHANGES_MAX; from += 16_384)
      change(
        0,
        Array.from({ length: 16_384 }, (_, i) => BigInt(from + i)),
      );
    await early.room(new AbortController().signal);
    expect(world.offered.reduce((rows, { rowsMax }) => rows + rowsMax, 0)).toBe(CHANGES_MAX);
    // One turn of the event loop reads few rows.
    expect(Math.max(...world.asked)).toBeLessThanOrEqual(512);
  });

  it('the failure of a read ends the run', async () => {
    const { world, early, change } = worldOf();
    world.beforeAnswer = () => Promise.reject(new Error('the disk is gone'));
    change(0, [1n]);
    await expect(early.finish()).rejects.toThrow('the disk is gone');
    expect(() => early.advance(1000)).toThrow('the disk is gone');
  });
});

describe('-emit', () => {
  const settings = {
    ...{ emit: 'updates', 'emit-interval': 1000, window: ['tumbling'], bounded: false },
    ...{ sink: 'rocksdb', 'sink-format': 'binary' },
  };

  it.each([
    ['session windows', { window: ['session'] }, /-emit=updates has no meaning for -window=session/],
    ['a bounded run', { bounded: true }, /-emit=updates changes nothing with -bounded/],
    ['parquet', { sink: 'parquet:/x' }, /-emit=updates cannot write to parquet/],
    ['binary records', { sink: 'kafka:x' }, /-emit=updates cannot write the binary records/],
  ])('early results of %s are refused with exit 2', (_what, over, message) => {
    expect(() => hasUpdates({ ...settings, ...over })).toThrow(message);
    expect(() => hasUpdates({ ...settings, ...over })).toThrow(
      expect.objectContaining({ row: expect.objectContaining({ exit: 2 }), next: expect.any(String) }),
    );
    expect(hasUpdates({ ...settings, ...over, emit: 'final' })).toBe(false);
  });

  it('other sinks have early results', () => {
    for (const over of [{}, { sink: 'postgres:postgres://x' }, { sink: 'kafka:x', 'sink-format': 'json' }])
      expect(hasUpdates({ ...settings, ...over })).toBe(true);
  });

  it('a job may begin to write early results, and may not cease to', () => {
    const times = { sizeMs: 1, skewMs: 0, latenessMs: 0 };
    const job: Job = { topic: 't', window: 'tumbling', watermark: 'partition', ...times };
    const updates: Job = { ...job, emit: 'updates' };
    expect(jobChanges(job, updates)).toEqual([{ flag: 'emit', was: undefined, is: 'updates', isSafe: true }]);
    expect(jobChanges(updates, job)).toEqual([
      { flag: 'emit', was: 'updates', is: undefined, isSafe: false },
    ]);
  });

  it.each([undefined, 'updates'] as const)(
    'no other column has the name of the mark where -emit is %s',
    (emit) => {
      for (const name of ['final', 'Final'])
        expect(() => shapeOfKeys([{ name: 'k', kind: 'i64' }], `sum(a) as ${name}`, emit)).toThrow(
          'final marks early results, so that no aggregate has this name',
        );
      const { columns } = shapeOfKeys([{ name: 'final', kind: 'i64' }], undefined, emit);
      expect(columns.map(({ name }) => name).filter((name) => name.includes('final'))).toEqual(
        emit === undefined ? ['key_final'] : ['key_final', 'final'],
      );
    },
  );
});
