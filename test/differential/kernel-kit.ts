/** Hostile batches, and a comparison of two kernels byte by byte. */
import fc from 'fast-check';
import { loadKernels } from '../../src/addon/load.ts';
import type { Kernels } from '../../src/addon/surface.ts';
import { BATCH_HEADER } from '../../src/core/layout/layouts.gen.ts';
import { RecordBatch } from '../../src/core/layout/record-batch.ts';

export const native = loadKernels('native');
export const reference = loadKernels('reference');

interface Row {
  readonly start: number;
  readonly length: number;
}

export interface BatchPlan {
  readonly rowCapacity: number;
  readonly rows: readonly Row[];
  readonly arena: Uint8Array;
  readonly arenaUsed: number;
  /** Header word that is overwritten, and its wrong value. */
  readonly lie: { readonly word: number; readonly value: number } | null;
  readonly shared: boolean;
}

const u32 = fc.oneof(
  fc.integer({ min: 0, max: 0xffff_ffff }),
  fc.constantFrom(0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_fffb, 0xffff_ffff),
);

/** Batches whose values are mostly slices of `values`, sometimes with wrong spans, rarely with
 *  wrong headers. */
export function batchPlans(values: fc.Arbitrary<Uint8Array>): fc.Arbitrary<BatchPlan> {
  return fc
    .record({
      values: fc.array(values, { maxLength: 12 }),
      spareRows: fc.integer({ min: 0, max: 3 }),
      spareArena: fc.integer({ min: 0, max: 40 }),
      lies: fc.array(
        fc.record({
          row: fc.nat(11),
          start: fc.option(u32),
          length: fc.oneof(
            fc.constantFrom(-1, -2, -0x8000_0000, 0, 1, 4, 5, 255, 256, 257, 0x7fff_ffff),
            fc.nat(300),
          ),
        }),
        { maxLength: 4 },
      ),
      usedLess: fc.oneof(fc.constant(0), fc.nat(300)),
      lie: fc.option(fc.record({ word: fc.constantFrom(0, 2, 3, 4, 5), value: u32 }), { freq: 9 }),
      shared: fc.boolean(),
    })
    .map(({ values: parts, spareRows, spareArena, lies, usedLess, lie, shared }) => {
      const arena = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0) + spareArena);
      const rows: Row[] = [];
      let at = 0;
      for (const part of parts) {
        arena.set(part, at);
        rows.push({ start: at, length: part.length });
        at += part.length;
      }
      for (const { row, start, length } of lies) {
        const truth = rows[row];
        if (truth !== undefined) rows[row] = { start: start ?? truth.start, length };
      }
      return {
        rowCapacity: Math.max(1, rows.length + spareRows),
        rows,
        arena,
        arenaUsed: Math.max(0, at - usedLess),
        lie,
        shared,
      };
    });
}

export function batchOf(plan: BatchPlan): RecordBatch {
  const batch = RecordBatch.create(plan.rowCapacity, plan.arena.length, plan.shared);
  batch.columns.arena.set(plan.arena);
  plan.rows.forEach((row, i) => {
    batch.columns.valueStart[i] = row.start;
    batch.columns.valueLength[i] = row.length;
  });
  batch.rowCount = plan.rows.length;
  batch.arenaUsed = plan.arenaUsed;
  if (plan.lie !== null) batch.columns.header[plan.lie.word] = plan.lie.value;
  return batch;
}

/** Fills everything after the header with a pattern, which reveals writes to bytes that a kernel
 *  must not change. */
export function fillWithPattern<B extends { readonly buffer: ArrayBufferLike }>(
  batch: B,
  pattern: number,
): B {
  const bytes = new Uint8Array(batch.buffer, BATCH_HEADER.BYTES);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (pattern + i * 31) & 0xff;
  return batch;
}

/** Returns the value or error code of a call. */
export function outcome(call: () => number | undefined): number | string | undefined {
  try {
    return call();
  } catch (thrown) {
    return `${(thrown as { code?: string }).code}`;
  }
}

/** Runs both kernels on separate worlds and returns [reference, addon]: the answer and every byte
 *  afterwards. */
export function both<W>(
  world: () => W,
  call: (kernels: Kernels, world: W) => number | undefined,
  buffers: (world: W) => ReadonlyArray<{ readonly buffer: ArrayBufferLike; readonly byteOffset?: number }>,
) {
  const run = (kernels: Kernels) => {
    const mine = world();
    const answer = outcome(() => call(kernels, mine));
    const bytes = buffers(mine).map((one) => Buffer.from(new Uint8Array(one.buffer)).toString('hex'));
    return { answer, bytes };
  };
  return [run(reference), run(native)] as const;
}
