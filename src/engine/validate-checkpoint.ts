/** Checks that a checkpoint belongs to the job that resumes from it. */
import { PROGRESS_CELLS } from '../core/layout/window-clock.ts';
import type { StateManifest } from './durability/checkpoint/state-manifest.ts';
import { engineError, topicChanged } from './errors.ts';
import { type FlagChange, type Job, jobChanges } from './job.ts';
import { offsetIn } from './source/admission.ts';

export interface ResumingRun {
  readonly job: Job;
  readonly clusterId: string;
  readonly topicId?: string | undefined;
  readonly source: { readonly partitionCount: number };
  /** Present if the state can spill to disk. */
  readonly spill?: object | undefined;
}

/** Origin of a checkpoint, for messages. */
export interface CheckpointOrigin {
  readonly text: string;
  /** Alternative to the flags of the checkpoint, as an order to the user. */
  readonly otherwise: string;
}

const STATE_DIR: CheckpointOrigin = {
  text: 'the checkpoint',
  otherwise: 'give an empty -state-dir to recompute everything',
};

const changeText = ({ flag, was, is }: FlagChange): string =>
  `-${flag} was ${was ?? 'not given'}, is ${is ?? 'not given'}`;

/** Text of a flag's value as a shell needs it. */
const quoted = (text: string): string =>
  /^[\w.:@,/-]*$/.test(text) ? text : text.includes('"') ? `'${text}'` : `"${text}"`;

/** Returns the flags that changed since the checkpoint and may change: their new values apply from
 *  now on.
 *  @throws job_changed, topic_changed */
export function validateCheckpoint(
  manifest: StateManifest,
  run: ResumingRun,
  from: CheckpointOrigin = STATE_DIR,
): readonly FlagChange[] {
  const changes = jobChanges(manifest.job, run.job);
  const refused = changes.filter(({ isSafe }) => !isSafe);
  if (manifest.spill !== undefined && run.spill === undefined)
    refused.push({ flag: 'state', was: 'disk', is: 'mem', isSafe: false });
  const faults = refused.map(changeText);
  if (manifest.clusterId !== run.clusterId)
    faults.push(`the cluster was ${manifest.clusterId}, is ${run.clusterId}`);
  const partitions = manifest.progress.length / PROGRESS_CELLS;
  if (partitions > run.source.partitionCount)
    faults.push(`the topic had ${partitions} partitions, has ${run.source.partitionCount}`);
  const isSameTopic = refused.every(({ flag }) => flag !== 'topic') && manifest.clusterId === run.clusterId;
  if (isSameTopic && manifest.topicId !== undefined && run.topicId !== undefined)
    if (manifest.topicId !== run.topicId) throw topicChanged(run.job.topic, manifest.topicId, run.topicId);
  if (faults.length === 0) return changes;
  const before = refused
    .filter(({ was }) => was !== undefined)
    .map(({ flag, was }) => `-${flag}=${quoted(was ?? '')}`);
  const again = `start with ${before.length === 0 ? 'the same cluster and topic' : before.join(' ')} again`;
  // A removed aggregate would leave early results of open windows in the sinks.
  const isLess = refused.some(
    ({ flag, was, is }) => flag === 'aggregate' && was !== undefined && is !== undefined,
  );
  const rule = isLess ? ' (aggregates can be added, not removed or changed)' : '';
  throw engineError('job_changed', `${from.text} was made by another job: ${faults.join(', ')}`, {
    next: `${again}${rule}, or ${from.otherwise}`,
  });
}

/** `bounds`: first and next offset of each partition. @throws offsets_gone */
export function validateOffsets(
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
        next: 'the records expired or the topic was recreated: give an empty -state-dir to compute the existing records',
      },
    );
  });
}
