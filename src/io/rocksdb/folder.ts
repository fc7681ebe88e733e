/** Files that the drivers keep in a store's folder beside the library's files: a mark that names
 *  the driver and version, and a folder for runs that are being written. */
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { type KvFile, type KvOptions, kvError } from './port.ts';

/** Format version; grows when stores of earlier versions become unreadable. */
const VERSION = 1;
const MARK = 'MILLRACE-KV';
/** File of the library that names the manifest; a folder without it holds no store. */
const CURRENT = 'CURRENT';
const INCOMING = 'incoming';

const markOf = (driver: string): string => `millrace-kv ${VERSION} ${driver}\n`;

/** Writes the mark atomically and durably. */
async function writeMark(folder: string, driver: string): Promise<void> {
  const path = join(folder, MARK);
  const file = await open(`${path}.tmp`, 'w');
  try {
    await file.writeFile(markOf(driver));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(`${path}.tmp`, path);
  for (const changed of [folder, dirname(folder)]) await syncFolder(changed);
}

/** Makes the names in a folder durable. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}

/** Makes a folder and its parents, each durable by name. Node's recursive mkdir never returns when
 *  a parent exists and accepts no entries. */
async function makeFolder(path: string, mayLackParents = true): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'EEXIST') {
      // The process that made it may not have synced its name yet. Some parents cannot be synced.
      await syncFolder(dirname(path)).catch(() => {});
      return;
    }
    if (!mayLackParents || code !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    return makeFolder(path, false);
  }
  await syncFolder(dirname(path));
}

/** Checks that the folder holds a store which this version and driver can open; makes and marks an
 *  absent one.
 *  @throws kv_missing, kv_version, kv_corrupt, not_writable */
export async function prepareFolder(
  folder: string,
  driver: string,
  missing: KvOptions['missing'],
): Promise<'fresh' | 'existing'> {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const hasStore = names.includes(CURRENT);
  if (names.includes(MARK)) {
    const mark = await readFile(join(folder, MARK), 'latin1');
    if (mark !== markOf(driver)) {
      const is = JSON.stringify(mark.slice(0, 80).trimEnd());
      throw kvError('kv_version', `${folder} was made by ${is}, not by "${markOf(driver).trimEnd()}"`);
    }
  } else if (hasStore) {
    throw kvError('kv_version', `${folder} holds a store of another program: it has no ${MARK}`);
  }
  if (hasStore) return 'existing';
  const orphan = names.find((name) => /\.(sst|ldb)$/.test(name));
  if (orphan !== undefined)
    throw kvError('kv_corrupt', `${join(folder, CURRENT)} is missing, although ${orphan} exists`);
  if (missing === 'refuse') throw kvError('kv_missing', `there is no store in ${folder}`);
  try {
    await makeFolder(folder);
    await writeMark(folder, driver);
  } catch (thrown) {
    const message = `cannot make a store in ${folder}: ${(thrown as Error).message}`;
    throw coreError('not_writable', message, {
      next: 'check the folder, its owner and the free space',
      cause: thrown,
    });
  }
  return 'fresh';
}

/** Empties the folder of runs: removes unfinished runs of an earlier process. Call it only after
 *  the folder is locked. */
export async function clearIncoming(folder: string): Promise<void> {
  await rm(join(folder, INCOMING), { recursive: true, force: true });
  await mkdir(join(folder, INCOMING));
}

/** Marks a checkpoint, which makes it complete, and lists its files. */
export async function sealCheckpoint(folder: string, driver: string): Promise<readonly KvFile[]> {
  await writeMark(folder, driver);
  const files: KvFile[] = [];
  for (const name of (await readdir(folder)).sort()) {
    const entry = await stat(join(folder, name));
    if (entry.isFile()) files.push({ name, bytes: entry.size });
  }
  return files;
}
