/** Object store in a folder, such as one on a network file system. Replacements hold the lock of
 *  the folder, so that they are atomic for all processes that the file system's locks reach. */
import { createHash } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { type ObjectStore, objectError, type StoredObject } from './port.ts';

/** Locks a folder for one replacement; the caller supplies the driver of locks. */
export type LockFolder = (folder: string) => Promise<{ release(): void }>;

const UNFINISHED = '.tmp';

const tagOf = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** Names that are paths inside the folder. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*(?:\/[A-Za-z0-9][A-Za-z0-9._-]*)*$/;

/** Makes the names in a folder durable. */
async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync().finally(() => handle.close());
}

/** Makes a folder and its parents, each durable by name. Node's recursive mkdir never returns when
 *  a parent exists and accepts no entries, as under /proc. */
async function makeFolder(path: string, mayLackParents = true): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (!mayLackParents || code !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    return makeFolder(path, false);
  }
  await syncFolder(dirname(path));
}

export function folderStore(folder: string, lock: LockFolder): ObjectStore {
  const root = resolve(folder);
  const pathOf = (name: string): string => {
    if (NAME.test(name)) return join(root, name);
    throw objectError('store_refused', `${JSON.stringify(name)} is no name of an object`);
  };
  const guarded = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (thrown) {
      const { code, message } = thrown as NodeJS.ErrnoException;
      if (code === undefined || !/^E[A-Z]+$/.test(code)) throw thrown;
      throw objectError('store_unavailable', `${root}: ${message}`, {
        next: 'check the folder, its owner and the free space',
        cause: thrown,
      });
    }
  };
  const get = (name: string): Promise<StoredObject | undefined> =>
    guarded(async () => {
      try {
        const bytes = new Uint8Array(await readFile(pathOf(name)));
        return { bytes, tag: tagOf(bytes) };
      } catch (thrown) {
        if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw thrown;
      }
    });
  const put = (name: string, bytes: Uint8Array): Promise<void> =>
    guarded(async () => {
      const path = pathOf(name);
      await makeFolder(dirname(path));
      // Two processes may write one name.
      const unfinished = `${path}.${process.pid}${UNFINISHED}`;
      const file = await open(unfinished, 'w');
      try {
        for (let at = 0; at < bytes.length; ) at += (await file.write(bytes, at)).bytesWritten;
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(unfinished, path);
      await syncFolder(dirname(path));
    });
  return {
    where: root,
    get,
    put,
    replace: async (name, bytes, tag) => {
      await guarded(() => makeFolder(root));
      const held = await lock(root);
      try {
        if ((await get(name))?.tag !== tag) return undefined;
        await put(name, bytes);
        return tagOf(bytes);
      } finally {
        held.release();
      }
    },
    list: (prefix) =>
      guarded(async () => {
        const entries = await readdir(root, { recursive: true, withFileTypes: true }).catch(
          (thrown: NodeJS.ErrnoException) => {
            if (thrown.code === 'ENOENT') return [];
            throw thrown;
          },
        );
        return entries
          .filter((entry) => entry.isFile() && !entry.name.endsWith(UNFINISHED))
          .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
          .filter((name) => name.startsWith(prefix) && name !== 'lock');
      }),
    remove: (name) => guarded(() => rm(pathOf(name), { force: true })),
  };
}
