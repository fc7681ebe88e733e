/** Chooses the checkpoints to keep, and removes the files that none of them needs. */
import type { Disk } from '../../../io/disk/port.ts';
import type { Changelog } from '../changelog/log.ts';
import { ownFile, type StateManifest, stateManifestName } from './state-manifest.ts';
import { type StepHook, stepped } from './steps.ts';

/** Returns the newest two checkpoints, and the newest that has another base, so that the loss of
 *  one base loses nothing; the newest three if all have one base. Input and result are oldest
 *  first. */
export function checkpointsToKeep(manifests: readonly StateManifest[]): readonly StateManifest[] {
  const [newest, second, ...older] = [...manifests].reverse();
  if (newest === undefined) return [];
  const isOther = (manifest: StateManifest): boolean => manifest.base?.name !== newest.base?.name;
  const hasOther = second !== undefined && isOther(second);
  const third = hasOther ? older[0] : (older.find(isOther) ?? older[0]);
  return [third, second, newest].filter((manifest) => manifest !== undefined);
}

/** Removes the checkpoint files that belong to no kept checkpoint and are not being written, and
 *  then the segments that no kept checkpoint replays. Manifests are removed first, so that no
 *  manifest is left without its files. */
export async function prune(
  disk: Disk,
  changelog: Changelog,
  kept: readonly StateManifest[],
  isBeingWritten: (name: string) => boolean,
  hook: StepHook,
): Promise<void> {
  const named = new Set<string>();
  for (const { id, base } of kept) {
    named.add(stateManifestName(id));
    if (base === undefined) continue;
    named.add(base.name);
    for (const run of base.runs) named.add(run.name);
  }
  const unneeded = (await disk.list()).filter(
    (name) => ownFile(name) && !named.has(name) && !isBeingWritten(name),
  );
  const isManifest = (name: string): boolean => ownFile(name)?.role === 'manifest';
  for (const name of [...unneeded.filter(isManifest), ...unneeded.filter((name) => !isManifest(name))])
    await stepped(hook, 'removal', () => disk.remove(name));
  const replayFrom = Math.min(...kept.map((manifest) => manifest.replayFrom));
  await stepped(hook, 'removal', () => changelog.truncateBefore(replayFrom));
}
