/** File of -state-dir that names the windows of a set. Each window has a folder with a state of its
 *  own; this file says which of them sends the invalid records to the quarantine. */
import { savedJob } from '../../../engine/durability/checkpoint/restore.ts';
import { WINDOWS_FILE } from '../../../engine/durability/savepoint/files.ts';
import { engineError } from '../../../engine/errors.ts';
import type { Disk } from '../../../io/disk/port.ts';

const VERSION = 1;

export interface WindowSet {
  readonly version: number;
  readonly topic: string;
  readonly names: readonly string[];
  /** Window that sends the invalid records; absent: there is no quarantine. */
  readonly quarantine?: string | undefined;
  /** True if all windows have stopped at one position, with all copies sent. */
  readonly isStopped: boolean;
}

type Folder = Pick<Disk, 'read' | 'write' | 'list' | 'where'>;

/** @throws state_corrupt */
async function readSet(disk: Folder): Promise<WindowSet | undefined> {
  const bytes = await disk.read(WINDOWS_FILE);
  if (bytes === undefined) return undefined;
  const isText = (value: unknown): boolean => typeof value === 'string';
  try {
    const set = JSON.parse(new TextDecoder().decode(bytes)) as WindowSet;
    if (set.version === VERSION && isText(set.topic) && Array.isArray(set.names) && set.names.every(isText))
      return set;
  } catch {
    // The file is no JSON: refused below.
  }
  throw engineError('state_corrupt', `${WINDOWS_FILE} in ${disk.where} is not a list of windows`, {
    next: 'put the file back from a copy, or give an empty -state-dir to compute everything again',
  });
}

export const writeSet = (disk: Folder, set: Omit<WindowSet, 'version'>): Promise<void> =>
  disk.write(WINDOWS_FILE, [new TextEncoder().encode(JSON.stringify({ version: VERSION, ...set }))]);

/** Checks that the folder has no state of several windows. @throws job_changed */
export async function demandNoSet(disk: Folder): Promise<void> {
  const set = await readSet(disk);
  if (set === undefined) return;
  const { names } = set;
  throw engineError(
    'job_changed',
    `${disk.where} has the state of the windows ${names.join(', ')}, and -window has one without a name`,
    { next: `give -window=NAME=KIND:TIMES for each of them again, or another -state-dir` },
  );
}

/** Names of the windows of a folder; undefined: it has none with a name. @throws state_corrupt */
export const namesInSet = async (disk: Folder): Promise<readonly string[] | undefined> =>
  (await readSet(disk))?.names;

/** Checks that a folder that is saved is none of a window of a set.
 *  @param above folder of the set
 *  @throws several_windows, state_corrupt */
export async function demandNoSetIn(above: Folder): Promise<void> {
  const set = await readSet(above);
  if (set === undefined) return;
  throw engineError(
    'several_windows',
    `${above.where} has the states of the windows ${set.names.join(', ')}, which are saved together`,
    { next: `give -state-dir=${above.where}` },
  );
}

/** Returns the set of a run over a folder, before it starts.
 *  @param wanted `hasQuarantine`: invalid records are sent to a topic
 *  @returns the set, and the windows of the run before that it lacks
 *  @throws job_changed, state_corrupt */
export async function nextSet(
  disk: Folder,
  wanted: { readonly topic: string; readonly names: readonly string[]; readonly hasQuarantine: boolean },
): Promise<{ readonly set: Omit<WindowSet, 'version'>; readonly removed: readonly string[] }> {
  const { topic, names, hasQuarantine } = wanted;
  const before = await readSet(disk);
  if (before === undefined && (await savedJob(disk)) !== undefined)
    throw engineError(
      'job_changed',
      `${disk.where} has the state of a run whose window has no name, and -window names ${names.join(', ')}`,
      { next: 'give another -state-dir, or the flags of that run' },
    );
  if (before !== undefined && before.topic !== topic)
    throw engineError(
      'job_changed',
      `${disk.where} has the state of windows over the topic ${before.topic}, not ${topic}`,
      { next: `give -topic=${before.topic}, or another -state-dir` },
    );
  const removed = before?.names.filter((name) => !names.includes(name)) ?? [];
  const holder = hasQuarantine ? holderOf(disk, before, names) : undefined;
  return { set: { topic, names, quarantine: holder, isStopped: false }, removed };
}

/** Window that sends the invalid records: that of the run before, as long as it may have some. */
function holderOf(disk: Folder, before: WindowSet | undefined, names: readonly string[]): string | undefined {
  const was = before?.quarantine;
  if (before === undefined || was === undefined) return names[0];
  if (names.includes(was)) return was;
  if (before.isStopped) return names.find((name) => before.names.includes(name)) ?? names[0];
  throw engineError(
    'job_changed',
    `window ${was} of ${disk.where} may have invalid records that are not in the quarantine yet, because the run before was killed`,
    {
      next: `start with -window=${was}=… once more and stop that run with SIGTERM, or give -quarantine=off`,
    },
  );
}
