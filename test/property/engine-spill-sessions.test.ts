/** Sessions on disk: swept, killed anywhere and restored, they equal those of the oracle; the open
 *  sessions of a key are found wherever they are stored; damage is reported. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LogEntry, OracleRules } from '../../bench/peers/oracle/rules.ts';
import { type ChangelogRecord, decodeRecord } from '../../src/engine/durability/changelog/records.ts';
import { Replay } from '../../src/engine/durability/changelog/replay.ts';
import type { SweepEntry } from '../../src/engine/durability/checkpoint/ledger.ts';
import { PIECE_FAMILIES, PieceStore } from '../../src/engine/durability/spill/pieces.ts';
import { Spiller } from '../../src/engine/durability/spill/spiller.ts';
import { Stages } from '../../src/engine/stages.ts';
import type { StateFiring } from '../../src/engine/state/port.ts';
import { SessionsState } from '../../src/engine/state/sessions.ts';
import type { WindowResult } from '../../src/engine/window/accumulator.ts';
import { UNLOGGED } from '../../src/engine/window/operator.ts';
import { KV_BUDGET_MIN_BYTES } from '../../src/io/rocksdb/port.ts';
import { SimKv } from '../../src/sim/kv.ts';
import { admittedOf, Intervals, type Session } from '../differential/session-kit.ts';
import { type EventRow, native } from '../differential/window-kit.ts';
import { runs } from '../tier.ts';
import { type Course, type InputRecord, oracleDifference, PLAIN } from '../windows/engine-under-test.ts';
import { rowsOfFirings } from '../windows/fired-rows.ts';
import { type Left, operatorUnderTest, SPILL_FOLDER } from '../windows/operator-under-test.ts';

const stages = new Stages({ monotonicMs: () => 0 });

// The reference kernels sort synchronously, so that the order of events does not depend on threads.
const engine = operatorUnderTest('reference', 'disk');
const RULES: OracleRules = { window: 'session', gapMs: 40n, skewMs: 5n, latenessMs: 10n };

/** Events of frequent and rare accounts, with pauses that are longer than a gap. */
function logOf(seed: number, count: number): readonly Extract<LogEntry, { kind: 'event' }>[] {
  let word = seed;
  const draw = (below: number): number => {
    word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
    return (word >>> 8) % below;
  };
  let now = 0;
  return Array.from({ length: count }, (_, i) => {
    now += draw(60) === 0 ? 70 : draw(4);
    const accountId = BigInt(draw(2) === 0 ? draw(3) : draw(40));
    const eventTs = BigInt(now - draw(12));
    return { kind: 'event', partition: 0, accountId, value: BigInt(i), eventTs };
  });
}

async function recordsOf({ disk }: Left): Promise<ChangelogRecord[]> {
  const records: ChangelogRecord[] = [];
  await new Replay(disk.view(), 1, 0).run(({ kind, body }) => {
    const decoded = decodeRecord(kind, body);
    if ('record' in decoded) records.push(decoded.record);
  });
  return records;
}

describe('sessions on disk', () => {
  it('sessions on disk equal those of the oracle when they are swept and the engine is killed anywhere', async () => {
    const lives = fc.array(fc.integer({ min: 1, max: 25 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(
        fc.nat(10_000),
        lives,
        fc.integer({ min: 0, max: 5 }),
        fc.constantFrom(3n, 16n, 40n, 90n),
        async (seed, each, checkpointEvery, gapMs) => {
          const stream = { rules: { ...RULES, gapMs }, partitions: 1, log: logOf(seed, 350) };
          const course: Course = {
            ...PLAIN,
            batchRows: [4, 9],
            checkpointEvery,
            lives: each,
            shards: [1, 3],
          };
          expect(await oracleDifference(engine, stream, course)).toBe('');
        },
      ),
      { numRuns: runs(40) },
    );
  });

  it('sessions are swept into sorted runs repeatedly, and the changelog records each run once its results have left', async () => {
    const log = logOf(3, 600);
    const run = await engine.start({ rules: RULES, partitions: 1, shards: 1 });
    for (let at = 0; at < log.length; at += 10) {
      const batch: InputRecord[] = log.slice(at, at + 10).map((entry, i) => ({ entry, offset: at + i }));
      await run.feed(batch);
    }
    const left = (await run.kill()) as Left;
    const records = await recordsOf(left);
    const swept = records.flatMap((record, i) => (record.kind === 'swept' ? [{ record, i }] : []));
    expect(swept.length).toBeGreaterThan(10);
    expect(swept.filter(({ record }) => record.left.length > 0).length).toBeGreaterThan(5);
    for (const { record, i } of swept) {
      const fired = records.slice(i).find((one) => one.kind === 'fired');
      if (fired !== undefined) expect(fired.frontier).toBeGreaterThanOrEqual(record.frontier);
    }
    // A sweep removes each sorted run once, and only a run that existed.
    const known = new Set<number>();
    for (const record of records) {
      if (record.kind === 'spilled') known.add(record.piece.id);
      if (record.kind !== 'swept') continue;
      for (const id of record.gone) expect(known.delete(id)).toBe(true);
      for (const { id } of record.left) known.add(id);
    }
  });

  it('a start with a damaged or missing run of sessions fails, and the error names the run', async () => {
    const log = logOf(5, 300);
    const job = { rules: RULES, partitions: 1, shards: 2 };
    const run = await engine.start(job);
    for (let at = 0; at < log.length; at += 10)
      await run.feed(log.slice(at, at + 10).map((entry, i) => ({ entry, offset: at + i })));
    await run.checkpoint();
    const left = (await run.kill()) as Left;
    const damagedCopy = (damage: (values: Uint8Array[]) => readonly Uint8Array[]): Left => {
      const kv = new SimKv();
      const { keys = [], values = [] } =
        left.kv?.folders.get(SPILL_FOLDER)?.families.get('pieces')?.live ?? {};
      const live = damage(values.map((value) => value.slice()));
      const table = { keys: keys.slice(0, live.length), values: live };
      const families = new Map([['pieces', { live: table, durable: table }]]);
      kv.folders.set(SPILL_FOLDER, { families, holder: undefined });
      return { ...left, disk: left.disk.copy(), kv };
    };
    const flipped = damagedCopy((values) => {
      for (const value of values) value[20] = (value[20] as number) ^ 4;
      return values;
    });
    for (const [damaged, why] of [
      [flipped, /piece \d+ of part 0 has changed since/],
      [damagedCopy(() => []), /piece \d+ of part 0 is missing/],
    ] as const) {
      const failure = await engine.restore(job, damaged).catch((thrown: unknown) => thrown);
      expect(failure).toMatchObject({ code: 'state_corrupt', message: expect.stringMatching(why) });
    }
    const whole = await engine.restore(
      job,
      damagedCopy((values) => values),
    );
    expect(whole.position()).toBe(log.length);
  });

  it('sessions fire from memory again after a sweep that leaves no session on disk', async () => {
    const pieces = await PieceStore.open(
      () => new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES }),
      'start',
    );
    const state = new SessionsState(native, 50, 1, pieces);
    const swept: SweepEntry[] = [];
    const tookOutAt: number[] = [];
    const journal = {
      ...UNLOGGED,
      sweeping: () => 9,
      swept: (sweep: SweepEntry) => void swept.push(sweep),
      tookOut: (frontier: number) => void tookOutAt.push(frontier),
    };
    const add = (eventTs: bigint): void => {
      const batch = admittedOf([{ accountId: 3n, value: 2n, eventTs }]);
      state.accumulate(batch.events, batch.admitted);
    };
    const spiller = new Spiller({
      ...{ state, pieces, bytesMax: 0, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
      log: { maySpill: () => true, detached: () => 4, spilled: () => true, overdue: () => [] },
    });
    add(100n);
    spiller.advance();
    await spiller.settled();
    // The session ended less than an eighth of a gap ago. It fires later, or after a time without
    // events.
    expect(state.fire(151, 0, journal)).toEqual([]);
    expect([state.isDue(399), state.isDue(400), state.firedTo]).toEqual([
      false,
      true,
      Number.NEGATIVE_INFINITY,
    ]);
    const [firing] = state.fire(151, 1000, journal);
    expect([state.isDue(5000), state.firedTo]).toEqual([false, 151]);
    expect(await rowsOfFirings([firing as StateFiring])).toMatchObject([
      { accountId: 3n, windowStart: 100n, windowEnd: 150n, count: 1n },
    ]);
    expect(swept).toEqual([{ frontier: 151, gone: [4], lastId: 14, left: [] }]);
    expect([state.keyCount(), state.pieceBytes(), await state.open(3n)]).toEqual([0, 0, []]);
    add(160n);
    expect((await state.open(3n)).length).toBe(1);
    const fired = state.fire(300, 2000, journal);
    expect([fired.length, tookOutAt, swept.length]).toEqual([1, [300], 1]);
    await rowsOfFirings(fired);
    state.close();
  });

  it('all sessions are present at the end of a bounded input after a sweep in flight', async () => {
    const kv = await new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES });
    const pieces = await PieceStore.open(async () => kv, 'start');
    const state = new SessionsState(native, 50, 1, pieces);
    const model = new Intervals(50);
    let id = 0;
    const spiller = new Spiller({
      ...{ state, pieces, bytesMax: 0, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
      log: { maySpill: () => true, detached: () => ++id, spilled: () => true, overdue: () => [] },
    });
    for (const eventTs of [0n, 30n, 200n, 240n, 280n]) {
      const rows = [1n, 2n].map((accountId) => ({ accountId, value: eventTs, eventTs }));
      model.add(rows);
      const batch = admittedOf(rows);
      state.accumulate(batch.events, batch.admitted);
      if (eventTs === 280n) break;
      state.fire(0, 0, UNLOGGED);
      spiller.advance();
      await spiller.settled();
    }
    // All but the last events are on disk, in parts detached at frontier 0. Only the drain detaches
    // the table.
    const firings = [...state.fire(100, 0, UNLOGGED), ...state.fire(Number.POSITIVE_INFINITY, 0, UNLOGGED)];
    const found = await firings.at(-1)?.find(2n);
    expect(found?.map(({ windowStart, windowEnd }) => [windowStart, windowEnd])).toEqual([
      [0, 80],
      [200, 330],
    ]);
    const rows = await rowsOfFirings(firings);
    expect(rows.map((row) => `${row.accountId} ${row.windowStart} ${row.windowEnd} ${row.sum}`)).toEqual(
      model.fire(1000n).map((one) => `${one.key} ${one.start} ${one.last + 50n} ${one.sum}`),
    );
    expect([state.keyCount(), state.memory().runs]).toEqual([0, 0]);
    state.close();
  });

  it('a failed sweep ends the read of its firing, and a closed state aborts quietly', async () => {
    const kv = await new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES });
    const pieces = await PieceStore.open(async () => kv, 'start');
    const state = new SessionsState(native, 50, 1, pieces);
    const spiller = new Spiller({
      ...{ state, pieces, bytesMax: 0, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
      log: { maySpill: () => true, detached: () => 1, spilled: () => true, overdue: () => [] },
    });
    const batch = admittedOf([{ accountId: 1n, value: 1n, eventTs: 5n }]);
    state.accumulate(batch.events, batch.admitted);
    spiller.advance();
    await spiller.settled();
    await pieces.drop(1);
    const [firing] = state.fire(1000, 0, UNLOGGED);
    await expect(firing?.read(new Uint8Array(640))).rejects.toMatchObject({ code: 'kv_corrupt' });
    firing?.close();
    state.close();
  });
});

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('open sessions of a key', () => {
  const GAP = 50;
  const span = (one: Session | WindowResult): string =>
    'last' in one
      ? `${one.start} ${Number(one.last) + GAP} ${one.count} ${one.sum}`
      : `${one.windowStart} ${one.windowEnd} ${one.count} ${one.sum}`;

  it('open sessions are found in the table, in detached tables, in sorted runs and in a sweep', async () => {
    await fc.assert(
      fc.asyncProperty(fc.nat(10_000), async (seed) => {
        const pieces = await PieceStore.open(
          () => new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES }),
          'start',
        );
        const state = new SessionsState(native, GAP, 2, pieces);
        let id = 0;
        const sweeping = (pieces: number): number => {
          id += pieces;
          return id - pieces + 1;
        };
        const journal = { ...UNLOGGED, sweeping };
        const log = {
          maySpill: () => true,
          detached: () => ++id,
          spilled: () => true,
          overdue: () => [],
        };
        const spiller = new Spiller({
          ...{ state, log, pieces, bytesMax: 0, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
        });
        const model = new Intervals(GAP);
        const all: Session[] = [];
        const leaving: StateFiring[] = [];
        const left: string[] = [];
        let frontier = 0;
        const events = logOf(seed, 240);
        for (let at = 0; at < events.length; at += 8) {
          const rows: EventRow[] = events
            .slice(at, at + 8)
            .filter(({ eventTs }) => Number(eventTs) >= frontier);
          model.add(rows);
          const batch = admittedOf(rows);
          state.accumulate(batch.events, batch.admitted);
          frontier = Math.max(frontier, ...rows.map(({ eventTs }) => Number(eventTs) - 15));
          leaving.push(...state.fire(frontier, at, journal));
          spiller.advance();
          if (at % 3 === 0) await turn();
          // Sessions that have ended but not fired count as open.
          const [fired, open] = [model.fire(BigInt(Math.max(0, state.firedTo))), model.open()];
          all.push(...fired);
          for (const key of [0n, 1n, 2n, 7n]) {
            const found = await Promise.all([...leaving.map((one) => one.find(key)), state.open(key)]);
            const expected = [...all, ...open].filter((one) => one.key === key).map(span);
            const gone = left
              .filter((line) => line.startsWith(`${key} `))
              .map((line) => line.slice(`${key} `.length));
            expect([...gone, ...found.flat().map(span)].sort()).toEqual(expected.sort());
          }
          if (at % 5 === 0) {
            const [first] = leaving.splice(0, 1);
            if (first === undefined) continue;
            for (const row of await rowsOfFirings([first]))
              left.push(`${row.accountId} ${row.windowStart} ${row.windowEnd} ${row.count} ${row.sum}`);
          }
        }
        await spiller.settled();
        await rowsOfFirings(leaving);
        state.close();
      }),
      { numRuns: runs(25) },
    );
  });

  it('the answer for a key has bounded size, and sessions of a key that span many chunks are complete', async () => {
    const pieces = await PieceStore.open(
      () => new SimKv().open('x', { budgetBytes: KV_BUDGET_MIN_BYTES, families: PIECE_FAMILIES }),
      'start',
    );
    const state = new SessionsState(native, GAP, 1, pieces);
    let id = 0;
    const spiller = new Spiller({
      ...{ state, pieces, bytesMax: 0, hook: () => {}, sleep: turn, onSpilled: () => {}, stages },
      log: { maySpill: () => true, detached: () => ++id, spilled: () => true, overdue: () => [] },
    });
    // Each session has two events, and each sorted run contains one of them.
    for (const half of [0, 1]) {
      const rows = Array.from({ length: 700 }, (_, i) =>
        [5n, 6n, 7n].map((accountId) => ({
          accountId,
          value: 1n,
          eventTs: BigInt(i * 100 + half * 30),
        })),
      ).flat();
      const batch = admittedOf(rows);
      state.accumulate(batch.events, batch.admitted);
      spiller.advance();
      await spiller.settled();
    }
    expect(state.memory().rows).toBe(0);
    expect(state.pieceBytes()).toBe(2 * 2100 * 64);
    for (const key of [5n, 6n, 7n]) {
      const found = await state.open(key);
      expect(found.map(({ windowStart, windowEnd, count }) => [windowStart, windowEnd, count])).toEqual(
        Array.from({ length: 700 }, (_, i) => [i * 100, i * 100 + 30 + GAP, 2n]),
      );
    }
    for (const key of [4n, 8n]) expect(await state.open(key)).toEqual([]);
    state.close();
  });
});
