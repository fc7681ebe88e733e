/** Chooses the checkpoints to keep, and removes the files that none of them needs. */
import type { Disk } from '../../../io/disk/port.ts';
import type { Changelog } from '../changelog/log.ts';
import { ownFile, type StateManifest, stateManifestName } from './state-manifest.ts';
import { type StepHook, stepped } from './steps.ts';

/** The newest two, and the newest with another base, so that the loss of a base loses nothing; if
 *  all have one base, the newest three. Takes and returns them oldest first. */
export function keptOf(manifests: readonly StateManifest[]): readonly StateManifest[] {
  const [newest, second, ...older] = [...manifests].reverse();
  if (newest === undefined) return [];
  const isOther = (one: StateManifest): boolean => one.base?.name !== newest.base?.name;
  const hasOther = second !== undefined && isOther(second);
  const third = hasOther ? older[0] : (older.find(isOther) ?? older[0]);
  return [third, second, newest].filter((one) => one !== undefined);
}

/** Removes files of ours that belong to no kept checkpoint and are not being written. Manifests go
 *  first, so that none is left without its files; then the segments that no kept checkpoint
 *  replays. */
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
  const goes = (await disk.list()).filter(
    (name) => ownFile(name) && !named.has(name) && !isBeingWritten(name),
  );
  const isManifest = (name: string): boolean => ownFile(name)?.role === 'manifest';
  for (const name of [...goes.filter(isManifest), ...goes.filter((one) => !isManifest(one))])
    await stepped(hook, 'removal', () => disk.remove(name));
  const replayFrom = Math.min(...kept.map((one) => one.replayFrom));
  await stepped(hook, 'removal', () => changelog.truncateBefore(replayFrom));
}
