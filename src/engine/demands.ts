/** What a run asks of the checkpoint that it goes on from. */
import { PROGRESS_CELLS } from '../core/layout/window-clock.ts';
import { offsetIn } from './admission.ts';
import type { StateManifest } from './checkpoint/state-manifest.ts';
import { engineError } from './errors.ts';
import { type Job, jobDifferences } from './job.ts';

export interface AskedFor {
  readonly job: Job;
  readonly clusterId: string;
  readonly source: { readonly partitionCount: number };
  /** There where state may go to disk. */
  readonly spill?: object | undefined;
}

/** @throws job_changed */
export function demandSameJob(manifest: StateManifest, asked: AskedFor): void {
  const different = [...jobDifferences(manifest.job, asked.job)];
  if (manifest.spill !== undefined && asked.spill === undefined) different.push('-state was disk, is mem');
  if (manifest.clusterId !== asked.clusterId)
    different.push(`the cluster was ${manifest.clusterId}, is ${asked.clusterId}`);
  const partitions = manifest.progress.length / PROGRESS_CELLS;
  if (partitions > asked.source.partitionCount)
    different.push(`the topic had ${partitions} partitions, has ${asked.source.partitionCount}`);
  if (different.length === 0) return;
  throw engineError('job_changed', `the checkpoint was made by another job: ${different.join(', ')}`, {
    next: 'start with the same settings, or give another -state-dir',
  });
}

/** `bounds`: first and next offset of each partition. @throws offsets_gone */
export function demandOffsets(
  progress: Float64Array,
  bounds: readonly { readonly low: number; readonly high: number }[],
): void {
  bounds.slice(0, progress.length / PROGRESS_CELLS).forEach(({ low, high }, partition) => {
    const offset = offsetIn(progress, partition);
    if (offset >= low && offset <= high) return;
    throw engineError(
      'offsets_gone',
      `the checkpoint goes on at offset ${offset} of partition ${partition}, the topic holds ${low} to ${high}`,
      {
        next: 'the records are gone or the topic was made anew: give an empty -state-dir to compute what is there',
      },
    );
  });
}
