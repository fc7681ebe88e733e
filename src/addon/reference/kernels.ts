/** The kernels in TypeScript, written to be read; the addon's answer the same bytes. */
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
