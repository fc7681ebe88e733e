/** Sweeps over sessions on disk: the sorted runs that a sweep rewrites, the ends at which it splits
 *  the remaining rows, and the delay of a sweep. */
import { describe, expect, it } from 'vitest';
import type { SweepEntry } from '../../../src/engine/durability/checkpoint/ledger.ts';
import { PIECE_FAMILIES, PieceStore } from '../../../src/engine/durability/spill/pieces.ts';
import { Spiller } from '../../../src/engine/durability/spill/spiller.ts';
import { Stages } from '../../../src/engine/stages.ts';
import type { StateFiring } from '../../../src/engine/state/port.ts';
import { SessionsState } from '../../../src/engine/state/sessions.ts';
import { UNLOGGED } from '../../../src/engine/window/operator.ts';
import { KV_BUDGET_MIN_BYTES } from '../../../src/io/rocksdb/port.ts';
import { SimKv } from '../../../src/sim/kv.ts';
import { admittedOf } from '../../differential/session-kit.ts';
import { native } from '../../differential/window-kit.ts';
import { rowsOfFirings } from '../../windows/fired-rows.ts';

/** An eighth of the gap is 50, a fourth 100. */
const GAP = 400;
const stages = new Stages({ monotonicMs: () => 0 });
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const never = new AbortController().signal;

async function onDisk(gap = GAP) {
  const kv = await new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES });
  const pieces = await PieceStore.open(async () => kv, 'start');
  const state = new SessionsState(native, gap, 1, pieces);
  let id = 0;
  const swept: SweepEntry[] = [];
  const parts = {
    ...{ state, pieces, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
    log: { maySpill: () => true, detached: () => ++id, spilled: () => true, overdue: () => [] },
  };
  const spiller = new Spiller({ ...parts, bytesMax: 0 });
  /** Spiller with enough memory for everything. */
  const spacious = new Spiller({ ...parts, bytesMax: 2 ** 30 });
  const journal = {
    ...UNLOGGED,
    sweeping: (count: number) => {
      id += count;
      return id - count + 1;
    },
    swept: (sweep: SweepEntry) => void swept.push(sweep),
  };
  /** Accumulates events, given as account and time. */
  const accumulate = (events: ReadonlyArray<readonly [bigint, number]>): void => {
    const rows = events.map(([accountId, at]) => ({ accountId, value: 1n, eventTs: BigInt(at) }));
    const { events: batch, admitted } = admittedOf(rows);
    state.accumulate(batch, admitted);
  };
  /** Writes the events to a sorted run. */
  const writeRun = async (events: ReadonlyArray<readonly [bigint, number]>): Promise<void> => {
    accumulate(events);
    spiller.advance();
    await spiller.settled();
  };
  const fire = (frontier: number, atMs = 0): readonly StateFiring[] => state.fire(frontier, atMs, journal);
  return { state, spacious, swept, writeRun, accumulate, fire };
}

const textOf = async (firings: readonly StateFiring[]): Promise<string[]> =>
  (await rowsOfFirings(firings)).map((row) => `${row.accountId}: ${row.windowStart} to ${row.windowEnd}`);

describe('sweep over sessions on disk', () => {
  it('a sweep rewrites runs in which a session is due, splits them by the ends, and only reads the other runs', async () => {
    const { state, swept, writeRun, fire } = await onDisk();
    // In order: one session that has ended, one that continues in run 2, and sessions that are open
    // until 480, 550, 610 and 790.
    await writeRun([
      ...[[1n, 0] as const, [2n, 0] as const],
      ...[[3n, 80] as const, [4n, 150] as const, [5n, 210] as const, [6n, 390] as const],
    ]);
    // Account 1 starts a new session after its first one has ended.
    await writeRun([
      [1n, 440],
      [2n, 350],
      [7n, 360],
    ]);
    // A run that begins after the frontier is not even read.
    await writeRun([[1n, 900]]);
    fire(440);
    const firings = fire(450);
    expect(firings.length).toBe(1);
    expect(firings[0]?.rowsMax).toBe(6);
    expect(await firings[0]?.find(2n)).toEqual([]);
    expect(await textOf(firings)).toEqual(['1: 0 to 400']);
    // Splits at 500, 600, 700, 800 and 1200. Session 2 is known to be open until 750, the least end
    // in run 2.
    expect(swept.map(({ frontier, gone }) => [frontier, gone])).toEqual([[450, [1]]]);
    expect(swept[0]?.left.map(({ id, rows }) => [id, rows])).toEqual([
      [4, 1],
      [5, 1],
      [6, 1],
      [7, 2],
    ]);
    expect([swept[0]?.lastId, state.keyCount()]).toEqual([9, 9]);
    // The sweep took no processing time.
    expect(state.isDue(0)).toBe(false);
    // The first part of session 2 would have ended alone, but is not swept repeatedly while no
    // event arrives.
    expect([fire(450, 5000), state.isDue(60_000)]).toEqual([[], false]);
    const later = fire(490, 5000).concat(fire(490, 6000));
    expect(await textOf(later)).toEqual(['3: 80 to 480']);
    expect(swept[1]?.gone).toEqual([4]);
    const last = fire(Number.POSITIVE_INFINITY, 7000);
    expect(await textOf(last)).toEqual([
      ...['4: 150 to 550', '5: 210 to 610', '2: 0 to 750', '7: 360 to 760'],
      ...['6: 390 to 790', '1: 440 to 840', '1: 900 to 1300'],
    ]);
    state.close();
  });

  it('a sweep merges the smallest runs into one if there are too many runs', async () => {
    const { state, swept, writeRun, fire } = await onDisk();
    for (let i = 1; i <= 65; i++)
      await writeRun(
        Array.from({ length: i % 2 === 0 ? 2 : 1 }, (_, row) => [BigInt(100 * i + row), i] as const),
      );
    const firings = fire(100);
    expect(await textOf(firings)).toEqual([]);
    const smallest = Array.from({ length: 32 }, (_, i) => 2 * i + 1);
    expect(swept.map(({ gone }) => [...gone].sort((a, b) => a - b))).toEqual([smallest]);
    expect(swept[0]?.left.map(({ rows }) => rows)).toEqual([32]);
    expect([state.isDue(0), state.keyCount()]).toEqual([false, 97]);
    state.close();
  });

  it('reading waits for the sweep when it is half a gap ahead', async () => {
    const { state, spacious, writeRun, fire } = await onDisk();
    await writeRun([[1n, 0]]);
    const [firing] = fire(450);
    expect([fire(649), state.isBehind, fire(650), state.isBehind]).toEqual([[], false, [], true]);
    const drain = new AbortController();
    let looks = 0;
    const room = spacious.room(drain.signal, () => {
      looks++;
      drain.abort();
      return true;
    });
    await room;
    expect(looks).toBe(1);
    await spacious.room(never, () => true);
    expect(state.isBehind).toBe(false);
    expect(await textOf([firing as StateFiring])).toEqual(['1: 0 to 400']);
    state.close();
  });

  it('a sweep that leaves nothing on disk returns later ends to the table, even without new events', async () => {
    const { state, writeRun, accumulate, fire } = await onDisk();
    await writeRun([[1n, 0]]);
    const [firing] = fire(450);
    accumulate([[1n, 500]]);
    expect(fire(1000)).toEqual([]);
    expect(await textOf([firing as StateFiring])).toEqual(['1: 0 to 400']);
    expect(state.isDue(0)).toBe(true);
    expect(await textOf(fire(1000))).toEqual(['1: 500 to 900']);
    expect(state.isDue(0)).toBe(false);
    state.close();
  });

  it('a sweep does not wait for more due sessions at the end of the input', async () => {
    const { state, writeRun, fire } = await onDisk();
    await writeRun([[1n, 0]]);
    expect([fire(440), state.isDue(0)]).toEqual([[], false]);
    state.endOfInput();
    expect(state.isDue(0)).toBe(true);
    expect(await textOf(fire(440))).toEqual(['1: 0 to 400']);
    state.close();
  });

  it('sessions of a long gap fire soon after their ends, timed from the watermark move that made them due', async () => {
    const gap = 30_000;
    const { state, spacious, writeRun, accumulate, fire } = await onDisk(gap);
    await writeRun([[0n, 0]]);
    const late: number[] = [];
    let count = 0;
    // Event time advances with the clock, in steps of 100 ms; sweeps and writes take no time.
    for (let now = 100; now <= 100_000; now += 100) {
      if (now < 60_000) accumulate([[BigInt((now / 100) % 97), now]]);
      for (const firing of fire(now, now)) {
        const rows = await rowsOfFirings([firing]);
        count += rows.length;
        const endOf = (row: number): number => Number(rows[row]?.windowEnd);
        let at = 0;
        firing.reached?.runs(rows.length, endOf, (some, atMs) => {
          for (const end = at + some; at < end; at++) expect(atMs).toBe(Math.ceil(endOf(at) / 100) * 100);
          late.push(now - atMs);
        });
        expect(at).toBe(rows.length);
      }
      spacious.advance();
      await spacious.settled();
    }
    expect(count).toBe(97);
    expect(Math.max(...late)).toBeLessThanOrEqual(500);
    state.close();
  });

  it('a sweep takes at most half of the time, unless an ended session is an eighth of a gap old', async () => {
    const { state, writeRun, fire } = await onDisk(30_000);
    await writeRun([0, 500, 4_000, 4_200].map((at, account) => [BigInt(account), at] as const));
    const [first] = fire(30_400, 1_000);
    expect(first).toBeDefined();
    expect(await textOf([first as StateFiring])).toEqual(['0: 0 to 30000']);
    // The sweep took one second of processing time.
    expect(state.isDue(2_000)).toBe(false);
    expect(fire(30_900, 2_900)).toEqual([]);
    expect(await textOf(fire(30_900, 3_000))).toEqual(['1: 500 to 30500']);
    expect(state.isDue(4_000)).toBe(false);
    expect(fire(37_749, 4_100)).toEqual([]);
    expect(await textOf(fire(37_750, 4_100))).toEqual(['2: 4000 to 34000', '3: 4200 to 34200']);
    state.close();
  });
});
