/** What the drivers keep in a store's folder beside the library's files: a mark of what made it, and room for runs that
 *  are being written. */
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { coreError } from '../../core/errors.ts';
import { type KvFile, type KvOptions, kvError } from './port.ts';

/** Grows when a store of before can no longer be read. */
const VERSION = 1;
const MARK = 'MILLRACE-KV';
/** The library's own: names the manifest, so a folder without it holds no store. */
const CURRENT = 'CURRENT';
const INCOMING = 'incoming';

const markOf = (driver: string): string => `millrace-kv ${VERSION} ${driver}\n`;

/** Durable under its name or not there. */
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
  for (const one of [folder, dirname(folder)]) await syncFolder(one);
}

/** Makes the names in a folder durable. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}

/** Makes a folder and its parents, each durable by name. Node's own recursive mkdir never returns where a parent exists and takes
 *  no entries. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    await mkdir(path);
  }
  await syncFolder(dirname(path));
}

/** Whether the folder holds a store that this version and driver can open; makes and marks it where there is none.
 *  @throws kv_missing, kv_version, kv_corrupt, not_writable */
export async function prepareFolder(
  folder: string,
  driver: string,
  missing: KvOptions['missing'],
): Promise<'fresh' | 'there'> {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const there = names.includes(CURRENT);
  if (names.includes(MARK)) {
    const mark = await readFile(join(folder, MARK), 'latin1');
    if (mark !== markOf(driver)) {
      const is = JSON.stringify(mark.slice(0, 80).trimEnd());
      throw kvError('kv_version', `${folder} was made by ${is}, not by "${markOf(driver).trimEnd()}"`);
    }
  } else if (there) {
    throw kvError('kv_version', `${folder} holds a store that is not one of ours: it has no ${MARK}`);
  }
  if (there) return 'there';
  const orphan = names.find((name) => /\.(sst|ldb)$/.test(name));
  if (orphan !== undefined)
    throw kvError('kv_corrupt', `${join(folder, CURRENT)} is gone, though ${orphan} is there`);
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

/** Room for runs; what an earlier process left unfinished goes. Only after the folder is locked. */
export async function clearIncoming(folder: string): Promise<void> {
  await rm(join(folder, INCOMING), { recursive: true, force: true });
  await mkdir(join(folder, INCOMING));
}

/** Marks a checkpoint, which is complete from then on, and lists what it consists of. */
export async function sealCheckpoint(folder: string, driver: string): Promise<readonly KvFile[]> {
  await writeMark(folder, driver);
  const files: KvFile[] = [];
  for (const name of (await readdir(folder)).sort()) {
    const entry = await stat(join(folder, name));
    if (entry.isFile()) files.push({ name, bytes: entry.size });
  }
  return files;
}
