/** Checks of a checkpoint against the run that resumes from it. */
import { PROGRESS_CELLS } from '../core/layout/window-clock.ts';
import type { StateManifest } from './durability/checkpoint/state-manifest.ts';
import { engineError, topicChanged } from './errors.ts';
import { type FlagChange, type Job, jobChanges } from './job.ts';
import { offsetIn } from './source/admission.ts';

export interface AskedFor {
  readonly job: Job;
  readonly clusterId: string;
  readonly topicId?: string | undefined;
  readonly source: { readonly partitionCount: number };
  /** Present where state may go to disk. */
  readonly spill?: object | undefined;
}

const changeText = ({ flag, was, is }: FlagChange): string =>
  `-${flag} was ${was ?? 'not given'}, is ${is ?? 'not given'}`;

/** Returns the safe flags that changed since the checkpoint: they are in force from here on.
 *  @throws job_changed, topic_changed */
export function validateCheckpoint(manifest: StateManifest, asked: AskedFor): readonly FlagChange[] {
  const changes = jobChanges(manifest.job, asked.job);
  const refused = changes.filter(({ isSafe }) => !isSafe);
  if (manifest.spill !== undefined && asked.spill === undefined)
    refused.push({ flag: 'state', was: 'disk', is: 'mem', isSafe: false });
  const faults = refused.map(changeText);
  if (manifest.clusterId !== asked.clusterId)
    faults.push(`the cluster was ${manifest.clusterId}, is ${asked.clusterId}`);
  const partitions = manifest.progress.length / PROGRESS_CELLS;
  if (partitions > asked.source.partitionCount)
    faults.push(`the topic had ${partitions} partitions, has ${asked.source.partitionCount}`);
  const isSameTopic = refused.every(({ flag }) => flag !== 'topic') && manifest.clusterId === asked.clusterId;
  if (isSameTopic && manifest.topicId !== undefined && asked.topicId !== undefined)
    if (manifest.topicId !== asked.topicId)
      throw topicChanged(asked.job.topic, manifest.topicId, asked.topicId);
  if (faults.length === 0) return changes;
  const before = refused.filter(({ was }) => was !== undefined).map(({ flag, was }) => `-${flag}=${was}`);
  throw engineError('job_changed', `the checkpoint was made by another job: ${faults.join(', ')}`, {
    next: `start with ${before.length === 0 ? 'the same cluster and topic' : before.join(' ')} again, or give an empty -state-dir to compute everything anew`,
  });
}

/** @param bounds first and next offset of each partition
 *  @throws offsets_gone */
export function demandOffsets(
  progress: Float64Array,
  bounds: readonly { readonly low: number; readonly high: number }[],
): void {
  bounds.slice(0, progress.length / PROGRESS_CELLS).forEach(({ low, high }, partition) => {
    const offset = offsetIn(progress, partition);
    if (offset >= low && offset <= high) return;
    throw engineError(
      'offsets_gone',
      `the checkpoint resumes at offset ${offset} of partition ${partition}, the topic holds ${low} to ${high}`,
      {
        next: 'the records have expired or the topic was created again: give an empty -state-dir to compute the existing records',
      },
    );
  });
}
