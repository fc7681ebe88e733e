/** Compares the recount of a soak with the oracle: the same verdicts and totals of every window
 *  from the same stream. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { noTotals, recount, type WindowTotals } from '../../bench/engine/recount.ts';
import { differencesOf } from '../../bench/engine/soak-check.ts';
import type { OracleRow } from '../../bench/peers/oracle/rules.ts';
import { Oracle } from '../../bench/peers/oracle/windows.ts';
import { loadGenKernels } from '../../src/addon/gen.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { DEFAULT_EVENTS, type EventOptions } from '../../src/gen/event-options.ts';
import { EventGenerator } from '../../src/gen/events.ts';
import { partitionOfKey } from '../../src/sim/murmur2.ts';
import { runs } from '../tier.ts';

const kernels = loadGenKernels('reference');
const SAMPLE = { every: 3, offset: 1 };
const BASE_MS = 1_750_000_000_000;

interface Case {
  readonly stream: EventOptions;
  readonly events: number;
  readonly partitions: number;
  readonly rules: { readonly sizeMs: number; readonly skewMs: number; readonly latenessMs: number };
}

const CASE: fc.Arbitrary<Case> = fc
  .record({
    seed: fc.nat(1_000_000),
    accounts: fc.integer({ min: 1, max: 200 }),
    zipf: fc.constantFrom(0, 1.1),
    perMs: fc.constantFrom(0.05, 1, 20),
    order: fc.constantFrom('true' as const, 'delayed' as const),
    tail: fc.double({ min: 0, max: 0.5, noNaN: true }),
    events: fc.integer({ min: 0, max: 1500 }),
    partitions: fc.integer({ min: 1, max: 8 }),
    sizeMs: fc.integer({ min: 1, max: 5000 }),
    skewMs: fc.nat(500),
    latenessMs: fc.nat(500),
  })
  .map(({ seed, events, partitions, sizeMs, skewMs, latenessMs, tail, ...stream }) => ({
    stream: {
      ...DEFAULT_EVENTS,
      ...stream,
      seed: BigInt(seed),
      count: Number.POSITIVE_INFINITY,
      baseMs: BASE_MS,
      delays: { tail, stragglers: 0.01, typicalMaxMs: 100, tailMaxMs: 2000, stragglerMaxMs: 20_000 },
    },
    events,
    partitions,
    rules: { sizeMs, skewMs, latenessMs },
  }));

function oracleOf({ stream, events, partitions, rules }: Case): Oracle {
  const times = { skewMs: BigInt(rules.skewMs), latenessMs: BigInt(rules.latenessMs) };
  const oracle = new Oracle({ sizeMs: BigInt(rules.sizeMs), ...times }, partitions);
  const generator = new EventGenerator(stream, kernels);
  const batch = EventBatch.create(64);
  const { accountId, value, eventTs } = batch.columns;
  const key = new Uint8Array(8);
  for (let left = events; left > 0; ) {
    const rows = generator.fillEvents(batch, left);
    for (let row = 0; row < rows; row++) {
      const account = accountId[row] as bigint;
      new DataView(key.buffer).setBigUint64(0, account, true);
      oracle.event(partitionOfKey(key, partitions), account, value[row] as bigint, eventTs[row] as bigint);
    }
    left -= rows;
  }
  return oracle;
}

function totalsOf(rows: readonly OracleRow[]): Map<number, WindowTotals> {
  const windows = new Map<number, WindowTotals>();
  for (const row of rows) {
    const totals = windows.get(Number(row.windowStart)) ?? noTotals();
    windows.set(Number(row.windowStart), totals);
    totals.rows++;
    totals.count += Number(row.count);
    totals.sum += row.sum;
    totals.weighted += row.sum * row.accountId;
  }
  return windows;
}

const recounted = (one: Case) =>
  recount({ ...one, kernels, sample: SAMPLE, signal: new AbortController().signal });

describe('soak recount', () => {
  it('the recount has the verdicts, totals and sampled rows of the oracle', async () => {
    await fc.assert(
      fc.asyncProperty(CASE, async (one) => {
        const oracle = oracleOf(one);
        const rows = [...oracle.rows()];
        const found = await recounted(one);
        const late = oracle.droppedLate.reduce((sum, count) => sum + count, 0n);
        expect(found.droppedLate).toBe(Number(late));
        expect(found.accepted).toBe(one.events - Number(late));
        expect(found.windows).toEqual(totalsOf(rows));
        expect(found.rows).toEqual(rows.filter(({ accountId }) => accountId % 3n === 1n));
      }),
      { numRuns: runs(60) },
    );
  });

  it('the recount detects a window and a row that are missing, surplus or different', async () => {
    const one = fc.sample(CASE, { numRuns: runs(50), seed: 7 }).find(({ events }) => events > 800) as Case;
    const found = await recounted(one);
    const rows = found.rows.map((row) => ({
      ...row,
      windowStart: Number(row.windowStart),
      windowEnd: Number(row.windowEnd),
    }));
    const stored = { rows: 0, windows: found.windows, sampled: rows };
    expect(differencesOf(stored, found)).toEqual({ windows: 0, rows: 0 });
    const [first] = [...found.windows.keys()] as [number];
    const without = new Map(found.windows);
    without.delete(first);
    expect(differencesOf({ ...stored, windows: without }, found).windows).toBe(1);
    expect(differencesOf(stored, { ...found, windows: without }).windows).toBe(1);
    for (const [name, by] of [
      ['rows', 1],
      ['count', 1],
      ['sum', 1n],
      ['weighted', 1n],
    ] as const) {
      const totals = found.windows.get(first) as WindowTotals;
      const other = { ...totals, [name]: (totals[name] as never) + (by as never) };
      const windows = new Map(found.windows).set(first, other);
      expect(differencesOf({ ...stored, windows }, found).windows, name).toBe(1);
    }
    expect(differencesOf({ ...stored, sampled: rows.slice(1) }, found).rows).toBe(1);
    const changed = [{ ...rows[0], min: (rows[0]?.min ?? 0n) + 1n }, ...rows.slice(1)] as typeof rows;
    expect(differencesOf({ ...stored, sampled: changed }, found).rows).toBe(2);
  });
});
