/** Begins the state of a run with a savepoint: `millrace engine -savepoint=DIR`.
 *
 *  All files are copied into a folder beside the state and compared with the manifest before the
 *  state folder changes. They are then moved, the manifest of the checkpoint last, so that a crash
 *  leaves a folder with which the same command begins again. */
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Logger } from '../../../core/log.ts';
import { segmentSeq } from '../../../engine/durability/changelog/log.ts';
import {
  decodeStateManifest,
  ownFile,
  type StateManifest,
} from '../../../engine/durability/checkpoint/state-manifest.ts';
import type { FileEntry } from '../../../engine/durability/checkpoint/whole-file.ts';
import {
  placeOfPath,
  prefixOf,
  STATE_STORES,
  WINDOWS_FILE,
  WINDOWS_FOLDER,
} from '../../../engine/durability/savepoint/files.ts';
import {
  decodeSavepoint,
  MANIFEST_BYTES_MAX,
  SAVEPOINT_MANIFEST,
  type Savepoint,
} from '../../../engine/durability/savepoint/manifest.ts';
import { engineError } from '../../../engine/errors.ts';
import { existingDisk } from '../../../io/disk/node.ts';
import type { Disk } from '../../../io/disk/port.ts';
import { copyFile, foldersOf, syncFolder } from './folder.ts';

/** Folder of the copies until all of them were checked. */
const STAGE = 'savepoint.tmp';
/** File that names the savepoint with which a state began. */
const ORIGIN = 'savepoint.origin';

export interface LoadParts {
  /** Folder of the state; the process holds its lock. */
  readonly disk: Disk;
  readonly folder: string;
  readonly log: Logger;
  /** Names of the run's windows; none: it has one without a name. */
  readonly windows: readonly string[];
  /** Checks that the run may resume from the checkpoints. @throws job_changed, topic_changed */
  readonly validate: (states: readonly StagedState[]) => Promise<void>;
  /** Called at each step; it may end the process. */
  readonly onStep?: (step: string) => void | Promise<void>;
}

const damaged = (folder: string, fault: string): Error =>
  engineError('savepoint_damaged', `the savepoint ${folder} is damaged: ${fault}`, {
    next: 'put the file back from a copy, or take another savepoint; -state-dir is unchanged',
  });

/** Returns true if the state begins with the savepoint now, false if it did before.
 *  @throws savepoint_missing, savepoint_damaged, job_changed, bad_setting, not_writable */
export async function loadSavepoint(parts: LoadParts): Promise<boolean> {
  const { disk, folder, log, windows } = parts;
  const origin = await originOf(disk);
  const isBegun = await hasCheckpoint(disk.where);
  if (isBegun && origin?.folder === resolve(folder) && !existsSync(join(folder, SAVEPOINT_MANIFEST)))
    return false;
  const savepoint = await readSavepoint(folder);
  if (isBegun) {
    if (origin?.id === savepoint.id) return false;
    throw engineError(
      'bad_setting',
      `${disk.where} has a state that did not begin with the savepoint ${folder}`,
      {
        next: 'give an empty -state-dir to begin with the savepoint, or leave -savepoint out to resume',
        details: { setting: 'savepoint' },
      },
    );
  }
  demandWindows(folder, savepoint, windows);
  await clear(disk);
  const states = await stage(parts, savepoint);
  await parts.validate(states).catch(async (thrown) => {
    await rm(join(disk.where, STAGE), { recursive: true, force: true });
    throw thrown;
  });
  await move(parts, savepoint, states);
  log.info(
    {
      ...{ savepoint: savepoint.id, folder, files: savepoint.files.length },
      checkpoints: savepoint.states.map(({ checkpointId }) => checkpointId),
    },
    'the state begins with the savepoint',
  );
  return true;
}

/** True if a folder has a whole manifest of a checkpoint. */
async function hasManifest(folder: string): Promise<boolean> {
  const names = await readdir(folder).catch(() => []);
  return names.some((name) => ownFile(name)?.role === 'manifest' && ownFile(name)?.isWhole);
}

/** Names in the folder of the named windows. */
const namesIn = (where: string): Promise<readonly string[]> =>
  readdir(join(where, WINDOWS_FOLDER)).catch(() => []);

/** True if a state folder has a checkpoint, of any window. */
async function hasCheckpoint(where: string): Promise<boolean> {
  for (const window of [undefined, ...(await namesIn(where))])
    if (await hasManifest(join(where, prefixOf(window)))) return true;
  return false;
}

/** True if a state folder has a checkpoint of each window that has one of these files. */
export async function hasCheckpoints(where: string, paths: readonly string[]): Promise<boolean> {
  const states = paths.filter((path) => path !== WINDOWS_FILE).map((path) => placeOfPath(path).window);
  for (const window of new Set(states)) if (!(await hasManifest(join(where, prefixOf(window))))) return false;
  return true;
}

/** @throws job_changed unless the savepoint has the state of a window of the run */
function demandWindows(folder: string, { states }: Savepoint, windows: readonly string[]): void {
  const saved = states.flatMap(({ window }) => window ?? []);
  if (saved.length === 0 ? windows.length === 0 : saved.some((name) => windows.includes(name))) return;
  const was = saved.length === 0 ? 'a window without a name' : `the windows ${saved.join(', ')}`;
  const is = windows.length === 0 ? 'one without a name' : windows.join(', ');
  throw engineError('job_changed', `the savepoint ${folder} has the state of ${was}, and -window has ${is}`, {
    next: 'give the -window flags of the job that was saved, or leave -savepoint out to compute everything',
  });
}

/** @throws savepoint_missing, savepoint_damaged */
async function readSavepoint(folder: string): Promise<Savepoint> {
  if (!existsSync(join(folder, SAVEPOINT_MANIFEST)))
    throw engineError(
      'savepoint_missing',
      `there is no savepoint in ${folder}: it has no ${SAVEPOINT_MANIFEST}`,
      {
        next: 'give -savepoint=DIR that engine savepoint -out=DIR made',
      },
    );
  const source = await existingDisk(folder);
  const bytes = await source.readPiece(SAVEPOINT_MANIFEST, 0, MANIFEST_BYTES_MAX);
  const decoded = decodeSavepoint(bytes);
  if ('fault' in decoded) throw damaged(folder, `${SAVEPOINT_MANIFEST} ${decoded.fault}`);
  return decoded.savepoint;
}

async function originOf(
  disk: Disk,
): Promise<{ readonly id?: unknown; readonly folder?: unknown } | undefined> {
  const bytes = await disk.read(ORIGIN);
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(new TextDecoder().decode(bytes)) as {
      readonly id?: unknown;
      readonly folder?: unknown;
    };
  } catch {
    return {};
  }
}

/** Removes what an interrupted load left. @throws bad_setting for files of another origin */
async function clear(disk: Disk): Promise<void> {
  const own = await stateFilesIn(disk.where);
  if (own.length > 0 && !existsSync(join(disk.where, STAGE)))
    throw engineError(
      'bad_setting',
      `${disk.where} has files of a state without a checkpoint, such as ${own[0]}`,
      { next: 'give an empty -state-dir', details: { setting: 'savepoint' } },
    );
  await removeState(disk);
  await rm(join(disk.where, STAGE), { recursive: true, force: true });
}

/** Files of checkpoints and changelogs in a state folder, of all windows. */
async function stateFilesIn(where: string): Promise<readonly string[]> {
  const files: string[] = [];
  for (const window of [undefined, ...(await namesIn(where))]) {
    const names = await readdir(join(where, prefixOf(window))).catch(() => []);
    for (const name of names)
      if (ownFile(name) !== undefined || segmentSeq(name) !== undefined)
        files.push(`${prefixOf(window)}${name}`);
  }
  return files;
}

/** Removes the state of all windows of a folder. A crash in between leaves no part of a state that
 *  has a checkpoint. */
export async function removeState(disk: Disk): Promise<void> {
  const { where } = disk;
  const removed = join(where, `${WINDOWS_FOLDER}.removed`);
  await rm(removed, { recursive: true, force: true });
  await rm(join(where, WINDOWS_FILE), { force: true });
  const folder = join(where, WINDOWS_FOLDER);
  if (existsSync(folder)) await rename(folder, removed);
  await rm(removed, { recursive: true, force: true });
  const own = (await disk.list()).filter(
    (name) => ownFile(name) !== undefined || segmentSeq(name) !== undefined,
  );
  // Manifests first: without one the folder has no state.
  for (const name of own.sort((a, b) => Number(isManifest(b)) - Number(isManifest(a))))
    await disk.remove(name);
}

const isManifest = (name: string): boolean => ownFile(name)?.role === 'manifest';

/** Copies the files into the stage and compares each with the manifest. */
async function stage(
  { disk, folder, onStep }: LoadParts,
  savepoint: Savepoint,
): Promise<readonly StagedState[]> {
  const paths = savepoint.files.map(({ name }) => name);
  const sourceOf = await foldersOf(folder, paths, existingDisk).catch((thrown: Error) => {
    throw damaged(folder, thrown.message);
  });
  return stageFiles(disk, {
    files: savepoint.files,
    read: (path, from, max) => {
      const { disk: source, name } = sourceOf(path);
      return source.readPiece(name, from, max);
    },
    damaged: (fault) => damaged(folder, fault),
    ...(onStep === undefined ? {} : { onStep }),
  });
}

/** State of a window among staged files. */
export interface StagedState {
  readonly window: string | undefined;
  readonly manifest: StateManifest;
  /** Path of the manifest. */
  readonly path: string;
}

/** Files that become the state of a folder. */
export interface StagedFiles {
  readonly files: readonly FileEntry[];
  /** Reads bytes of a file; none at its end, and of a missing file. */
  readonly read: (path: string, from: number, bytesMax: number) => Promise<Uint8Array>;
  readonly damaged: (fault: string) => Error;
  readonly onStep?: (step: string) => void | Promise<void>;
}

/** Copies files into a folder beside the state, and compares each with its entry.
 *  @returns the states of all windows
 *  @throws the error that `damaged` makes */
export async function stageFiles(
  disk: Disk,
  { files, read, damaged: fail, onStep = () => {} }: StagedFiles,
): Promise<readonly StagedState[]> {
  const root = join(disk.where, STAGE);
  await rm(root, { recursive: true, force: true });
  const paths = files.map(({ name }) => name);
  try {
    const placeOf = await foldersOf(root, paths);
    for (const { name: path, bytes, crc32 } of files) {
      await onStep(`stage ${path}`);
      // One byte more shows a file that has grown.
      const copied = await copyFile((at, max) => read(path, at, max), bytes + 1, placeOf(path));
      if (copied.bytes === 0 && bytes > 0) throw fail(`${path} is missing`);
      if (copied.bytes !== bytes)
        throw fail(
          `${path} has ${copied.bytes > bytes ? 'more than ' : ''}${Math.min(copied.bytes, bytes)} bytes, not ${bytes}`,
        );
      if (copied.crc32 !== crc32) throw fail(`${path} has changed since it was written`);
    }
    const states: StagedState[] = [];
    for (const path of paths) {
      const place = placeOfPath(path);
      if (!isManifest(place.path)) continue;
      const { disk: staged, name } = placeOf(path);
      const decoded = decodeStateManifest((await staged.read(name)) ?? new Uint8Array(0));
      if ('fault' in decoded) throw fail(`${path} ${decoded.fault}`);
      states.push({ window: place.window, manifest: decoded.manifest, path });
    }
    if (states.length === 0) throw fail('the list of files names no checkpoint');
    return states;
  } catch (thrown) {
    await rm(root, { recursive: true, force: true });
    throw thrown;
  }
}

/** Moves staged files into the state folder. The manifest makes them a state; the states of named
 *  windows are moved in one step.
 *  @param folders folders of stores, which are replaced
 *  @param commit writes what belongs to the state beside its files */
export async function moveStaged(
  disk: Disk,
  files: readonly FileEntry[],
  states: readonly StagedState[],
  folders: readonly string[],
  commit: () => Promise<void>,
  onStep: (step: string) => void | Promise<void> = () => {},
): Promise<void> {
  const { where } = disk;
  const root = join(where, STAGE);
  const finish = async (last: string): Promise<void> => {
    await commit();
    await syncFolder(where);
    await onStep(`move ${last}`);
    await rename(join(root, last), join(where, last));
    await syncFolder(where);
    await rm(root, { recursive: true, force: true });
  };
  const manifestName = states.find(({ window }) => window === undefined)?.path;
  if (manifestName === undefined) {
    await onStep(`move ${WINDOWS_FILE}`);
    await rename(join(root, WINDOWS_FILE), join(where, WINDOWS_FILE));
    return finish(WINDOWS_FOLDER);
  }
  for (const store of folders) {
    await onStep(`move ${store}`);
    await rm(join(where, store), { recursive: true, force: true });
    if (existsSync(join(root, store))) await rename(join(root, store), join(where, store));
  }
  for (const { name: path } of files) {
    if (path.includes('/') || path === manifestName) continue;
    await onStep(`move ${path}`);
    await rename(join(root, path), join(where, path));
  }
  await finish(manifestName);
}

const move = (
  { disk, folder, onStep }: LoadParts,
  { id, files }: Savepoint,
  states: readonly StagedState[],
): Promise<void> =>
  moveStaged(
    disk,
    files,
    states,
    STATE_STORES,
    () =>
      disk.write(ORIGIN, [new TextEncoder().encode(`${JSON.stringify({ id, folder: resolve(folder) })}\n`)]),
    onStep,
  );
