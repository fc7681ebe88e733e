/** Selects the generator's kernels: the addon or the TypeScript reference implementation. */
import type { ArrivalQueue } from '../core/layout/arrival-queue.ts';
import type { GenKernels } from './gen-surface.ts';
import { callAddon, loadAddon, type NativeMode } from './load.ts';
import { type Addon, batchBytes } from './raw.ts';
import { demandHeader } from './reference/check.ts';
import { referenceGenKernels } from './reference/gen.ts';

function nativeGenKernels(addon: Addon): GenKernels {
  const records = (batch: Parameters<typeof demandHeader>[0], name: string) => {
    demandHeader(batch, name);
    return batchBytes(batch);
  };
  return {
    name: 'native',
    genArrivals: (params, queue: ArrivalQueue, seqs) =>
      callAddon(() => addon.genArrivals(params, queue.state, queue.wheelBuffer, queue.poolBuffer, seqs)),
    genRecords: (params, zipf, noise, seqs, count, into) =>
      callAddon(() => addon.genRecords(params, zipf.buffer, noise, seqs, count, records(into, 'into'))),
    genEvents: (params, zipf, seqs, count, into) =>
      callAddon(() => addon.genEvents(params, zipf.buffer, seqs, count, records(into, 'into'))),
    genDigest: (state, batch) => callAddon(() => addon.genDigest(state, records(batch, 'records'))),
  };
}

/** Selects the generator's kernels. @throws layout_mismatch as `loadAddon` does */
export function loadGenKernels(mode: NativeMode): GenKernels {
  return mode === 'native' ? nativeGenKernels(loadAddon()) : referenceGenKernels;
}
