/** Folder of a savepoint: files of a checkpoint, folders of the embedded stores, and a manifest
 *  that lists them. The folder gets its name when everything in it is durable. */
import { randomUUID } from 'node:crypto';
import { link, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { coreError } from '../../../core/errors.ts';
import {
  decodeStateManifest,
  ownFile,
  type StateManifest,
} from '../../../engine/durability/checkpoint/state-manifest.ts';
import type { FileEntry } from '../../../engine/durability/checkpoint/whole-file.ts';
import {
  PIECE_BYTES,
  placeOfPath,
  STATE_STORES,
  type StateFile,
} from '../../../engine/durability/savepoint/files.ts';
import {
  encodeSavepoint,
  SAVEPOINT_MANIFEST,
  type SavedState,
  type Savepoint,
} from '../../../engine/durability/savepoint/manifest.ts';
import { engineError } from '../../../engine/errors.ts';
import { openDisk } from '../../../io/disk/node.ts';
import type { Disk } from '../../../io/disk/port.ts';
import type { LockDriver } from '../../../io/lock/port.ts';

/** Ending of the folder of an unfinished savepoint. */
const UNFINISHED = '.unfinished';
/** File in which a lock driver holds its lock. */
const LOCK_FILE = 'lock';
/** Files of a store's folder that belong to a process, not to the store. */
const PROCESS_FILES = /^(?:LOCK|LOG|LOG\..*|IDENTITY\.dbtmp|.*\.tmp)$/;

/** State of a job as files that do not change. */
export interface StateSource {
  /** The manifest of each checkpoint is one of them. */
  readonly files: readonly StateFile[];
  /** Reads bytes of a file; fewer than `bytesMax` only at its end. */
  read(path: string, from: number, bytesMax: number): Promise<Uint8Array>;
}

/** Opens the folders in which files by their paths are: `spill/000012.sst` is in the folder spill.
 */
export async function foldersOf(
  root: string,
  paths: Iterable<string>,
  openFolder: (path: string) => Promise<Disk> = openDisk,
): Promise<(path: string) => { readonly disk: Disk; readonly name: string }> {
  const disks = new Map<string, Disk>([['', await openFolder(root)]]);
  for (const path of paths) {
    const folder = path.includes('/') ? dirname(path) : '';
    if (!disks.has(folder)) disks.set(folder, await openFolder(join(root, folder)));
  }
  return (path) => {
    const folder = path.includes('/') ? dirname(path) : '';
    return { disk: disks.get(folder) as Disk, name: path.slice(folder === '' ? 0 : folder.length + 1) };
  };
}

/** Size of a file of a folder. @throws not_writable */
export const sizeIn =
  (folder: string) =>
  async (name: string): Promise<number> => {
    try {
      return (await stat(join(folder, name))).size;
    } catch (thrown) {
      throw coreError('not_writable', `cannot read ${join(folder, name)}: ${(thrown as Error).message}`, {
        next: 'check the folder and its owner',
        cause: thrown,
      });
    }
  };

/** Files of the embedded stores in a state folder whose stores no process writes. */
export async function storeFiles(
  folder: string,
  folders: readonly string[] = STATE_STORES,
): Promise<readonly StateFile[]> {
  const files: StateFile[] = [];
  for (const store of folders) {
    const names = await readdir(join(folder, store), { withFileTypes: true }).catch(() => []);
    for (const entry of names)
      if (entry.isFile() && !PROCESS_FILES.test(entry.name)) {
        const path = `${store}/${entry.name}`;
        files.push({ path, bytes: await sizeIn(folder)(path) });
      }
  }
  return files;
}

/** Makes the names in a folder durable. */
export async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Copies a file and makes it durable. Returns what was copied. @throws not_writable */
export async function copyFile(
  read: (from: number, bytesMax: number) => Promise<Uint8Array>,
  bytes: number,
  { disk, name }: { readonly disk: Disk; readonly name: string },
): Promise<FileEntry> {
  const file = await disk.append(name);
  let crc = 0;
  try {
    while (file.size < bytes) {
      const piece = await read(file.size, Math.min(PIECE_BYTES, bytes - file.size));
      if (piece.length === 0) break;
      crc = crc32(piece, crc);
      await file.write([piece]);
    }
    await file.sync();
  } finally {
    await file.close();
  }
  return { name, bytes: file.size, crc32: crc };
}

/** Gives the file of a folder a second name, without a copy of its bytes. */
export const linkFile = (from: string, to: string): Promise<void> => link(from, to);

export interface WriteParts {
  readonly locks: LockDriver;
  readonly nowMs: number;
  /** Called before each file and before the folder gets its name; it may end the process. */
  readonly onStep?: (step: string) => void | Promise<void>;
}

async function demandFree(folder: string): Promise<void> {
  const names = await readdir(folder).catch((thrown: NodeJS.ErrnoException) => {
    if (thrown.code === 'ENOENT') return [];
    throw coreError('not_writable', `cannot write ${folder}: ${thrown.message}`, {
      next: 'give -out=DIR with a folder that does not exist',
      cause: thrown,
    });
  });
  if (names.length === 0) return;
  throw engineError('savepoint_exists', `${folder} exists and is not empty`, {
    next: 'give -out=DIR with a folder that does not exist: a savepoint never replaces files',
  });
}

/** Writes a savepoint: the folder has its name only when all of its files are durable.
 *  @throws savepoint_exists, state_locked, not_writable, state_corrupt */
export async function writeSavepoint(
  out: string,
  source: StateSource,
  { locks, nowMs, onStep = () => {} }: WriteParts,
): Promise<Savepoint> {
  const folder = resolve(out);
  await demandFree(folder);
  const unfinished = `${folder}${UNFINISHED}`;
  await openDisk(unfinished);
  const outcome = await locks.tryLock(unfinished);
  if ('holder' in outcome)
    throw engineError('state_locked', `${unfinished} is being written by ${outcome.holder}`, {
      next: 'wait for that savepoint, or give another -out',
    });
  try {
    // A process that ended in between left the rest.
    for (const name of await readdir(unfinished))
      if (name !== LOCK_FILE) await rm(join(unfinished, name), { recursive: true, force: true });
    const savepoint = await fill(unfinished, source, nowMs, onStep);
    await onStep('name');
    await rm(join(unfinished, LOCK_FILE), { force: true });
    await rename(unfinished, folder).catch((thrown: NodeJS.ErrnoException) => {
      throw engineError('savepoint_exists', `${folder} cannot get its name: ${thrown.message}`, {
        next: 'give -out=DIR with a folder that does not exist',
        cause: thrown,
      });
    });
    await syncFolder(dirname(folder));
    return savepoint;
  } catch (thrown) {
    await rm(unfinished, { recursive: true, force: true });
    throw thrown;
  } finally {
    outcome.lock.release();
  }
}

async function fill(
  folder: string,
  { files, read }: StateSource,
  nowMs: number,
  onStep: (step: string) => void | Promise<void>,
): Promise<Savepoint> {
  const placeOf = await foldersOf(
    folder,
    files.map(({ path }) => path),
  );
  const entries: FileEntry[] = [];
  for (const { path, bytes } of files) {
    await onStep(path);
    const entry = await copyFile((from, bytesMax) => read(path, from, bytesMax), bytes, placeOf(path));
    if (entry.bytes !== bytes)
      throw engineError('state_corrupt', `${path} has ${entry.bytes} bytes, not ${bytes}`, {
        next: 'save the state again',
      });
    entries.push({ ...entry, name: path });
  }
  const states: (SavedState & Pick<StateManifest, 'clusterId'>)[] = [];
  for (const { path } of files) {
    const place = placeOfPath(path);
    if (ownFile(place.path)?.role !== 'manifest') continue;
    const { disk, name } = placeOf(path);
    const decoded = decodeStateManifest((await disk.read(name)) ?? new Uint8Array(0));
    if ('fault' in decoded)
      throw engineError('state_corrupt', `${path} ${decoded.fault}`, { next: 'save the state again' });
    const { job, clusterId, id } = decoded.manifest;
    states.push({ window: place.window, job, checkpointId: id, clusterId });
  }
  const [first, ...others] = states.map(({ clusterId: _, ...state }) => state);
  if (first === undefined)
    throw engineError('state_corrupt', 'the state has no checkpoint', { next: 'save the state again' });
  const savepoint: Savepoint = {
    ...{ id: randomUUID(), ts: nowMs, clusterId: states[0]?.clusterId ?? '' },
    states: [first, ...others],
    files: entries,
  };
  await onStep(SAVEPOINT_MANIFEST);
  const root = await openDisk(folder);
  await root.write(SAVEPOINT_MANIFEST, [encodeSavepoint(savepoint)]);
  return savepoint;
}
