/** What the benches of single kernels share: the twin beside the addon's kernel, in turn, on worlds
 *  of their own, the same answer demanded of both. */

import { loadKernels } from '../src/addon/load.ts';
import { xxh32Create, xxh32Digest, xxh32Update } from '../src/addon/reference/xxh32.ts';
import type { Kernels } from '../src/addon/surface.ts';
import { invariant } from '../src/core/errors.ts';
import { type BenchContext, type BenchResult, microTurns, result } from './harness.ts';

/** A kernel that gains less than this has to go. */
const KERNEL_GAIN_GOAL = 1.5;
export const BATCH_ROWS = 4096;
/** Batches are used in a ring, so that what is measured includes the way to memory. */
const RING_BATCHES = 8;

export interface KernelCase {
  readonly metric: string;
  /** Makes the inputs and outputs of one side, the same for every call. */
  make(): {
    /** One batch of the ring. */
    step(kernels: Kernels, turn: number): void;
    /** Every byte that the calls of one round wrote. */
    outputs(): readonly ArrayBufferLike[];
  };
}

function digestOf(buffers: readonly ArrayBufferLike[]): number {
  const state = xxh32Create();
  for (const buffer of buffers) xxh32Update(state, new Uint8Array(buffer), 0, buffer.byteLength);
  return xxh32Digest(state);
}

/** Makes one side's call of a whole round of the ring, and says the digest of a first one. */
function sideOf(kernels: Kernels, kernelCase: KernelCase) {
  const world = kernelCase.make();
  const round = (): void => {
    for (let turn = 0; turn < RING_BATCHES; turn++) world.step(kernels, turn);
  };
  round();
  return { round, digest: digestOf(world.outputs()) };
}

export async function benchKernels(
  context: BenchContext,
  cases: readonly KernelCase[],
): Promise<readonly BenchResult[]> {
  const results: BenchResult[] = [];
  for (const kernelCase of cases) {
    const native = sideOf(loadKernels('native'), kernelCase);
    const reference = sideOf(loadKernels('reference'), kernelCase);
    invariant(native.digest === reference.digest, `both sides answer the same to ${kernelCase.metric}`);
    context.say(`${kernelCase.metric}: xxh32 ${native.digest.toString(16).padStart(8, '0')} on both sides`);
    const series = await microTurns(
      { native: native.round, reference: reference.round },
      { rows: BATCH_ROWS * RING_BATCHES, smoke: context.smoke, repeats: context.repeats },
    );
    results.push(
      result({
        metric: kernelCase.metric,
        unit: 'ns/row',
        ours: series.native,
        against: { name: 'TypeScript twin', series: series.reference },
        better: 'less',
        goal: { ratioAtLeast: KERNEL_GAIN_GOAL },
      }),
    );
  }
  return results;
}

/** Pseudo-random bytes, the same in every run. */
export function patternBytes(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let word = seed | 1;
  for (let i = 0; i < length; i++) {
    word = (Math.imul(word, 1_664_525) + 1_013_904_223) | 0;
    bytes[i] = word >>> 24;
  }
  return bytes;
}

/** The ring: `make(turn)` once a batch. */
export function ring<T>(make: (turn: number) => T): readonly T[] {
  return Array.from({ length: RING_BATCHES }, (_, turn) => make(turn));
}
