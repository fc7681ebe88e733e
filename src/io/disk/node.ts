/** A folder on this machine. The lock is a file that names its process; one left by a dead process is taken over. */
import { constants } from 'node:fs';
import {
  access,
  type FileHandle,
  link,
  mkdir,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  unlink,
  writeFile,
} from 'node:fs/promises';
import { hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { coreError } from '../../core/errors.ts';
import type { AppendFile, Disk } from './port.ts';

const LOCK = 'lock';
/** Written under this ending and renamed; what a crash leaves behind is never read. */
const UNFINISHED = '.tmp';

const codeOf = (thrown: unknown): string | undefined => (thrown as NodeJS.ErrnoException).code;

function notWritable(where: string, thrown: unknown): Error {
  return coreError('not_writable', `cannot write ${where}: ${(thrown as Error).message}`, {
    next: 'check the folder, its owner and the free space',
    cause: thrown,
  });
}

/** When the process started, in clock ticks since boot; tells a process from a later one with the same number. */
async function startOf(pid: number): Promise<string> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
  } catch {
    return '';
  }
}

async function isAlive(holder: {
  readonly pid: number;
  readonly start: string;
  readonly host: string;
}): Promise<boolean> {
  if (holder.host !== hostname()) return true;
  try {
    process.kill(holder.pid, 0);
  } catch (thrown) {
    return codeOf(thrown) === 'EPERM';
  }
  return holder.start === '' || (await startOf(holder.pid)) === holder.start;
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

  async lock(): Promise<{ readonly release?: () => Promise<void>; readonly holder: string }> {
    const path = join(this.where, LOCK);
    const own = JSON.stringify({ pid: process.pid, start: await startOf(process.pid), host: hostname() });
    const draft = join(this.where, `${LOCK}.${process.pid}${UNFINISHED}`);
    try {
      await writeFile(draft, own);
      try {
        for (let attempt = 0; attempt < 3; attempt++) {
          try {
            // A link fails when the name exists, so the file is there whole or not at all.
            await link(draft, path);
            return { release: () => unlink(path).catch(() => {}), holder: own };
          } catch (thrown) {
            if (codeOf(thrown) !== 'EEXIST') throw thrown;
          }
          const text = await readFile(path, 'utf8').catch(() => '');
          let holder = { pid: 0, start: '', host: hostname() };
          try {
            holder = { ...holder, ...(JSON.parse(text) as Partial<typeof holder>) };
          } catch {
            // A lock that cannot be read names no living process.
          }
          if (holder.pid > 0 && (await isAlive(holder)))
            return { holder: `process ${holder.pid} on ${holder.host}` };
          // Moved aside first: only one of several takers gets it, and only if it still is the dead one's.
          const aside = `${draft}.old`;
          await rename(path, aside).catch(() => {});
          const moved = await readFile(aside, 'utf8').catch(() => '');
          if (moved !== '' && moved !== text) await link(aside, path).catch(() => {});
          await rm(aside, { force: true });
        }
        return { holder: 'another process that is starting' };
      } finally {
        await rm(draft, { force: true });
      }
    } catch (thrown) {
      throw notWritable(path, thrown);
    }
  }

  private async syncFolder(): Promise<void> {
    const folder = await open(this.where, 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }
}

/** Node's own recursive mkdir never returns where a parent exists and takes no entries, as under /proc. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    if (codeOf(thrown) === 'EEXIST') return;
    if (codeOf(thrown) !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    await mkdir(path);
  }
}

/** Makes the folder where it is missing. @throws not_writable */
export async function openDisk(where: string): Promise<Disk> {
  try {
    await makeFolder(resolve(where));
  } catch (thrown) {
    throw notWritable(where, thrown);
  }
  return existingDisk(where);
}

/** The folder of somebody who may remove it: it is never made. @throws not_writable, also where it is missing */
export async function existingDisk(where: string): Promise<Disk> {
  try {
    if (!(await stat(where)).isDirectory()) throw new Error('it is not a folder');
    await access(where, constants.W_OK);
  } catch (thrown) {
    throw notWritable(where, thrown);
  }
  return new NodeDisk(resolve(where));
}
