/** Open sessions: the addon and the reference implementation store, write and release the same
 *  bytes, and both equal a list of intervals for each key. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { SessionState } from '../../src/addon/window-surface.ts';
import { DELTA_STATUS, SESSION_DELTAS, SESSION_DELTAS_FORM } from '../../src/core/layout/layouts.gen.ts';
import { runs } from '../tier.ts';
import {
  admittedOf,
  found,
  Intervals,
  readOut,
  rowsOfSessions,
  type Session,
  scalarsOf,
  sessionDeltasOf,
  sessionsOf,
} from './session-kit.ts';
import {
  changed,
  type EventRow,
  hexOf,
  I64_MAX,
  I64_MIN,
  native,
  outcome,
  ROW_BYTES,
  SIDES,
} from './window-kit.ts';

const LIMIT = 2n ** 52n;
const KEYS = [0n, 1n, 2n, 3n, 2n ** 32n, 2n ** 63n, 2n ** 64n - 1n];
const keys = fc.oneof(
  { weight: 5, arbitrary: fc.constantFrom(...KEYS) },
  { weight: 1, arbitrary: fc.bigInt(0n, 2n ** 64n - 1n) },
);
const values = fc.oneof(fc.bigInt(-5n, 5n), fc.constantFrom(I64_MIN, I64_MAX, 0n, -1n));
/** Distance of an event ahead of the watermark, in 64ths of four gaps. */
const rows = fc.array(fc.record({ key: keys, value: values, ahead: fc.bigInt(0n, 64n) }), { maxLength: 40 });
const rises = fc.oneof(fc.constant(0n), fc.bigInt(1n, 40n));
const courses = fc.array(fc.record({ rows, rise: rises }), { maxLength: 6 });
const gaps = fc.constantFrom(1, 2, 16, 17, 1000, 30_000, 2 ** 46);
const bases = fc.constantFrom(0n, -40n, 1_750_000_000_000n);
const shardCounts = fc.integer({ min: 1, max: 5 });

/** Turns the steps of a course into events at or ahead of a rising watermark. */
function timed(
  course: ReadonlyArray<{ rows: ReadonlyArray<{ key: bigint; value: bigint; ahead: bigint }>; rise: bigint }>,
  gapMs: number,
  base: bigint,
): ReadonlyArray<{ readonly events: EventRow[]; readonly frontier: bigint }> {
  let frontier = base;
  const span = (parts: bigint): bigint => (parts * BigInt(gapMs)) / 16n;
  return course.map((step) => {
    const events = step.rows.map(({ key, value, ahead }) => ({
      accountId: key,
      value,
      eventTs: frontier + span(ahead),
    }));
    frontier += span(step.rise);
    return { events, frontier };
  });
}

function filled(state: SessionState, batches: readonly (readonly EventRow[])[]): Uint8Array[] {
  return batches.map((events) => {
    const batch = admittedOf(events);
    state.accumulate(batch.events, batch.admitted);
    return sessionDeltasOf(state);
  });
}

describe('session state', () => {
  it('the session state stores, reports, encodes and fires the same on both sides, as the rules demand', async () => {
    await fc.assert(
      fc.asyncProperty(courses, gaps, bases, shardCounts, async (course, gapMs, base, shards) => {
        const states = SIDES.map((kernels) => kernels.openSessions(gapMs, shards));
        const model = new Intervals(gapMs);
        for (const { events, frontier } of timed(course, gapMs, base)) {
          const batch = admittedOf(events);
          const deltas = states.map((state) => {
            state.accumulate(batch.events, batch.admitted);
            return hexOf(sessionDeltasOf(state).buffer);
          });
          expect(deltas[1]).toBe(deltas[0]);
          model.add(events);
          const [fromReference, addon] = states.map(scalarsOf);
          expect(addon).toEqual(fromReference);
          expect(fromReference?.[0]).toBe(model.open().length);
          for (const one of model.open())
            expect(fromReference?.[2]).toBeLessThanOrEqual(Number(one.last) + gapMs);
          for (const key of KEYS) {
            const expected = hexOf(rowsOfSessions(model.open(key)).buffer);
            expect(states.map((state) => hexOf(found(state, key).buffer))).toEqual([expected, expected]);
          }
          const fired = await Promise.all(
            states.map(async (state) => {
              const run = await state.fire(Number(frontier));
              return [run.rowCount, run.bytes, hexOf(readOut(run).buffer)];
            }),
          );
          expect(fired[1]).toEqual(fired[0]);
          expect(fired[0]?.[2]).toBe(hexOf(rowsOfSessions(model.fire(frontier)).buffer));
          for (const state of states) expect(state.leastEnd()).toBeGreaterThan(Number(frontier));
          expect(states.map(scalarsOf)[1]).toEqual(states.map(scalarsOf)[0]);
        }
        for (const state of states) {
          const rest = readOut(await state.fire(Number.POSITIVE_INFINITY), 100);
          expect(sessionsOf(rest).length).toBe(model.open().length);
          expect([state.sessionCount(), state.leastEnd()]).toEqual([0, Number.POSITIVE_INFINITY]);
        }
      }),
      { numRuns: runs(250) },
    );
  });

  it('the session state is rebuilt from its deltas in any number of shards and merges bridged sessions', async () => {
    await fc.assert(
      fc.asyncProperty(courses, gaps, shardCounts, shardCounts, async (course, gapMs, shards, others) => {
        const batches = timed(course, gapMs, 0n).map((step) => step.events);
        const deltas = filled(native.openSessions(gapMs, shards), batches);
        const model = new Intervals(gapMs);
        for (const events of batches) model.add(events);
        const expected = hexOf(rowsOfSessions(model.fire(I64_MAX)).buffer);
        for (const kernels of SIDES) {
          const state = kernels.openSessions(gapMs, others);
          expect(deltas.map((one) => state.applyDeltas(one))).toEqual(deltas.map(() => DELTA_STATUS.OK));
          expect(hexOf(readOut(await state.fire(Number.POSITIVE_INFINITY)).buffer)).toBe(expected);
        }
      }),
      { numRuns: runs(100) },
    );
  });

  it('the session state depends neither on the batch sizes nor on the order of loads', async () => {
    await fc.assert(
      fc.asyncProperty(
        courses,
        gaps,
        fc.integer({ min: 1, max: 9 }),
        fc.boolean(),
        async (course, gapMs, cut, back) => {
          const events = timed(course, gapMs, -100n).flatMap((step) => step.events);
          const model = new Intervals(gapMs);
          model.add(events);
          const expected = hexOf(rowsOfSessions(model.fire(I64_MAX)).buffer);
          const cuts = Array.from({ length: Math.ceil(events.length / cut) }, (_, i) =>
            events.slice(i * cut, (i + 1) * cut),
          );
          for (const kernels of SIDES) {
            const one = kernels.openSessions(gapMs, 2);
            filled(one, cuts);
            const parts: Session[] = events.map(({ accountId = 0n, value = 0n, eventTs: at }) => {
              const times = { key: accountId, start: at, last: at };
              return { ...times, count: 1n, sum: value, min: value, max: value };
            });
            const other = kernels.openSessions(gapMs, 3);
            other.load(rowsOfSessions(back ? parts.reverse() : parts), parts.length);
            for (const state of [one, other])
              expect(hexOf(readOut(await state.fire(Number.POSITIVE_INFINITY)).buffer)).toBe(expected);
          }
        },
      ),
      { numRuns: runs(100) },
    );
  });

  it('the session state merges one part that spans many open sessions of a key into one session', async () => {
    for (const kernels of SIDES) {
      const state = kernels.openSessions(10, 1);
      const one = (start: bigint, last: bigint): Session => ({
        ...{ key: 7n, start, last },
        ...{ count: 1n, sum: 2n, min: 2n, max: 2n },
      });
      const starts = Array.from({ length: 20 }, (_, i) => BigInt(i * 20));
      state.load(rowsOfSessions(starts.map((start) => one(start, start))), 20);
      expect([state.sessionCount(), state.mergedCount()]).toEqual([20, 0]);
      state.load(rowsOfSessions([one(90n, 310n)]), 1);
      // At a distance of one gap from both ends: 80 and 320 stay separate, 100 to 300 become one
      // session.
      expect([state.sessionCount(), state.mergedCount()]).toEqual([10, 10]);
      expect(sessionsOf(found(state, 7n)).map(({ start, last }) => [start, last])).toEqual([
        ...[0n, 20n, 40n, 60n, 80n].map((at) => [at, at]),
        [90n, 310n],
        ...[320n, 340n, 360n, 380n].map((at) => [at, at]),
      ]);
      const few = new ArrayBuffer(2 * ROW_BYTES);
      expect(state.find(7n, few)).toBe(10);
      expect(sessionsOf(new Uint8Array(few)).map((each) => each.start)).toEqual([0n, 20n]);
    }
  });

  it('the session state gives the same result for large batches with threads as with one thread', async () => {
    let word = 11;
    const draw = (): number => {
      word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
      return word >>> 4;
    };
    const batches = [0, 1, 2].map((round) =>
      Array.from({ length: 6000 }, () => ({
        accountId: BigInt(draw() >>> (draw() % 26)),
        value: BigInt(draw()) - 2n ** 27n,
        eventTs: BigInt(round * 1000 + (draw() % 20_000)),
      })),
    );
    const model = new Intervals(700);
    for (const events of batches) model.add(events);
    const some = hexOf(rowsOfSessions(model.fire(9000n)).buffer);
    const rest = hexOf(rowsOfSessions(model.fire(I64_MAX)).buffer);
    for (const shards of [1, 2, 3, 8]) {
      const states = SIDES.map((kernels) => kernels.openSessions(700, shards));
      const [fromReference, addon] = states.map((state) =>
        filled(state, batches).map((one) => hexOf(one.buffer)),
      );
      expect(addon).toEqual(fromReference);
      expect(states.map(scalarsOf)[1]).toEqual(states.map(scalarsOf)[0]);
      for (const state of states) {
        expect(hexOf(readOut(await state.fire(9000), 500).buffer)).toBe(some);
        expect(hexOf(readOut(await state.fire(Number.POSITIVE_INFINITY), 500).buffer)).toBe(rest);
        state.close();
      }
    }
  });

  it('the session state refuses an invalid session and stays unchanged', () => {
    const far = fc.constantFrom(I64_MIN, I64_MAX, LIMIT, -LIMIT - 1n);
    const good: EventRow[] = [{ eventTs: 5n }, { eventTs: 6n, accountId: 1n }, { eventTs: -LIMIT }];
    fc.assert(
      fc.property(fc.option(far), fc.option(fc.constantFrom(3, 0xffff_ffff)), far, (ts, row, time) => {
        const answers = SIDES.map((kernels) => {
          const state = kernels.openSessions(10, 2);
          filled(state, [good]);
          const before = scalarsOf(state);
          const batch = admittedOf(good);
          if (ts !== null) batch.events.columns.eventTs[1] = ts;
          if (row !== null) batch.admitted.columns.row[2] = row;
          const answer =
            ts === null && row === null
              ? 'out_of_range'
              : outcome(() => state.accumulate(batch.events, batch.admitted));
          const whole: Session = { key: 1n, start: 0n, last: 9n, count: 1n, sum: 0n, min: 0n, max: 0n };
          const loads = [
            { ...whole, count: 0n },
            { ...whole, start: 10n },
            { ...whole, start: time < 0n ? time : 0n, last: time < 0n ? 9n : time },
          ].map((bad) => outcome(() => state.load(rowsOfSessions([whole, bad]), 2)));
          loads.push(`${outcome(() => state.load(rowsOfSessions([whole]), 2))}`);
          expect(scalarsOf(state)).toEqual(before);
          return [answer, ...loads];
        });
        const refused = new Array<string>(5).fill('out_of_range');
        expect(answers).toEqual([refused, refused]);
      }),
      { numRuns: runs(60) },
    );
  });
});

describe('decoder of partial sessions', () => {
  const whole = (): Uint8Array => {
    const events = Array.from({ length: 9 }, (_, i) => ({
      accountId: BigInt(i % 4) * 700n,
      value: BigInt(i * i * 1000 - 9000),
      eventTs: BigInt((i % 5) * 40 - 40),
    }));
    return filled(native.openSessions(60, 2), [events])[0] as Uint8Array;
  };

  it('the session decoder gives the same verdict on both sides for any change, and changes nothing unless it is OK', async () => {
    const seen = new Set<number>();
    await fc.assert(
      fc.asyncProperty(changed(whole(), SESSION_DELTAS.LENGTH), async (bytes) => {
        const answers = await Promise.all(
          SIDES.map(async (kernels) => {
            const state = kernels.openSessions(60, 3);
            const before = scalarsOf(state);
            const status = state.applyDeltas(bytes);
            seen.add(status);
            if (status !== DELTA_STATUS.OK) expect(scalarsOf(state)).toEqual(before);
            return [
              status,
              scalarsOf(state),
              hexOf(readOut(await state.fire(Number.POSITIVE_INFINITY)).buffer),
            ];
          }),
        );
        expect(answers[1]).toEqual(answers[0]);
      }),
      { numRuns: runs(3000) },
    );
    const { OK, BAD_HEAD, BAD_COLUMN, BAD_DELTA } = DELTA_STATUS;
    expect([...seen].sort()).toEqual([OK, BAD_HEAD, BAD_COLUMN, BAD_DELTA]);
  });

  it('a session of one event is encoded in the bytes that account, time and value need', () => {
    const one = { accountId: 0x1234n, value: -3n, eventTs: -1n };
    const head = (length: number, least: string): string =>
      `4d53443102000000${hexOf(Uint8Array.of(length).buffer)}000000010000003c00000000000000${least}`;
    // Lengths, then the integers of account, start, count - 1 and value. Sessions of several events
    // would add more columns.
    const columns = '023412' + '00' + '00' + '0105';
    const minusOne = 'ffffffffffffffff';
    for (const kernels of SIDES) {
      const bytes = filled(kernels.openSessions(60, 1), [[one]])[0] as Uint8Array;
      expect(hexOf(bytes.slice().buffer)).toBe(head(32 + 7, minusOne) + columns);
    }
  });

  it('the session decoder refuses the old form with a whole row for each session', () => {
    const old = new Uint8Array(64 + ROW_BYTES);
    const view = new DataView(old.buffer);
    [SESSION_DELTAS_FORM.MAGIC, 1, old.length, 1].forEach((word, i) => {
      view.setUint32(i * 4, word, true);
    });
    view.setBigInt64(SESSION_DELTAS.GAP_MS, 60n, true);
    view.setBigUint64(64 + 8, 1n, true);
    for (const kernels of SIDES)
      expect(kernels.openSessions(60, 1).applyDeltas(old)).toBe(DELTA_STATUS.BAD_HEAD);
  });

  it('the session decoder refuses every prefix, and the deltas of another gap', () => {
    const bytes = whole();
    for (const kernels of SIDES) {
      for (let length = 0; length < bytes.length; length++)
        expect(kernels.openSessions(60, 1).applyDeltas(bytes.slice(0, length))).toBe(DELTA_STATUS.BAD_HEAD);
      expect(kernels.openSessions(61, 1).applyDeltas(bytes)).toBe(DELTA_STATUS.BAD_HEAD);
    }
  });
});
