/** Files that one checkpoint needs: its manifest, base, runs and the changelog that it replays.
 *
 *  They are enough to resume, together with the embedded stores of the state folder (STATE_STORES).
 */
import { crc32 } from 'node:zlib';
import type { Disk } from '../../../io/disk/port.ts';
import { segmentName, segmentSeq } from '../changelog/log.ts';
import { Replay } from '../changelog/replay.ts';
import {
  ownFile,
  readManifest,
  type StateManifest,
  stateManifestName,
} from '../checkpoint/state-manifest.ts';
import type { FileEntry } from '../checkpoint/whole-file.ts';

/** Folders of the state folder that are embedded stores and part of the state. */
export const STATE_STORES = ['spill', 'keys'] as const;

/** Folder of a state folder in which each named window has a state folder of its own. */
export const WINDOWS_FOLDER = 'windows';
/** File of a state folder that names these windows. */
export const WINDOWS_FILE = 'windows.json';
const WINDOW_PATH = new RegExp(`^${WINDOWS_FOLDER}/([a-z][a-z0-9_]{0,30})/(.*)$`, 's');

/** Path of the state folder of a window in that of its run, with a slash behind it; empty for a
 *  window without a name. */
export const prefixOf = (window: string | undefined): string =>
  window === undefined ? '' : `${WINDOWS_FOLDER}/${window}/`;

/** Splits a path of a state folder into the window that it belongs to, and the path in the folder
 *  of that window. */
export function placeOfPath(path: string): { readonly window: string | undefined; readonly path: string } {
  const [, window, rest = ''] = WINDOW_PATH.exec(path) ?? [];
  return window === undefined ? { window: undefined, path } : { window, path: rest };
}

/** Bytes of one read of a file. */
export const PIECE_BYTES = 4 * 1024 * 1024;

/** A file of the state folder, as far as a checkpoint needs it. */
export interface StateFile {
  /** Name in the folder; for a file of a store, the folder of the store and a slash before it. */
  readonly path: string;
  readonly bytes: number;
}

export interface CheckpointFiles {
  readonly manifest: StateManifest;
  readonly files: readonly StateFile[];
}

type ReadableDisk = Pick<Disk, 'list' | 'readPiece'>;

/** Files of a checkpoint whose records are in segments that do not change any more.
 *  @param lastSeq last record of these segments */
export async function filesOfCheckpoint(
  disk: ReadableDisk,
  manifest: StateManifest,
  lastSeq: number,
  sizeOf: (name: string) => Promise<number>,
): Promise<readonly StateFile[]> {
  const named = [manifest.base, ...(manifest.base?.runs ?? [])].filter((file) => file !== undefined);
  const firsts = (await disk.list()).flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
  const start = firsts.findLastIndex((first) => first <= manifest.replayFrom);
  const segments = firsts.slice(Math.max(0, start)).filter((first) => first <= lastSeq);
  const names = [
    stateManifestName(manifest.id),
    ...named.map(({ name }) => name),
    ...segments.map(segmentName),
  ];
  return Promise.all(names.map(async (path) => ({ path, bytes: await sizeOf(path) })));
}

/** Finds the newest checkpoint of a folder that no process changes, and its files. Damage is
 *  reported, and an older checkpoint is used.
 *  @returns undefined for a folder without a readable checkpoint */
export async function newestCheckpoint(
  disk: Disk,
  sizeOf: (name: string) => Promise<number>,
  onFault: (fault: string) => void,
): Promise<CheckpointFiles | undefined> {
  const own = (await disk.list()).flatMap((name) => ownFile(name) ?? []);
  const ids = own.filter(({ role, isWhole }) => role === 'manifest' && isWhole).map(({ id }) => id);
  const readable: StateManifest[] = [];
  for (const id of ids.sort((a, b) => b - a)) {
    const read = await readManifest(disk, id);
    if ('fault' in read) onFault(`${stateManifestName(id)} ${read.fault}`);
    else readable.push(read.manifest);
  }
  // A record that any manifest calls durable must exist.
  const durable = Math.max(0, ...readable.map((manifest) => manifest.durable));
  for (const manifest of readable) {
    const checked = await checkedFiles(disk, { ...manifest, durable }, sizeOf);
    if ('files' in checked) return { manifest, files: checked.files };
    onFault(`${stateManifestName(manifest.id)}: ${checked.fault}`);
  }
  return undefined;
}

/** Files of a checkpoint after all of them were read, or the reason why it is damaged.
 *  @param manifest its `durable` is a record up to which the changelog must reach */
export async function checkedFiles(
  disk: Disk,
  manifest: StateManifest,
  sizeOf: (name: string) => Promise<number>,
): Promise<{ readonly files: readonly StateFile[] } | { readonly fault: string }> {
  for (const entry of [manifest.base, ...(manifest.base?.runs ?? [])]) {
    const fault = entry === undefined ? undefined : await fileFault(disk, entry);
    if (fault !== undefined) return { fault };
  }
  const end = await new Replay(disk, manifest.replayFrom, manifest.durable).run(() => {});
  if (end.damage !== undefined) return { fault: end.damage };
  const files = await filesOfCheckpoint(disk, manifest, end.lastSeq, sizeOf);
  const { torn } = end;
  // Only the whole records of a torn segment.
  return {
    files: files.map((file) =>
      torn !== undefined && file.path === torn.name ? { ...file, bytes: torn.wholeBytes } : file,
    ),
  };
}

/** Reason why a file is not the file of the entry; undefined: it is. */
async function fileFault(
  disk: Pick<Disk, 'readPiece'>,
  { name, bytes, crc32: expected }: FileEntry,
): Promise<string | undefined> {
  let at = 0;
  let crc = 0;
  for (;;) {
    const piece = await disk.readPiece(name, at, PIECE_BYTES);
    if (piece.length === 0) break;
    crc = crc32(piece, crc);
    at += piece.length;
    if (at > bytes) break;
  }
  if (at !== bytes)
    return `${name} has ${at > bytes ? 'more than ' : ''}${Math.min(at, bytes)} bytes, not ${bytes}`;
  return crc === expected ? undefined : `${name} has changed since it was written`;
}
