/** Which checkpoints are kept, and the removal of everything that none of them needs. */
import type { Disk } from '../../../io/disk/port.ts';
import type { Changelog } from '../changelog/log.ts';
import { ownFile, type StateManifest, stateManifestName } from './state-manifest.ts';
import { type StepHook, stepped } from './steps.ts';

/** The newest two, and the newest that stands on another base, so that the loss of a base loses
 *  nothing; where all stand on one, the three newest. Takes and returns them oldest first. */
export function keptOf(manifests: readonly StateManifest[]): readonly StateManifest[] {
  const [newest, second, ...older] = [...manifests].reverse();
  if (newest === undefined) return [];
  const isOther = (one: StateManifest): boolean => one.base?.name !== newest.base?.name;
  const hasOther = second !== undefined && isOther(second);
  const third = hasOther ? older[0] : (older.find(isOther) ?? older[0]);
  return [third, second, newest].filter((one) => one !== undefined);
}

/** Removes our files that are neither of a kept checkpoint nor under way: manifests first, so that
 *  none is left without its files, and then the segments that no kept one replays. */
export async function prune(
  disk: Disk,
  changelog: Changelog,
  kept: readonly StateManifest[],
  isUnderWay: (name: string) => boolean,
  hook: StepHook,
): Promise<void> {
  const named = new Set<string>();
  for (const { id, base } of kept) {
    named.add(stateManifestName(id));
    if (base === undefined) continue;
    named.add(base.name);
    for (const run of base.runs) named.add(run.name);
  }
  const goes = (await disk.list()).filter((name) => ownFile(name) && !named.has(name) && !isUnderWay(name));
  const isManifest = (name: string): boolean => ownFile(name)?.role === 'manifest';
  for (const name of [...goes.filter(isManifest), ...goes.filter((one) => !isManifest(one))])
    await stepped(hook, 'removal', () => disk.remove(name));
  const replayFrom = Math.min(...kept.map((one) => one.replayFrom));
  await stepped(hook, 'removal', () => changelog.truncateBefore(replayFrom));
}
