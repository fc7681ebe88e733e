/** Disk driver over node:fs: one folder on this machine. */
import fs, { constants } from 'node:fs';
import { access, type FileHandle, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../../core/errors.ts';
import type { AppendFile, Disk, RandomFile } from './port.ts';

/** Most bytes of a write, or of a sync, that may run on the calling thread. */
const WRITE_SYNC_BYTES_MAX = 64 << 10;
/** Longest sync that runs on the calling thread: a change to another thread and back costs as much.
 */
const SYNC_IN_PLACE_MS_MAX = 0.5;
/** Time after a longer sync during which syncs run on another thread. */
const SYNC_ELSEWHERE_MS = 1_000;
/** Suffix of a file until its rename. Such a file that a crash leaves behind is never read. */
const UNFINISHED = '.tmp';

const fdatasync = promisify(fs.fdatasync);

const codeOf = (thrown: unknown): string | undefined => (thrown as NodeJS.ErrnoException).code;

function notWritable(where: string, thrown: unknown): Error {
  return coreError('not_writable', `cannot write ${where}: ${(thrown as Error).message}`, {
    next: 'check the folder, its owner and the free space',
    cause: thrown,
  });
}

class NodeAppendFile implements AppendFile {
  size = 0;
  private readonly path: string;
  private readonly file: FileHandle;

  constructor(path: string, file: FileHandle) {
    this.path = path;
    this.file = file;
  }

  async write(chunks: readonly Uint8Array[]): Promise<void> {
    try {
      for (const chunk of chunks) {
        for (let at = 0; at < chunk.length; ) at += (await this.file.write(chunk, at)).bytesWritten;
        this.size += chunk.length;
      }
    } catch (thrown) {
      throw notWritable(this.path, thrown);
    }
  }

  async sync(): Promise<void> {
    try {
      await this.file.datasync();
    } catch (thrown) {
      throw notWritable(this.path, thrown);
    }
  }

  close(): Promise<void> {
    return this.file.close();
  }
}

class NodeRandomFile implements RandomFile {
  size: number;
  private readonly file: FileHandle;
  /** Bytes written since the last sync. */
  private unsynced = 0;
  /** Monotonic time until which the disk counts as slow. */
  private slowUntilMs = 0;

  constructor(file: FileHandle, size: number) {
    this.file = file;
    this.size = size;
  }

  async read(into: Uint8Array, at: number): Promise<number> {
    let filled = 0;
    while (filled < into.length) {
      const { bytesRead } = await this.file.read(into, filled, into.length - filled, at + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return filled;
  }

  async write(bytes: Uint8Array, at: number): Promise<void> {
    const inPlace = bytes.length <= WRITE_SYNC_BYTES_MAX;
    for (let written = 0; written < bytes.length; ) {
      const left = bytes.length - written;
      written += inPlace
        ? fs.writeSync(this.file.fd, bytes, written, left, at + written)
        : (await this.file.write(bytes, written, left, at + written)).bytesWritten;
      this.size = Math.max(this.size, at + written);
    }
    this.unsynced += bytes.length;
  }

  async sync(options?: { readonly offThread: boolean }): Promise<void> {
    const started = performance.now();
    const isLong = options?.offThread === true || this.unsynced > WRITE_SYNC_BYTES_MAX;
    this.unsynced = 0;
    if (isLong || started < this.slowUntilMs) return fdatasync(this.file.fd);
    fs.fdatasyncSync(this.file.fd);
    const ended = performance.now();
    if (ended - started > SYNC_IN_PLACE_MS_MAX) this.slowUntilMs = ended + SYNC_ELSEWHERE_MS;
  }

  async truncate(bytes: number): Promise<void> {
    await this.file.truncate(bytes);
    this.size = bytes;
  }

  close(): Promise<void> {
    return this.file.close();
  }
}

class NodeDisk implements Disk {
  readonly where: string;

  constructor(where: string) {
    this.where = where;
  }

  async list(): Promise<readonly string[]> {
    const entries = await readdir(this.where, { withFileTypes: true });
    return entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
  }

  async read(name: string): Promise<Uint8Array<ArrayBuffer> | undefined> {
    try {
      const bytes = await readFile(join(this.where, name));
      return new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, bytes.byteLength);
    } catch (thrown) {
      if (codeOf(thrown) === 'ENOENT') return undefined;
      throw thrown;
    }
  }

  async write(name: string, chunks: readonly Uint8Array[]): Promise<void> {
    const path = join(this.where, name);
    try {
      const file = await open(path + UNFINISHED, 'w');
      try {
        for (const chunk of chunks) {
          for (let at = 0; at < chunk.length; ) at += (await file.write(chunk, at)).bytesWritten;
        }
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(path + UNFINISHED, path);
      await this.syncFolder();
    } catch (thrown) {
      throw notWritable(path, thrown);
    }
  }

  async append(name: string): Promise<AppendFile> {
    const path = join(this.where, name);
    try {
      const file = await open(path, 'ax');
      try {
        await this.syncFolder();
      } catch (thrown) {
        await file.close();
        throw thrown;
      }
      return new NodeAppendFile(path, file);
    } catch (thrown) {
      throw notWritable(path, thrown);
    }
  }

  async edit(name: string): Promise<RandomFile> {
    const path = join(this.where, name);
    try {
      const file = await open(path, constants.O_RDWR | constants.O_CREAT, 0o644);
      try {
        await this.syncFolder();
        return new NodeRandomFile(file, (await file.stat()).size);
      } catch (thrown) {
        await file.close();
        throw thrown;
      }
    } catch (thrown) {
      throw notWritable(path, thrown);
    }
  }

  async readPiece(name: string, from: number, bytesMax: number): Promise<Uint8Array<ArrayBuffer>> {
    let file: FileHandle;
    try {
      file = await open(join(this.where, name), 'r');
    } catch (thrown) {
      if (codeOf(thrown) === 'ENOENT') return new Uint8Array(0);
      throw thrown;
    }
    try {
      const bytes = new Uint8Array(Math.min(bytesMax, Math.max(0, (await file.stat()).size - from)));
      let filled = 0;
      while (filled < bytes.length) {
        const { bytesRead } = await file.read(bytes, filled, bytes.length - filled, from + filled);
        if (bytesRead === 0) break;
        filled += bytesRead;
      }
      return bytes.subarray(0, filled);
    } finally {
      await file.close();
    }
  }

  async truncate(name: string, bytes: number): Promise<void> {
    const path = join(this.where, name);
    try {
      const file = await open(path, 'r+');
      try {
        await file.truncate(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
    } catch (thrown) {
      throw notWritable(path, thrown);
    }
  }

  async rename(from: string, to: string): Promise<void> {
    try {
      await rename(join(this.where, from), join(this.where, to));
      await this.syncFolder();
    } catch (thrown) {
      throw notWritable(join(this.where, to), thrown);
    }
  }

  async remove(name: string): Promise<void> {
    await rm(join(this.where, name), { force: true });
  }

  private syncFolder(): Promise<void> {
    return syncFolder(this.where);
  }
}

/** Makes the names in a folder durable. */
async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** Makes a folder and its parents, each durable by name: a crash must not lose a folder that holds
 *  acknowledged data. Node's recursive mkdir never returns when a parent exists and accepts no
 *  entries, as under /proc. */
async function makeFolder(path: string, mayLackParents = true): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    if (codeOf(thrown) === 'EEXIST' && (await stat(path)).isDirectory()) {
      // The process that made it may not have synced its name yet, or have ended before. Some
      // parents cannot be opened or synced.
      await syncFolder(dirname(path)).catch(() => {});
      return;
    }
    if (!mayLackParents || codeOf(thrown) !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    return makeFolder(path, false);
  }
  await syncFolder(dirname(path));
}

/** Opens a folder and makes it when it is missing. @throws not_writable */
export async function openDisk(where: string): Promise<Disk> {
  try {
    await makeFolder(resolve(where));
  } catch (thrown) {
    throw notWritable(where, thrown);
  }
  return existingDisk(where);
}

/** Opens a folder whose owner may remove it, so it is never made here. @throws not_writable, also
 *  when it is missing */
export async function existingDisk(where: string): Promise<Disk> {
  try {
    if (!(await stat(where)).isDirectory()) throw new Error('it is not a folder');
    await access(where, constants.W_OK);
  } catch (thrown) {
    throw notWritable(where, thrown);
  }
  return new NodeDisk(resolve(where));
}
