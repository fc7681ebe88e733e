/** State in memory and on disk: the open rows of a key, the rows of a firing, the release of
 *  memory, and the choice of rows to spill. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { rowText } from '../../../bench/peers/oracle/difference.ts';
import { Oracle } from '../../../bench/peers/oracle/windows.ts';
import type { NativeMode } from '../../../src/addon/load.ts';
import { loadWindowKernels } from '../../../src/addon/windows.ts';
import { PIECE_FAMILIES, PieceStore } from '../../../src/engine/durability/spill/pieces.ts';
import type { Spillable } from '../../../src/engine/durability/spill/port.ts';
import { Spiller } from '../../../src/engine/durability/spill/spiller.ts';
import { type Job, stateOf, watermarksOf } from '../../../src/engine/job.ts';
import { Stages } from '../../../src/engine/stages.ts';
import { OPEN_RESULTS_MAX, type StateBackend } from '../../../src/engine/state/port.ts';
import type { WindowResult } from '../../../src/engine/window/accumulator.ts';
import { UNLOGGED, WindowOperator } from '../../../src/engine/window/operator.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import { batchOf, feedOracle, jobs, rulesOf, streams, type TestEvent } from '../../property/engine-kit.ts';
import { runs } from '../../tier.ts';
import { rowsOfFirings } from '../../windows/fired-rows.ts';

const MODES: readonly NativeMode[] = ['native', 'reference'];

function runOf(mode: NativeMode, job: Job, shards: number, pieces?: PieceStore) {
  const kernels = loadWindowKernels(mode);
  const watermarks = watermarksOf(job, kernels, 1);
  const state = stateOf(job, kernels, shards, pieces);
  const operator = new WindowOperator({ watermarks, state, journal: UNLOGGED, rowCapacity: 4096 });
  let offset = 0;
  const feed = (events: readonly TestEvent[]) => {
    const { records, events: rows } = batchOf(
      events,
      events.map((_, i) => offset + i),
    );
    offset += events.length;
    return operator.step(records, rows, 5);
  };
  return { state, operator, feed };
}

/** An empty store in memory. */
const piecesIn = (): Promise<PieceStore> => {
  const options = { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES };
  return PieceStore.open(() => new SimKv().open('x', options));
};

/** Spiller that records its log calls; there is no changelog to replay. */
function spillerOf(state: StateBackend, pieces: PieceStore, bytesMax: number) {
  let last = 0;
  const logged: string[] = [];
  const overdue: number[] = [];
  let spilled = 0;
  const spiller = new Spiller({
    state: state.spillable as Spillable,
    pieces,
    bytesMax,
    log: {
      maySpill: () => true,
      detached: (part) => {
        logged.push(`detached ${part}`);
        return ++last;
      },
      spilled: (piece) => {
        logged.push(`spilled ${piece.part} ${piece.rows}`);
        return true;
      },
      overdue: () => overdue,
    },
    hook: () => {},
    sleep: () => new Promise((resolve) => setImmediate(resolve)),
    stages: new Stages({ monotonicMs: () => 0 }),
    onSpilled: (bytes) => {
      spilled += bytes;
    },
  });
  return { spiller, logged, overdue, spilled: () => spilled };
}

const text = ({ windowStart, windowEnd, ...rest }: WindowResult): string =>
  rowText({ ...rest, windowStart: BigInt(windowStart), windowEnd: BigInt(windowEnd) });

const event = (eventTs: number, accountId = 1n, value = 1n): TestEvent => ({
  partition: 0,
  accountId,
  value,
  eventTs: BigInt(eventTs),
});

const shared = { topic: 't', skewMs: 0, latenessMs: 0, watermark: 'partition' } as const;

describe.each([
  ['native', 'memory'],
  ['reference', 'memory'],
  ['native', 'disk'],
] as const)('state, %s kernels, in %s', (mode, where) => {
  it('the state reports the open rows of a key as they would fire, and a firing reports its rows of the key', async () => {
    const some = where === 'disk' ? jobs.filter(({ window }) => window !== 'session') : jobs;
    await fc.assert(
      fc.asyncProperty(some, streams(1), fc.constantFrom(1, 3), async (job, events, shards) => {
        const pieces = where === 'disk' ? await piecesIn() : undefined;
        const { state, operator, feed } = runOf(mode, job, shards, pieces);
        const spiller = pieces && spillerOf(state, pieces, 0).spiller;
        const oracle = new Oracle(rulesOf(job), 1);
        feedOracle(oracle, events);
        const accounts = [...new Set(events.map(({ accountId }) => accountId)), 77n];
        const found = new Map<bigint, string[]>(accounts.map((id) => [id, []]));
        for (let at = 0; at < events.length; at += 11) {
          for (const firing of feed(events.slice(at, at + 11))) {
            for (const id of accounts) found.get(id)?.push(...(await firing.find(id)).map(text));
            const rows = await rowsOfFirings([firing]);
            expect(rows.length).toBeLessThanOrEqual(firing.rowsMax);
            expect(firing.isClosed).toBe(true);
            for (const id of accounts) expect(await firing.find(id)).toEqual([]);
          }
          spiller?.advance();
          if (at % 2 === 0) await spiller?.settled();
        }
        const isFinal = new Set([...oracle.rows(true)].map(rowText));
        for (const id of accounts) {
          const rows = [...oracle.rows()].filter((row) => row.accountId === id).map(rowText);
          expect(found.get(id)).toEqual(rows.filter((row) => isFinal.has(row)));
          expect((await state.open(id)).map(text)).toEqual(rows.filter((row) => !isFinal.has(row)));
        }
        await spiller?.settled();
        for (const firing of operator.drain(5)) firing.close();
        for (const id of accounts) expect(await state.open(id)).toEqual([]);
        expect([state.openCount(), state.keyCount()]).toEqual([0, 0]);
        state.close();
      }),
      { numRuns: runs(60) },
    );
  });
});

describe.each(MODES)('state in memory, %s kernels', (mode) => {
  it('the state merges a window of hundreds of slices, with pages of any size', async () => {
    const job: Job = { ...shared, window: 'sliding', sizeMs: 700, slideMs: 699 };
    const { state, operator, feed } = runOf(mode, job, 2);
    const events = Array.from({ length: 2000 }, (_, i) => event(i, BigInt(i % 3), BigInt(i)));
    const oracle = new Oracle(rulesOf(job), 1);
    feedOracle(oracle, events);
    const rows = await rowsOfFirings([...feed(events), ...operator.drain(0)], 2);
    expect(rows.map(rowText)).toEqual([...oracle.rows()].map(rowText));
    expect(state.keyCount()).toBe(0);
    state.close();
  });

  it('the state returns the windows of a key that end first if there are very many', async () => {
    const job: Job = { ...shared, window: 'sliding', sizeMs: 5000, slideMs: 1 };
    const { state, feed } = runOf(mode, job, 1);
    for (const firing of feed([event(10), event(11)])) firing.close();
    const open = await state.open(1n);
    expect(open).toHaveLength(OPEN_RESULTS_MAX);
    expect(open[0]).toMatchObject({ windowEnd: 12, count: 2n });
    expect(open.at(-1)).toMatchObject({ windowEnd: 11 + OPEN_RESULTS_MAX });
    const more = await state.open(1n, 11 + OPEN_RESULTS_MAX);
    expect(more).toHaveLength(OPEN_RESULTS_MAX);
    expect(more[0]).toMatchObject({ windowEnd: 12 + OPEN_RESULTS_MAX, count: 2n });
    expect(await state.open(1n, 5010)).toHaveLength(1);
    state.close();
  });

  it('the state keeps a slice until its last window has fired and its rows were released', async () => {
    const job: Job = { ...shared, window: 'sliding', sizeMs: 10, slideMs: 5 };
    const { state, feed } = runOf(mode, job, 1);
    const fired = [...feed([event(1), event(6)])];
    expect([state.openCount(), state.keyCount()]).toEqual([2, 2]);
    fired.push(...feed([event(10)]));
    expect([state.openCount(), state.keyCount()]).toEqual([2, 2]);
    fired.push(...feed([event(40)]));
    expect([state.openCount(), state.keyCount()]).toEqual([1, 1]);
    expect(fired.map(({ bounds }) => bounds)).toEqual(
      [5, 10, 15, 20].map((end) => ({ kind: 'window', start: end - 10, end })),
    );
    // Fired rows remain readable until their firings are read, in any order.
    const counts: unknown[] = [];
    for (const firing of [...fired].reverse())
      counts.push((await rowsOfFirings([firing])).map(({ count }) => count));
    expect(counts).toEqual([[1n], [2n], [2n], [1n]]);
    state.close();
  });

  it('the state refuses rows after the end of the input', async () => {
    for (const windows of [
      { window: 'tumbling', sizeMs: 10 } as const,
      { window: 'session', gapMs: 10 } as const,
    ]) {
      const { state, operator, feed } = runOf(mode, { ...shared, ...windows }, 1);
      feed([event(1)]);
      for (const firing of operator.drain(0)) firing.close();
      expect(() => feed([event(2)])).toThrow(/never falls into a fired window/);
      state.close();
    }
  });
});

describe('spilled state', () => {
  const job: Job = { ...shared, window: 'sliding', sizeMs: 200, slideMs: 50 };
  const keys = (from: number, count: number, ts: number): TestEvent[] =>
    Array.from({ length: count }, (_, i) => event(ts, BigInt(from + i)));
  const memoryOf = (state: StateBackend) => (state.spillable as Spillable).memory();
  const never = new AbortController().signal;

  it('the spill writes sealed runs first, beginning with the run that is needed longest, and then the oldest tables', async () => {
    const pieces = await piecesIn();
    const { state, feed } = runOf('native', job, 1, pieces);
    const fired = [...feed([...keys(0, 3, 10), ...keys(0, 4, 60), ...keys(0, 5, 110), ...keys(0, 2, 160)])];
    fired.push(...feed(keys(0, 1, 170)));
    const { spiller, logged, spilled } = spillerOf(state, pieces, 0);
    expect(memoryOf(state).rows).toBe(14);
    for (let turn = 0; turn < 4; turn++) {
      spiller.advance();
      await spiller.settled();
    }
    const order = logged.filter((one) => one.startsWith('spilled'));
    expect(order).toEqual(['spilled 100 5', 'spilled 50 4', 'spilled 0 3', 'spilled 150 2']);
    expect(logged.filter((one) => one.startsWith('detached'))).toHaveLength(4);
    expect([spilled(), state.spillable?.pieceBytes()]).toEqual([14 * 64, 14 * 64]);
    expect([state.openCount(), state.keyCount()]).toEqual([4, 14]);
    expect(memoryOf(state).rows).toBe(0);
    // Rows of firings count as memory until the firings are closed.
    const { runs } = memoryOf(state);
    expect(runs).toBeGreaterThanOrEqual(12 * 64);
    for (const firing of fired) firing.close();
    expect(memoryOf(state).runs).toBeLessThanOrEqual(runs - 12 * 64);
    state.close();
  });

  it('the memory count includes tables, runs, detached tables, and the index of sorted runs', async () => {
    const pieces = await piecesIn();
    const { state, feed } = runOf('native', job, 1, pieces);
    feed(keys(0, 4000, 10));
    const before = memoryOf(state);
    expect(before.tables).toBeGreaterThanOrEqual(4000 * 64);
    expect(before).toMatchObject({ runs: 0, rows: 4000 });
    const { spiller } = spillerOf(state, pieces, 4 * before.tables - 4);
    spiller.advance();
    expect(spiller.isBusy).toBe(true);
    feed(keys(0, 100, 20));
    expect(memoryOf(state).runs).toBeGreaterThanOrEqual(4000 * 64);
    expect(memoryOf(state).rows).toBe(4100);
    await spiller.settled();
    expect(memoryOf(state)).toMatchObject({ runs: 16 * 8, rows: 100 });
    state.close();
  });

  it('the state stays in memory while the budget suffices, unless it prevents the removal of old changelog', async () => {
    const pieces = await piecesIn();
    const { state, feed } = runOf('native', job, 1, pieces);
    feed([...keys(0, 3, 10), ...keys(0, 4, 60)]);
    const { spiller, logged, overdue } = spillerOf(state, pieces, 1e9);
    spiller.advance();
    await spiller.room(never, () => true);
    expect([logged, spiller.isBusy]).toEqual([[], false]);
    // Slice 100 has no rows in memory; 50 is the first slice in the list that has some.
    overdue.push(100, 50, 0);
    spiller.advance();
    overdue.length = 0;
    await spiller.settled();
    expect(logged).toEqual(['detached 50', 'spilled 50 4']);
    state.close();
  });

  it('the spill waits for the memory that firings hold, and only for that memory', async () => {
    const pieces = await piecesIn();
    const { state, feed } = runOf('native', { ...shared, window: 'tumbling', sizeMs: 10 }, 1, pieces);
    const fired = [...feed([...keys(0, 3, 5), event(25, 9n)])];
    expect(fired).toHaveLength(1);
    const { spiller } = spillerOf(state, pieces, 0);
    let checks = 0;
    const room = spiller.room(never, () => {
      if (++checks === 5) for (const firing of fired) firing.close();
      return fired.some(({ isClosed }) => !isClosed);
    });
    await room;
    expect(checks).toBeGreaterThanOrEqual(5);
    const drain = new AbortController();
    feed([event(26, 9n)]);
    drain.abort();
    await spiller.room(drain.signal, () => true);
    state.close();
  });

  it('a failed write of a sorted run is reported to the next caller', async () => {
    const driver = new SimKv();
    const options = { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES };
    const pieces = await PieceStore.open(() => driver.open('x', options));
    const { state, feed } = runOf('native', job, 1, pieces);
    feed(keys(0, 3, 10));
    driver.crash('x');
    const { spiller } = spillerOf(state, pieces, 0);
    await expect(spiller.room(never, () => false)).rejects.toMatchObject({ code: 'closed' });
    expect(() => spiller.advance()).toThrow(/closed/);
    // No row is lost: the rows are still in memory.
    expect(await state.open(1n)).toHaveLength(4);
    state.close();
  });
});
