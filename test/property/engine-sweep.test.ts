/** Sweeps over sessions in several parts: for any parts, pages and chunks, the ended sessions leave
 *  and the open sessions stay, as a model over all events computes. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  EndOrderSorter,
  MemoryRows,
  type RowsWriter,
  type StoredRows,
} from '../../src/engine/state/end-order-sorter.ts';
import type { RowStream } from '../../src/engine/state/rows.ts';
import { mergedSessions } from '../../src/engine/state/session-rows.ts';
import { type Remainder, sweep } from '../../src/engine/state/sweep.ts';
import {
  admittedOf,
  Intervals,
  readOut,
  rowsOfSessions,
  type Session,
  sessionsOf,
} from '../differential/session-kit.ts';
import { type EventRow, I64_MAX, ROW_BYTES, SIDES } from '../differential/window-kit.ts';
import { runs } from '../tier.ts';

const NEVER = new AbortController().signal;
const KEYS = [0n, 1n, 2n, 2n ** 63n, 2n ** 64n - 1n];
const order = (a: bigint, b: bigint): number => (a < b ? -1 : a > b ? 1 : 0);
const byStart = (a: Session, b: Session): number => order(a.key, b.key) || order(a.start, b.start);
const byEnd = (a: Session, b: Session): number => order(a.last, b.last) || order(a.key, b.key);

/** Chunk store that keeps the appended rows and counts the finished chunks that were not
 *  dropped. */
class ChunkStore {
  live = 0;
  unfinished = 0;

  writer = (): RowsWriter => {
    const pages: Uint8Array[] = [];
    let isOpen = true;
    this.unfinished++;
    const close = (): void => {
      if (isOpen) this.unfinished--;
      isOpen = false;
    };
    return {
      append: async (rows) => {
        pages.push(rows.slice());
      },
      finish: async (): Promise<StoredRows> => {
        close();
        this.live++;
        const rows = new MemoryRows(joined(pages));
        return {
          rowCount: rows.rowCount,
          rows: () => rows.rows(),
          drop: () => {
            this.live--;
            rows.drop();
          },
        };
      },
      close,
    };
  };
}

function joined(pages: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(pages.reduce((sum, page) => sum + page.length, 0));
  let at = 0;
  for (const page of pages) {
    bytes.set(page, at);
    at += page.length;
  }
  return bytes;
}

async function allOf(stream: RowStream, pageRows = 3): Promise<Uint8Array> {
  const pages: Uint8Array[] = [];
  const page = new Uint8Array(pageRows * ROW_BYTES + 8);
  for (;;) {
    const rows = await stream.next(page);
    if (rows === 0) break;
    pages.push(page.slice(0, rows * ROW_BYTES));
  }
  stream.close();
  return joined(pages);
}

/** Steps with events. `ahead` is the distance of an event from the frontier at the start of its
 *  step, in sixteenths of a gap. */
const steps = fc.array(
  fc.record({
    rows: fc.array(
      fc.record({ key: fc.constantFrom(...KEYS), value: fc.bigInt(-9n, 9n), ahead: fc.bigInt(0n, 60n) }),
      { maxLength: 25 },
    ),
    rise: fc.oneof(fc.constant(0n), fc.bigInt(1n, 40n)),
    /** Fate of the table after the step: it stays, becomes a part, or becomes a part that a sweep
     *  reads. */
    fate: fc.constantFrom('stays', 'part', 'sweep'),
    /** Bit set of parts that a sweep rewrites although no session in them has ended. */
    also: fc.nat(15),
  }),
  { maxLength: 8 },
);

/** Part with the sorted rows of sessions, and a lower bound of their ends. */
interface Part {
  readonly rows: StoredRows;
  readonly leastEnd: number;
}

describe('session sweep', () => {
  it('a sweep fires ended sessions of all parts in the order of their ends and keeps the rest', async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        fc.constantFrom(1, 2, 16, 1000, 30_000),
        fc.integer({ min: 1, max: 9 }),
        fc.integer({ min: 0, max: 2 }),
        fc.constantFrom([], [0.5], [0.25, 0.5, 2]),
        fc.constantFrom(...SIDES),
        async (course, gapMs, chunkRows, chunksInMemory, ways, kernels) => {
          const table = kernels.openSessions(gapMs, 2);
          const model = new Intervals(gapMs);
          let parts: Part[] = [];
          let frontier = 0n;
          const span = (sixteenths: bigint): bigint => (sixteenths * BigInt(gapMs)) / 16n;
          const endsOf = (sessions: readonly Session[]): number[] =>
            sessions.map(({ last }) => Number(last) + gapMs);
          const detach = async (): Promise<Part> => {
            const rows = readOut(await table.detach());
            return { rows: new MemoryRows(rows), leastEnd: Math.min(...endsOf(sessionsOf(rows))) };
          };
          const sweepTo = async (to: number, also: number): Promise<void> => {
            parts.push(await detach());
            const isSwept = ({ leastEnd }: Part, i: number): boolean =>
              leastEnd <= to || (also >> i) % 2 === 1;
            const swept = parts.filter(isSwept);
            const stay = parts.filter((part, i) => !isSwept(part, i));
            const chunks = new ChunkStore();
            const ended = new EndOrderSorter({ spill: chunks.writer, chunkRows, chunksInMemory });
            // Ends at which the sweep splits the remaining sessions, ascending; may be empty.
            const cuts = Number.isFinite(to) ? ways.map((way) => to + 1 + way * gapMs) : [];
            const remaining = [...cuts, 0].map(() => chunks.writer());
            const inputs = await Promise.all(swept.map(({ rows }) => rows.rows()));
            const unswept = await Promise.all(
              stay.map(async ({ rows, leastEnd }) => ({ rows: await rows.rows(), leastEnd })),
            );
            const { endedRows, remaining: remainders } = await sweep({
              ...{
                kernels,
                gapMs,
                inputs,
                unswept,
                frontier: to,
                ended,
                remaining,
                endBounds: cuts,
                signal: NEVER,
              },
            });
            const fired = sessionsOf(await allOf(await ended.rows()));
            expect(fired).toEqual(model.fire(Number.isFinite(to) ? BigInt(to) : I64_MAX).sort(byEnd));
            // The ended sessions can be read repeatedly.
            expect(sessionsOf(await allOf(await ended.rows(), 50))).toEqual(fired);
            expect([endedRows, ended.rowCount]).toEqual([fired.length, fired.length]);
            const left = await Promise.all(remaining.map((one) => one.finish()));
            expect(remainders.map(({ rows }) => rows)).toEqual(left.map(({ rowCount }) => rowCount));
            ended.close();
            ended.close();
            expect([chunks.live, chunks.unfinished, ended.bytes]).toEqual([left.length, 0, 0]);
            const pieces = left.map((rows, i) => ({ rows, leastEnd: (remainders[i] as Remainder).leastEnd }));
            cuts.forEach((cut, i) => {
              expect((pieces[i + 1] as Part).leastEnd).toBeGreaterThan(cut);
            });
            parts = [...pieces.filter(({ rows }) => rows.rowCount > 0), ...stay];
            // Every event is in one of the parts, and no open session of a part ends before the
            // least end of that part.
            const streams = await Promise.all(parts.map(({ rows }) => rows.rows()));
            const open = model.open().sort(byStart);
            expect(sessionsOf(await allOf(mergedSessions(kernels, gapMs, streams)))).toEqual(open);
            for (const part of parts) {
              expect(part.leastEnd).toBeGreaterThan(to);
              const mine = sessionsOf(await allOf(await part.rows.rows()));
              const wholes = mine.map((one) =>
                open.filter((whole) => whole.key === one.key && whole.start <= one.start).at(-1),
              );
              expect(Math.min(...endsOf(wholes as Session[]))).toBeGreaterThanOrEqual(part.leastEnd);
            }
          };
          for (const { rows, rise, fate, also } of course) {
            const events: EventRow[] = rows.map(({ key, value, ahead }) => ({
              accountId: key,
              value,
              eventTs: frontier + span(ahead),
            }));
            model.add(events);
            const batch = admittedOf(events);
            table.accumulate(batch.events, batch.admitted);
            frontier += span(rise);
            if (fate === 'part') parts.push(await detach());
            if (fate === 'sweep') await sweepTo(Number(frontier), also);
          }
          await sweepTo(Number.POSITIVE_INFINITY, 0);
          expect(parts).toEqual([]);
          table.close();
        },
      ),
      { numRuns: runs(200) },
    );
  });

  it('a sweep joins more parts than the kernel accepts in one call', async () => {
    const one = (start: number, key: bigint): Session => ({
      ...{ key, start: BigInt(start), last: BigInt(start) },
      ...{ count: 1n, sum: 3n, min: 3n, max: 3n },
    });
    // One session spans all parts, 9 ms per part, and each part also has a session of its own.
    const parts = Array.from(
      { length: 600 },
      (_, i) => new MemoryRows(rowsOfSessions([one(i * 9, 5n), one(0, BigInt(i + 10))])),
    );
    for (const kernels of SIDES) {
      const inputs = await Promise.all(parts.map((part) => part.rows()));
      const rows = sessionsOf(await allOf(mergedSessions(kernels, 10, inputs), 7));
      expect(rows.length).toBe(601);
      expect(rows[0]).toEqual({ ...one(0, 5n), last: 599n * 9n, count: 600n, sum: 1800n });
    }
  });

  it('a sweep sorts large chunks by digits into the same order as small ones', async () => {
    let word = 7;
    const draw = (below: number): number => {
      word = (Math.imul(word, 1_664_525) + 1_013_904_223) >>> 0;
      return word % below;
    };
    for (const range of [1, 60_000, 2 ** 31, 2 ** 52]) {
      const sessions = Array.from({ length: 9000 }, (_, i): Session => {
        const last = BigInt(Math.floor((draw(2 ** 31) / 2 ** 31) * range)) - 2n ** 51n;
        return { key: BigInt(i), start: last, last, count: 1n, sum: 0n, min: 0n, max: 0n };
      });
      const ended = new EndOrderSorter({ chunkRows: 5000 });
      await ended.append(rowsOfSessions(sessions));
      expect(ended.bytes).toBeGreaterThanOrEqual(9000 * ROW_BYTES);
      expect(sessionsOf(await allOf(await ended.rows(), 1000))).toEqual(sessions.sort(byEnd));
    }
  });

  it('an aborted sweep stops between two pages and closes its input, and so does a failed consumer', async () => {
    const rows = rowsOfSessions(
      Array.from({ length: 10_000 }, (_, i) => ({
        ...{ key: BigInt(i), start: 0n, last: BigInt(i % 2) * 100n },
        ...{ count: 1n, sum: 0n, min: 0n, max: 0n },
      })),
    );
    const failing = new Error('the disk is full');
    const stop = new AbortController();
    const appended: number[] = [];
    const stopping = {
      append: async (some: Uint8Array) => {
        appended.push(some.length / ROW_BYTES);
        stop.abort(new Error('stopped'));
      },
    };
    const broken = { append: () => Promise.reject(failing) };
    for (const [rest, signal, why] of [
      [stopping, stop.signal, 'stopped'],
      [broken, NEVER, 'the disk is full'],
    ] as const) {
      let closed = 0;
      const stream = await new MemoryRows(rows).rows();
      const counted = { ...stream, close: () => void closed++ };
      const unswept = [{ rows: { next: async () => 0, close: counted.close }, leastEnd: 11 }];
      const parts = { kernels: SIDES[1] as (typeof SIDES)[0], gapMs: 10, inputs: [counted], frontier: 10 };
      const ended = new EndOrderSorter();
      const out = { ended, remaining: [rest], endBounds: [] };
      await expect(sweep({ ...parts, ...out, unswept, signal })).rejects.toThrow(why);
      expect(closed).toBe(2);
    }
    expect(appended).toEqual([2048]);
  });

  it('a sweep discards a failed chunk and drops a chunk that finishes after its end', async () => {
    const rows = rowsOfSessions([{ key: 1n, start: 0n, last: 0n, count: 1n, sum: 0n, min: 0n, max: 0n }]);
    let closed = 0;
    const broken: RowsWriter = {
      append: () => Promise.reject(new Error('the disk is full')),
      finish: () => Promise.reject(new Error('never finished')),
      close: () => void closed++,
    };
    const ended = new EndOrderSorter({ spill: () => broken, chunkRows: 1, chunksInMemory: 0 });
    await expect(ended.append(rows)).rejects.toThrow('the disk is full');
    expect(closed).toBe(1);
    const chunks = new ChunkStore();
    const late = new EndOrderSorter({ spill: chunks.writer, chunkRows: 1, chunksInMemory: 0 });
    const appended = late.append(rows);
    late.close();
    await appended;
    expect([chunks.live, chunks.unfinished]).toEqual([0, 0]);
  });
});
