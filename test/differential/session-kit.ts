/** Kit for session states: batches admitted without a time check, a model of intervals for each
 *  key, and the observable state. */

import type { RowRun, SessionState } from '../../src/addon/window-surface.ts';
import { ACCUMULATOR } from '../../src/core/layout/layouts.gen.ts';
import { admitAll, type Batches, batchesOf, type EventRow, ROW_BYTES } from './window-kit.ts';

export interface Session {
  readonly key: bigint;
  readonly start: bigint;
  readonly last: bigint;
  readonly count: bigint;
  readonly sum: bigint;
  readonly min: bigint;
  readonly max: bigint;
}

export function admittedOf(rows: readonly EventRow[]): Batches {
  const batch = batchesOf(rows);
  admitAll(batch, 1n);
  return batch;
}

/** Model: a list of intervals for each key. Intervals less than a gap from an event are merged with
 *  it. */
export class Intervals {
  private readonly gap: bigint;
  private readonly keys = new Map<bigint, Session[]>();

  constructor(gapMs: number) {
    this.gap = BigInt(gapMs);
  }

  add(rows: readonly EventRow[]): void {
    for (const { accountId: key = 0n, value = 0n, eventTs: ts } of rows) {
      const mine = this.keys.get(key) ?? [];
      const near = mine.filter((one) => ts - one.last < this.gap && one.start - ts < this.gap);
      const apart = mine.filter((one) => !near.includes(one));
      const event = { key, start: ts, last: ts, count: 1n, sum: value, min: value, max: value };
      this.keys.set(key, [...apart, near.reduce(joined, event)]);
    }
  }

  /** Returns all intervals, or those of a key, ascending by start. */
  open(key?: bigint): Session[] {
    const found = key === undefined ? [...this.keys.values()].flat() : (this.keys.get(key) ?? []);
    return [...found].sort((a, b) => order(a.start, b.start));
  }

  fire(frontier: bigint): Session[] {
    const fired: Session[] = [];
    for (const [key, mine] of this.keys) {
      fired.push(...mine.filter((one) => one.last + this.gap <= frontier));
      this.keys.set(
        key,
        mine.filter((one) => one.last + this.gap > frontier),
      );
    }
    return fired.sort((a, b) => order(a.last, b.last) || order(a.key, b.key));
  }
}

const order = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);
const most = (a: bigint, b: bigint): bigint => (a > b ? a : b);

const joined = (a: Session, b: Session): Session => ({
  key: a.key,
  start: least(a.start, b.start),
  last: most(a.last, b.last),
  count: a.count + b.count,
  sum: a.sum + b.sum,
  min: least(a.min, b.min),
  max: most(a.max, b.max),
});

export function sessionsOf(rows: Uint8Array): Session[] {
  const view = new DataView(rows.buffer, rows.byteOffset, rows.byteLength);
  return Array.from({ length: rows.byteLength / ROW_BYTES }, (_, i) => {
    const cell = (at: number): bigint => view.getBigInt64(i * ROW_BYTES + at, true);
    return {
      key: BigInt.asUintN(64, cell(ACCUMULATOR.ACCOUNT_ID)),
      start: cell(ACCUMULATOR.SPARE),
      last: cell(ACCUMULATOR.LAST_UPDATE_TS),
      count: cell(ACCUMULATOR.COUNT),
      sum: (cell(ACCUMULATOR.SUM_HIGH) << 64n) + BigInt.asUintN(64, cell(ACCUMULATOR.SUM_LOW)),
      min: cell(ACCUMULATOR.MIN),
      max: cell(ACCUMULATOR.MAX),
    };
  });
}

/** Encodes sessions as rows, in their order. */
export function rowsOfSessions(sessions: readonly Session[]): Uint8Array {
  const cells = sessions.flatMap(({ key, start, last, count, sum, min, max }) =>
    [key, count, sum, sum >> 64n, min, max, last, start].map((cell) => BigInt.asUintN(64, cell)),
  );
  return new Uint8Array(BigUint64Array.from(cells).buffer);
}

export function sessionDeltasOf(state: SessionState): Uint8Array {
  const out = new Uint8Array(state.deltaBytesMax());
  return out.slice(0, state.encodeDeltas(out));
}

/** Returns the open sessions of a key. */
export function found(state: SessionState, key: bigint): Uint8Array {
  const rows = new Uint8Array(state.find(key, new ArrayBuffer(0)) * ROW_BYTES);
  state.find(key, rows);
  return rows;
}

/** Reads a run in pages, closes it, and returns its rows. */
export function readOut(run: RowRun, pageRows = 7): Uint8Array {
  const rows = new Uint8Array(run.rowCount * ROW_BYTES);
  const page = new ArrayBuffer(pageRows * ROW_BYTES);
  for (let from = 0; from < run.rowCount; ) {
    const count = run.read(from, page);
    rows.set(new Uint8Array(page, 0, count * ROW_BYTES), from * ROW_BYTES);
    from += count;
  }
  run.close();
  return rows;
}

/** Returns all counters and sizes of a state. */
export const scalarsOf = (state: SessionState): readonly number[] => [
  state.sessionCount(),
  state.mergedCount(),
  state.leastEnd(),
  state.bytes(),
];
