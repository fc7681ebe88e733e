/** Open sessions extracted in parts and merged again: the addon and the reference implementation
 *  write the same bytes, and both equal the rule applied to all events. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { WindowKernels } from '../../src/addon/window-surface.ts';
import { runs } from '../tier.ts';
import { admittedOf, readOut, rowsOfSessions, type Session, scalarsOf } from './session-kit.ts';
import {
  type EventRow,
  hexOf,
  I64_MAX,
  I64_MIN,
  outcome,
  ROW_BYTES,
  reference,
  SIDES,
} from './window-kit.ts';

const LIMIT = 2n ** 52n;
const KEYS = [0n, 1n, 2n, 2n ** 32n, 2n ** 63n, 2n ** 64n - 1n];
const values = fc.oneof(fc.bigInt(-5n, 5n), fc.constantFrom(I64_MIN, I64_MAX));
const gaps = fc.constantFrom(1, 2, 16, 1000, 2 ** 46);
/** Times in sixteenths of a gap, so that steps of exactly the gap, less and more are all frequent.
 */
const events = fc.array(
  fc.record({ key: fc.constantFrom(...KEYS), value: values, at: fc.bigInt(-40n, 40n), part: fc.nat(4) }),
  { maxLength: 60 },
);
type Event = typeof events extends fc.Arbitrary<ReadonlyArray<infer E>> ? E : never;

const order = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);
const timeOf = ({ at }: Event, gapMs: number): bigint => (at * BigInt(gapMs)) / 16n;

/** Model: the events of a key in event-time order; a distance of the gap or more starts a
 *  session. */
function byTheRule(all: readonly Event[], gapMs: number): Session[] {
  const sessions: Session[] = [];
  for (const key of [...KEYS].sort(order)) {
    const mine = all.filter((event) => event.key === key).sort((a, b) => order(a.at, b.at));
    const parts: Event[][] = [];
    for (const event of mine) {
      const before = parts.at(-1)?.at(-1);
      if (before !== undefined && timeOf(event, gapMs) - timeOf(before, gapMs) < BigInt(gapMs))
        parts.at(-1)?.push(event);
      else parts.push([event]);
    }
    for (const part of parts) {
      const by = [...part].sort((a, b) => order(a.value, b.value));
      sessions.push({
        key,
        start: timeOf(part[0] as Event, gapMs),
        last: timeOf(part.at(-1) as Event, gapMs),
        count: BigInt(part.length),
        sum: part.reduce((sum, { value }) => sum + value, 0n),
        min: (by[0] as Event).value,
        max: (by.at(-1) as Event).value,
      });
    }
  }
  return sessions;
}

const rowOf = (event: Event, gapMs: number): EventRow => ({
  accountId: event.key,
  value: event.value,
  eventTs: timeOf(event, gapMs),
});

/** Calls the kernel until the merge is complete. Returns every page, and the open sessions and
 *  cursors after each call. */
function merged(
  kernels: WindowKernels,
  gapMs: number,
  runs: readonly Uint8Array[],
  pageRows: number,
  outRows: number,
): { readonly rows: string; readonly log: readonly string[] } {
  const cursors = new Uint32Array(runs.length * 3);
  const next = runs.map(() => 0);
  const pages = runs.map(() => new Uint8Array(0));
  const open = new Uint8Array(ROW_BYTES);
  const into = new ArrayBuffer(outRows * ROW_BYTES + 8);
  const log: string[] = [];
  let rows = '';
  for (;;) {
    runs.forEach((run, i) => {
      if (cursors[i * 3] !== cursors[i * 3 + 1] || cursors[i * 3 + 2] === 1) return;
      const at = next[i] as number;
      pages[i] = run.slice(at, at + pageRows * ROW_BYTES);
      next[i] = at + (pages[i] as Uint8Array).length;
      cursors.set([0, (pages[i] as Uint8Array).length / ROW_BYTES, next[i] === run.length ? 1 : 0], i * 3);
    });
    const count = kernels.mergeSessions(gapMs, pages, cursors, open, into);
    const page = hexOf(into.slice(0, count * ROW_BYTES));
    rows += page;
    log.push(`${page} ${hexOf(open.buffer)} ${cursors.join()}`);
    const isDone = runs.every((_, i) => cursors[i * 3] === cursors[i * 3 + 1] && cursors[i * 3 + 2] === 1);
    if (isDone && open.every((byte) => byte === 0)) return { rows, log };
  }
}

describe('extraction of all sessions', () => {
  it('an extraction gives each session by key and start, empties the state and leaves it usable', async () => {
    await fc.assert(
      fc.asyncProperty(
        events,
        events,
        gaps,
        fc.integer({ min: 1, max: 5 }),
        async (some, rest, gapMs, shards) => {
          const answers = await Promise.all(
            SIDES.map(async (kernels) => {
              const state = kernels.openSessions(gapMs, shards);
              const found: unknown[] = [];
              for (const batch of [some, rest]) {
                const { events: rows, admitted } = admittedOf(batch.map((event) => rowOf(event, gapMs)));
                state.accumulate(rows, admitted);
                const before = state.deltaBytesMax();
                const run = await state.detach();
                expect([state.sessionCount(), state.leastEnd()]).toEqual([0, Number.POSITIVE_INFINITY]);
                // The changes of the last batch are not written yet.
                expect(state.deltaBytesMax()).toBe(before);
                found.push(run.rowCount, run.bytes, scalarsOf(state));
                const expected = hexOf(rowsOfSessions(byTheRule(batch, gapMs)).buffer);
                expect(hexOf(readOut(run).buffer)).toBe(expected);
                state.trim();
              }
              state.close();
              expect(outcome(() => state.trim())).toBe('closed');
              await expect(state.detach()).rejects.toMatchObject({ code: 'closed' });
              return found;
            }),
          );
          expect(answers[1]).toEqual(answers[0]);
        },
      ),
      { numRuns: runs(150) },
    );
  });

  it('an extraction of many keys is the same in both kernels with threads', async () => {
    const many = Array.from({ length: 6000 }, (_, i) => ({
      accountId: BigInt((i * 7919) % 4000) << 30n,
      value: BigInt(i),
      eventTs: BigInt((i * 31) % 900),
    }));
    const runs = await Promise.all(
      SIDES.map(async (kernels) => {
        const state = kernels.openSessions(100, 3);
        const { events: rows, admitted } = admittedOf(many);
        state.accumulate(rows, admitted);
        return hexOf(readOut(await state.detach(), 500).buffer);
      }),
    );
    expect(runs[1]).toBe(runs[0]);
    expect((runs[0] as string).length).toBeGreaterThan(4000 * 2 * ROW_BYTES);
  });
});

describe('session merge', () => {
  it('the session merge is the same on both sides page by page, and equals the rule over the events of all parts', async () => {
    const rows = fc.integer({ min: 1, max: 8 });
    await fc.assert(
      fc.asyncProperty(events, gaps, rows, rows, async (all, gapMs, pageRows, outRows) => {
        const runs = await Promise.all(
          [0, 1, 2, 3, 4].map(async (part) => {
            const state = reference.openSessions(gapMs, 1);
            const mine = all.filter((event) => event.part === part);
            const { events: batch, admitted } = admittedOf(mine.map((event) => rowOf(event, gapMs)));
            state.accumulate(batch, admitted);
            return readOut(await state.detach());
          }),
        );
        const [fromReference, addon] = SIDES.map((kernels) =>
          merged(kernels, gapMs, runs, pageRows, outRows),
        );
        expect(addon).toEqual(fromReference);
        expect(fromReference?.rows).toBe(hexOf(rowsOfSessions(byTheRule(all, gapMs)).buffer));
      }),
      { numRuns: runs(200) },
    );
  });

  it('the session merge joins a session across any number of pages', () => {
    const one = (start: bigint, last: bigint, key = 7n): Session => ({
      ...{ key, start, last },
      ...{ count: 1n, sum: 1n, min: 1n, max: 1n },
    });
    // Steps of 9 alternate between both runs; 10 is the gap.
    const first = Array.from({ length: 20 }, (_, i) => one(BigInt(i * 18), BigInt(i * 18)));
    const second = Array.from({ length: 20 }, (_, i) => one(BigInt(i * 18 + 9), BigInt(i * 18 + 9)));
    const apart = one(361n, 400n);
    const whole = { ...one(0n, 351n), count: 40n, sum: 40n };
    const runs = [rowsOfSessions([...first, apart, one(0n, 0n, 8n)]), rowsOfSessions(second)];
    for (const kernels of SIDES) {
      const { rows } = merged(kernels, 10, runs, 1, 1);
      expect(rows).toBe(hexOf(rowsOfSessions([whole, apart, one(0n, 0n, 8n)]).buffer));
    }
  });

  it('the session merge refuses the same cursors, orders and rows on both sides', () => {
    const cell = fc.constantFrom(0, 1, 2, 3, 9, 0xffff_ffff);
    const row = fc.record({
      key: fc.bigInt(0n, 2n),
      start: fc.constantFrom(0n, 1n, 5n, -LIMIT, -LIMIT - 1n, I64_MIN),
      last: fc.constantFrom(0n, 5n, 20n, LIMIT - 1n, LIMIT, I64_MAX),
      count: fc.bigInt(0n, 2n),
      sum: values,
      min: values,
      max: values,
    });
    const some = fc.array(row, { maxLength: 3 });
    const seen = new Set<string>();
    fc.assert(
      fc.property(
        some,
        some,
        row,
        fc.boolean(),
        fc.array(cell, { maxLength: 6 }),
        (a, b, held, empty, cells) => {
          const answers = SIDES.map((kernels) => {
            const cursors = Uint32Array.from(cells.length < 3 ? [0, a.length, 1, 0, b.length, 1] : cells);
            const open = rowsOfSessions([empty ? { ...held, count: 0n } : held]);
            const into = new ArrayBuffer(10 * ROW_BYTES);
            const runs = [rowsOfSessions(a), rowsOfSessions(b)];
            const answer = outcome(() => kernels.mergeSessions(10, runs, cursors, open, into));
            seen.add(typeof answer);
            return typeof answer === 'number'
              ? [answer, hexOf(into), hexOf(open.buffer), [...cursors]]
              : answer;
          });
          expect(answers[1]).toEqual(answers[0]);
        },
      ),
      { numRuns: runs(600) },
    );
    expect([...seen].sort()).toEqual(['number', 'string']);
    for (const kernels of SIDES) {
      const call = (gapMs: number, open: number): unknown =>
        outcome(() =>
          kernels.mergeSessions(gapMs, [], new Uint32Array(0), new Uint8Array(open), new ArrayBuffer(64)),
        );
      expect([call(1, 64), call(0, 64), call(2 ** 49, 64), call(0.5, 64), call(1, 63)]).toEqual([
        0,
        ...new Array<string>(4).fill('out_of_range'),
      ]);
    }
  });
});
