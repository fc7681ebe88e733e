/** Event decoding: the addon writes the same bytes as the reference implementation for any batch,
 *  and both match the specification. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { loadKernels } from '../../src/addon/load.ts';
import type { Kernels } from '../../src/addon/surface.ts';
import { EventBatch } from '../../src/core/layout/event-batch.ts';
import { EVENT_STATUS } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';
import { shareSmallBatches } from '../native-threads.ts';
import { runs } from '../tier.ts';
import {
  type BatchPlan,
  batchOf,
  batchPlans,
  both,
  fillWithPattern,
  native,
  reference,
} from './kernel-kit.ts';

const event = fc
  .tuple(fc.bigInt(0n, 2n ** 64n - 1n), fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n), fc.nat(255))
  .map(([key, value, fill]) => {
    const bytes = new Uint8Array(256).fill(fill);
    const view = new DataView(bytes.buffer);
    view.setBigUint64(0, key, true);
    view.setBigInt64(8, value, true);
    view.setBigInt64(16, value ^ 0x5555n, true);
    view.setBigUint64(24, key ^ 0xffffn, true);
    return bytes;
  });
const values = fc.oneof(
  { weight: 4, arbitrary: event },
  { weight: 1, arbitrary: fc.uint8Array({ maxLength: 300 }) },
);

describe('decodeEvents', () => {
  it('decodeEvents by several threads writes the bytes of one thread, for any spans and headers', () => {
    shareSmallBatches();
    const threads = loadKernels('native', 3);
    const outcomeOf = (kernels: Kernels, plan: BatchPlan, rows: number, pattern: number): unknown => {
      const into = fillWithPattern(EventBatch.create(rows, plan.shared), pattern);
      try {
        return [kernels.decodeEvents(batchOf(plan), into), Buffer.from(new Uint8Array(into.buffer))];
      } catch (thrown) {
        return [(thrown as { code?: string }).code, Buffer.from(new Uint8Array(into.buffer))];
      }
    };
    fc.assert(
      fc.property(batchPlans(values), fc.integer({ min: 1, max: 16 }), fc.nat(255), (plan, rows, pattern) => {
        expect(outcomeOf(threads, plan, rows, pattern)).toEqual(outcomeOf(native, plan, rows, pattern));
      }),
      { numRuns: runs(200) },
    );
  });

  it('decodeEvents by several threads writes each row of a large batch', () => {
    const rows = 10_000;
    const records = RecordBatch.create(rows, rows * 256);
    for (let row = 0; row < rows; row++) {
      const bytes = new Uint8Array(row % 7 === 0 ? 255 : 256);
      new DataView(bytes.buffer).setBigUint64(0, BigInt(row), true);
      records.append({ value: bytes });
    }
    const [one, several] = [1, 4].map((shards) => {
      const into = EventBatch.create(rows);
      const decoded = loadKernels('native', shards).decodeEvents(records, into);
      return { decoded, bytes: Buffer.from(new Uint8Array(into.buffer)) };
    });
    expect(several?.decoded).toBe(rows - Math.ceil(rows / 7));
    expect(one?.decoded).toBe(several?.decoded);
    expect(several?.bytes.equals(one?.bytes as Buffer)).toBe(true);
  });

  it('decodeEvents writes the same bytes in both kernels, for any spans and headers', () => {
    fc.assert(
      fc.property(batchPlans(values), fc.integer({ min: 1, max: 16 }), fc.nat(255), (plan, rows, pattern) => {
        const [fromReference, addon] = both(
          () => ({
            records: batchOf(plan),
            into: fillWithPattern(EventBatch.create(rows, plan.shared), pattern),
          }),
          (kernels, { records, into }) => kernels.decodeEvents(records, into),
          ({ records, into }) => [records, into],
        );
        expect(addon).toEqual(fromReference);
      }),
      { numRuns: runs(400) },
    );
  });

  it.each([reference, native])('decodeEvents reads what was written: $name', (kernels) => {
    fc.assert(
      fc.property(fc.array(fc.option(values, { freq: 5 }), { minLength: 1, maxLength: 20 }), (rows) => {
        const records = RecordBatch.create(rows.length, rows.length * 300);
        // An offset of one byte misaligns all values.
        records.arenaUsed = 1;
        for (const value of rows) expect(records.append({ value })).toBe(true);
        const into = EventBatch.create(rows.length);
        const decoded = kernels.decodeEvents(records, into);
        expect(into.rowCount).toBe(rows.length);
        expect(decoded).toBe(rows.filter((value) => value?.length === 256).length);
        rows.forEach((value, row) => {
          const c = into.columns;
          const cells = [c.accountId[row], c.value[row], c.eventTs[row], c.seq[row]];
          if (value?.length !== 256) {
            expect(c.status[row]).toBe(value === null ? EVENT_STATUS.NULL : EVENT_STATUS.BAD_LENGTH);
            expect(cells).toEqual([0n, 0n, 0n, 0n]);
            return;
          }
          const bytes = Buffer.from(value);
          expect(c.status[row]).toBe(EVENT_STATUS.OK);
          expect(cells).toEqual([
            bytes.readBigUInt64LE(0),
            bytes.readBigInt64LE(8),
            bytes.readBigInt64LE(16),
            bytes.readBigUInt64LE(24),
          ]);
        });
      }),
      { numRuns: runs(100) },
    );
  });

  it.each([reference, native])(
    'decodeEvents refuses a batch with too few rows and writes nothing: $name',
    (kernels) => {
      const records = RecordBatch.create(3, 10);
      for (let i = 0; i < 3; i++) records.append({ value: Uint8Array.of(1) });
      const into = fillWithPattern(EventBatch.create(2), 7);
      const before = Buffer.from(new Uint8Array(into.buffer)).toString('hex');
      expect(() => kernels.decodeEvents(records, into)).toThrow(
        expect.objectContaining({ code: 'out_of_range' }),
      );
      expect(Buffer.from(new Uint8Array(into.buffer)).toString('hex')).toBe(before);
    },
  );
});
