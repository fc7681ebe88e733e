/** Common parts of the benchmarks of single kernels: the addon's kernel against the TypeScript
 *  reference, alternating, each with its own data; both must give the same answer. */

import { loadKernels } from '../src/addon/load.ts';
import { xxh32Create, xxh32Digest, xxh32Update } from '../src/addon/reference/xxh32.ts';
import type { Kernels } from '../src/addon/surface.ts';
import { invariant } from '../src/core/errors.ts';
import { type BenchContext, type BenchResult, microTurns, result } from './harness.ts';

/** A kernel with a smaller gain is removed. */
export const KERNEL_GAIN_GOAL = 1.5;
export const BATCH_ROWS = 4096;
/** Batches are used in a ring, so that memory access is included in the measurement. */
const RING_BATCHES = 8;

export interface KernelCase {
  readonly metric: string;
  /** Creates the inputs and outputs of one side, identical for every call. */
  make(): {
    /** Processes one batch of the ring. */
    step(kernels: Kernels, turn: number): void;
    /** All bytes written by the calls of one round. */
    outputs(): readonly ArrayBufferLike[];
  };
}

function digestOf(buffers: readonly ArrayBufferLike[]): number {
  const state = xxh32Create();
  for (const buffer of buffers) xxh32Update(state, new Uint8Array(buffer), 0, buffer.byteLength);
  return xxh32Digest(state);
}

/** Creates the call of a whole round of the ring for one side, and the digest of a first round. */
function sideOf(kernels: Kernels, kernelCase: KernelCase) {
  const data = kernelCase.make();
  const round = (): void => {
    for (let turn = 0; turn < RING_BATCHES; turn++) data.step(kernels, turn);
  };
  round();
  return { round, digest: digestOf(data.outputs()) };
}

export async function benchKernels(
  context: BenchContext,
  cases: readonly KernelCase[],
): Promise<readonly BenchResult[]> {
  const results: BenchResult[] = [];
  for (const kernelCase of cases) {
    const native = sideOf(loadKernels('native'), kernelCase);
    const reference = sideOf(loadKernels('reference'), kernelCase);
    invariant(native.digest === reference.digest, `both sides give the same answer for ${kernelCase.metric}`);
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

/** Pseudo-random bytes, identical in every run. */
export function patternBytes(length: number, seed: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let word = seed | 1;
  for (let i = 0; i < length; i++) {
    word = (Math.imul(word, 1_664_525) + 1_013_904_223) | 0;
    bytes[i] = word >>> 24;
  }
  return bytes;
}

/** Creates the ring: calls `make(turn)` once for each batch. */
export function ring<T>(make: (turn: number) => T): readonly T[] {
  return Array.from({ length: RING_BATCHES }, (_, turn) => make(turn));
}
