/** Begins the state of a run with a savepoint: `millrace engine -savepoint=DIR`.
 *
 *  All files are copied into a folder beside the state and compared with the manifest before the
 *  state folder changes. They are then moved, the manifest of the checkpoint last, so that a crash
 *  leaves a folder with which the same command begins again. */
import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Logger } from '../../../core/log.ts';
import { segmentSeq } from '../../../engine/durability/changelog/log.ts';
import {
  decodeStateManifest,
  ownFile,
  type StateManifest,
} from '../../../engine/durability/checkpoint/state-manifest.ts';
import type { FileEntry } from '../../../engine/durability/checkpoint/whole-file.ts';
import { STATE_STORES } from '../../../engine/durability/savepoint/files.ts';
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
  /** Checks that the run may resume from the checkpoint. @throws job_changed, topic_changed */
  readonly validate: (manifest: StateManifest) => Promise<void>;
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
  const { disk, folder, log } = parts;
  const names = await disk.list();
  const origin = await originOf(disk);
  const hasCheckpoint = names.some((name) => ownFile(name)?.role === 'manifest' && ownFile(name)?.isWhole);
  if (hasCheckpoint && origin?.folder === resolve(folder) && !existsSync(join(folder, SAVEPOINT_MANIFEST)))
    return false;
  const savepoint = await readSavepoint(folder);
  if (hasCheckpoint) {
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
  await clear(disk, names);
  const { manifest, manifestName } = await stage(parts, savepoint);
  await parts.validate(manifest).catch(async (thrown) => {
    await rm(join(disk.where, STAGE), { recursive: true, force: true });
    throw thrown;
  });
  await move(parts, savepoint, manifestName);
  log.info(
    { savepoint: savepoint.id, folder, checkpoint: savepoint.checkpointId, files: savepoint.files.length },
    'the state begins with the savepoint',
  );
  return true;
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
async function clear(disk: Disk, names: readonly string[]): Promise<void> {
  const own = names.filter((name) => ownFile(name) !== undefined || segmentSeq(name) !== undefined);
  if (own.length > 0 && !existsSync(join(disk.where, STAGE)))
    throw engineError(
      'bad_setting',
      `${disk.where} has files of a state without a checkpoint, such as ${own[0]}`,
      { next: 'give an empty -state-dir', details: { setting: 'savepoint' } },
    );
  for (const name of own) await disk.remove(name);
  await rm(join(disk.where, STAGE), { recursive: true, force: true });
}

/** Copies the files into the stage and compares each with the manifest. */
async function stage(
  { disk, folder, onStep }: LoadParts,
  savepoint: Savepoint,
): Promise<{ readonly manifest: StateManifest; readonly manifestName: string }> {
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

/** Files that become the state of a folder. */
export interface StagedFiles {
  readonly files: readonly FileEntry[];
  /** Reads bytes of a file; none at its end, and of a missing file. */
  readonly read: (path: string, from: number, bytesMax: number) => Promise<Uint8Array>;
  readonly damaged: (fault: string) => Error;
  readonly onStep?: (step: string) => void | Promise<void>;
}

/** Copies files into a folder beside the state, and compares each with its entry.
 *  @throws the error that `damaged` makes */
export async function stageFiles(
  disk: Disk,
  { files, read, damaged: fail, onStep = () => {} }: StagedFiles,
): Promise<{ readonly manifest: StateManifest; readonly manifestName: string }> {
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
    const manifestName = paths.find((path) => ownFile(path)?.role === 'manifest');
    if (manifestName === undefined) throw fail('the list of files names no checkpoint');
    const { disk: staged, name } = placeOf(manifestName);
    const decoded = decodeStateManifest((await staged.read(name)) ?? new Uint8Array(0));
    if ('fault' in decoded) throw fail(`${manifestName} ${decoded.fault}`);
    return { manifest: decoded.manifest, manifestName };
  } catch (thrown) {
    await rm(root, { recursive: true, force: true });
    throw thrown;
  }
}

/** Moves staged files into the state folder; the manifest makes them a state.
 *  @param folders folders of stores, which are replaced
 *  @param commit writes what belongs to the state beside its files */
export async function moveStaged(
  disk: Disk,
  files: readonly FileEntry[],
  manifestName: string,
  folders: readonly string[],
  commit: () => Promise<void>,
  onStep: (step: string) => void | Promise<void> = () => {},
): Promise<void> {
  const { where } = disk;
  const root = join(where, STAGE);
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
  await commit();
  await syncFolder(where);
  await onStep(`move ${manifestName}`);
  await rename(join(root, manifestName), join(where, manifestName));
  await syncFolder(where);
  await rm(root, { recursive: true, force: true });
}

const move = (
  { disk, folder, onStep }: LoadParts,
  { id, files }: Savepoint,
  manifestName: string,
): Promise<void> =>
  moveStaged(
    disk,
    files,
    manifestName,
    STATE_STORES,
    () =>
      disk.write(ORIGIN, [new TextEncoder().encode(`${JSON.stringify({ id, folder: resolve(folder) })}\n`)]),
    onStep,
  );
