/** Free disk space of a long run. */
import { statfsSync } from 'node:fs';
import { coreError } from '../../src/core/errors.ts';

/** Below this limit a run stops, before the disk fills up. */
const FREE_BYTES_MIN = 3 * 1024 ** 3;

export function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder);
  return bavail * bsize;
}

/** Returns the free bytes. @throws out_of_range below the limit */
export function requireFreeSpace(folder: string): number {
  const free = freeBytes(folder);
  if (free < FREE_BYTES_MIN)
    throw coreError('out_of_range', `the disk has ${free} bytes left`, {
      next: `free disk space, or give fewer events or a lower -rate; the run keeps ${FREE_BYTES_MIN} bytes free`,
    });
  return free;
}
