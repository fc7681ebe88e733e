/** Compares the table of open sessions with a list of intervals for each key: the same sessions
 *  fire, once each and not late. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SessionTable } from '../../src/addon/reference/session/table.ts';
import { RowCells } from '../../src/addon/reference/window/cells.ts';
import { isEmpty, ROW_WORDS } from '../../src/addon/reference/window/table.ts';
import { ACCUMULATOR } from '../../src/core/layout/layouts.gen.ts';

interface Session {
  readonly key: bigint;
  start: bigint;
  last: bigint;
  count: bigint;
  sum: bigint;
  min: bigint;
  max: bigint;
}

function sessionOf(rows: Int32Array, at: number): Session {
  const row = rows.slice(at, at + ROW_WORDS).buffer;
  const signed = new BigInt64Array(row);
  const unsigned = new BigUint64Array(row);
  const cell = (offset: number): bigint => signed[offset / 8] as bigint;
  return {
    key: unsigned[ACCUMULATOR.ACCOUNT_ID / 8] as bigint,
    start: cell(ACCUMULATOR.SPARE),
    last: cell(ACCUMULATOR.LAST_UPDATE_TS),
    count: cell(ACCUMULATOR.COUNT),
    sum: (cell(ACCUMULATOR.SUM_HIGH) << 64n) + (unsigned[ACCUMULATOR.SUM_LOW / 8] as bigint),
    min: cell(ACCUMULATOR.MIN),
    max: cell(ACCUMULATOR.MAX),
  };
}

/** Model: intervals in a list. An event joins all intervals less than a gap away. */
class Model {
  sessions: Session[] = [];
  private readonly gap: bigint;

  constructor(gap: bigint) {
    this.gap = gap;
  }

  add(key: bigint, value: bigint, ts: bigint): void {
    const made: Session = { key, start: ts, last: ts, count: 1n, sum: value, min: value, max: value };
    const near = (one: Session): boolean =>
      one.key === key && ts - one.last < this.gap && one.start - ts < this.gap;
    for (const one of this.sessions.filter(near)) {
      if (one.start < made.start) made.start = one.start;
      if (one.last > made.last) made.last = one.last;
      if (one.min < made.min) made.min = one.min;
      if (one.max > made.max) made.max = one.max;
      made.count += one.count;
      made.sum += one.sum;
    }
    this.sessions = [...this.sessions.filter((one) => !near(one)), made];
  }

  fire(watermark: bigint): Session[] {
    const ended = (one: Session): boolean => one.last + this.gap <= watermark;
    const fired = this.sessions.filter(ended);
    this.sessions = this.sessions.filter((one) => !ended(one));
    return fired;
  }
}

const inOrder = (sessions: readonly Session[]): Session[] =>
  [...sessions].sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : a.start < b.start ? -1 : 1));

/** Words of the partial session of one event. */
function eventRow(key: bigint, value: bigint, ts: bigint): Int32Array {
  const cells = [key, 1n, value, value >> 63n, value, value, ts, ts];
  return new Int32Array(BigUint64Array.from(cells, (cell) => BigInt.asUintN(64, cell)).buffer);
}

/** Copies of the rows of a table. */
function heldBy(table: SessionTable): Int32Array[] {
  const rows: Int32Array[] = [];
  for (let at = 0; at < table.rows.length; at += ROW_WORDS)
    if (!isEmpty(table.rows, at)) rows.push(table.rows.slice(at, at + ROW_WORDS));
  return rows;
}

const I64 = 2n ** 63n;
const steps = fc.array(
  fc.record({
    key: fc.oneof(fc.bigInt({ min: 0n, max: 3n }), fc.constantFrom(2n ** 64n - 1n, 2n ** 32n)),
    value: fc.oneof(fc.bigInt({ min: -9n, max: 9n }), fc.constantFrom(-I64, I64 - 1n)),
    /** Distance of the event ahead of the watermark. */
    ahead: fc.bigInt({ min: 0n, max: 60n }),
    /** Rise of the watermark after the event. */
    rise: fc.oneof(
      { weight: 3, arbitrary: fc.constant(0n) },
      { weight: 1, arbitrary: fc.bigInt({ min: 1n, max: 30n }) },
    ),
    moved: fc.boolean(),
  }),
  { maxLength: 120 },
);

describe('table of open sessions', () => {
  it('the session table contains and fires the same sessions as a list of intervals, with saves and loads in between', () => {
    const gaps = fc.constantFrom(1, 2, 5, 8, 16, 17);
    const bases = fc.constantFrom(0n, -40n, 1_750_000_000_000n, 2n ** 51n);
    fc.assert(
      fc.property(steps, gaps, bases, (events, gapMs, base) => {
        let table = new SessionTable(RowCells.HEADS, gapMs);
        const model = new Model(BigInt(gapMs));
        let watermark = base;
        for (const { key, value, ahead, rise, moved } of events) {
          const ts = watermark + ahead;
          table.fold(eventRow(key, value, ts), 0);
          model.add(key, value, ts);
          watermark += rise;
          expect(table.leastEnd).toBeLessThanOrEqual(
            Number(model.sessions.reduce((least, one) => (one.last < least ? one.last : least), I64)) + gapMs,
          );
          if (rise > 0n) {
            const fired: Session[] = [];
            table.fire(Number(watermark), (rows, at) => fired.push(sessionOf(rows, at)));
            expect(inOrder(fired)).toEqual(inOrder(model.fire(watermark)));
          }
          if (moved) {
            const rows = heldBy(table);
            expect(rows.length).toBe(table.sessionCount);
            table = new SessionTable(RowCells.HEADS, gapMs);
            for (const row of rows) table.fold(row, 0);
          }
        }
        const open = heldBy(table).map((row) => sessionOf(row, 0));
        expect(inOrder(open)).toEqual(inOrder(model.sessions));
      }),
    );
  });

  it('the session table finds each of many keys while it grows', () => {
    const gapMs = 1000;
    const table = new SessionTable(RowCells.HEADS, gapMs);
    const keys = 5000;
    for (let round = 0; round < 3; round++) {
      for (let key = 0; key < keys; key++) {
        table.fold(eventRow(BigInt(key), 1n, BigInt(round * 5000 + (key % 7) * 10)), 0);
      }
    }
    expect(table.sessionCount).toBe(3 * keys);
    for (let key = 0; key < keys; key++) {
      const starts = table.ofKey(key, 0).map((row) => sessionOf(row, 0).start);
      expect(starts).toEqual([0, 1, 2].map((round) => BigInt(round * 5000 + (key % 7) * 10)));
    }
    let fired = 0;
    table.fire(6060, () => fired++);
    expect([fired, table.sessionCount]).toEqual([2 * keys, keys]);
    table.fire(Number.POSITIVE_INFINITY, () => fired++);
    expect([fired, table.sessionCount, table.leastEnd]).toEqual([3 * keys, 0, Number.POSITIVE_INFINITY]);
  });
});
