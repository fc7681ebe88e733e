/** Kernels in TypeScript, written for clarity; the addon's kernels produce the same bytes. */
import type { Kernels } from '../surface.ts';
import { decodeEvents } from './event.ts';
import { scanFrames, writeFrames } from './frame.ts';
import { shardOf } from './hash.ts';

export const referenceKernels: Kernels = {
  name: 'reference',
  shardOf,
  decodeEvents,
  scanFrames,
  writeFrames,
};
