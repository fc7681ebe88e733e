/** Names of the steps of a checkpoint and of a spill, so that a hook can end the process before and
 *  after each of them. */

export const CHECKPOINT_ACTIONS = [
  'changelog sync',
  'base write',
  'base sync',
  'base rename',
  'run write',
  'run sync',
  'run rename',
  'manifest write',
  'manifest sync',
  'manifest rename',
  'removal',
] as const;

/** Actions of a spill: a piece of state that goes to disk for lack of memory. */
export const SPILL_ACTIONS = ['spill write', 'spill ingest'] as const;

export type CheckpointAction = (typeof CHECKPOINT_ACTIONS)[number] | (typeof SPILL_ACTIONS)[number];
export type CheckpointStep = `${'before' | 'after'} ${CheckpointAction}`;
export type StepHook = (step: CheckpointStep) => void | Promise<void>;

/** Purpose of a file; its three actions have this name. */
export type FileRole = 'base' | 'run' | 'manifest';

export async function stepped<T>(
  hook: StepHook,
  action: CheckpointAction,
  call: () => Promise<T>,
): Promise<T> {
  await hook(`before ${action}`);
  const done = await call();
  await hook(`after ${action}`);
  return done;
}
