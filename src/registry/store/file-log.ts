/** The event log as one file, `registry.log`.
 *
 *    "MRREGLG1" | record | record | …
 *    record = payload length u32le | CRC-32 of the payload u32le | CRC-32 of those 8 bytes u32le | payload (JSON)
 *
 *  Invariants: (1) an append is on disk (fdatasync) before it settles; (2) a last record that was cut short is removed
 *  at the next start and reported; (3) a damaged record with a sound one behind it is never cut off: the start is
 *  refused, because what follows was acknowledged; (4) a failed append leaves the file as it was, or the log refuses
 *  to go on.
 */
import { constants } from 'node:fs';
import { type FileHandle, mkdir, open, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { coreError } from '../../core/errors.ts';
import { registryError } from '../errors.ts';
import { decodeEvent, encodeEvent, type RegistryEvent } from './event.ts';
import { lockDirectory } from './lock.ts';
import type { OpenReport, RegistryLog } from './log.ts';

const MAGIC = Buffer.from('MRREGLG1', 'latin1');
const HEADER_BYTES = 12;
/** A record is one schema and its names; anything longer is damage. */
const PAYLOAD_BYTES_MAX = 4 << 20;

export const REGISTRY_LOG_FILE = 'registry.log';

/** Node's own recursive mkdir never returns where a parent exists and takes no entries, as under /proc. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path);
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'EEXIST' && (await stat(path)).isDirectory()) return;
    if (code !== 'ENOENT' || dirname(path) === path) throw thrown;
    await makeFolder(dirname(path));
    await mkdir(path);
  }
}

/** The payload that starts at `at`, or undefined when the bytes there are no whole record. */
function recordAt(bytes: Buffer, at: number): Buffer | undefined {
  if (at + HEADER_BYTES > bytes.length) return undefined;
  const length = bytes.readUInt32LE(at);
  if (length === 0 || length > PAYLOAD_BYTES_MAX || at + HEADER_BYTES + length > bytes.length)
    return undefined;
  if (crc32(bytes.subarray(at, at + 8)) !== bytes.readUInt32LE(at + 8)) return undefined;
  const payload = bytes.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length);
  return crc32(payload) === bytes.readUInt32LE(at + 4) ? payload : undefined;
}

export function encodeRecord(event: RegistryEvent): Buffer {
  const payload = encodeEvent(event);
  const record = Buffer.alloc(HEADER_BYTES + payload.length);
  record.writeUInt32LE(payload.length, 0);
  record.writeUInt32LE(crc32(payload), 4);
  record.writeUInt32LE(crc32(record.subarray(0, 8)), 8);
  record.set(payload, HEADER_BYTES);
  return record;
}

export class FileLog implements RegistryLog {
  readonly name: string;
  private readonly dir: string;
  private readonly path: string;
  private file: FileHandle | undefined;
  private release: (() => void) | undefined;
  private size = 0;
  private broken: unknown;

  constructor(dir: string) {
    this.dir = dir;
    this.path = join(dir, REGISTRY_LOG_FILE);
    this.name = `file:${dir}`;
  }

  async open(): Promise<OpenReport> {
    try {
      await makeFolder(resolve(this.dir));
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.release = lockDirectory(this.dir);
    try {
      return await this.read();
    } catch (thrown) {
      await this.close();
      throw thrown;
    }
  }

  private notWritable(cause: unknown): Error {
    const why = (cause as NodeJS.ErrnoException).code ?? String(cause);
    return coreError('not_writable', `cannot write to the registry store ${this.dir}: ${why}`, {
      next: 'give -store=file:DIR with a folder that this user may write',
      cause,
    });
  }

  private async read(): Promise<OpenReport> {
    let file: FileHandle;
    try {
      file = await open(this.path, constants.O_RDWR | constants.O_CREAT, 0o644);
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.file = file;
    const bytes = await file.readFile();
    if (bytes.length < MAGIC.length && MAGIC.subarray(0, bytes.length).equals(bytes)) {
      // A new file, or one whose first write was cut short.
      await file.truncate(0);
      await file.write(MAGIC, 0, MAGIC.length, 0);
      await file.datasync();
      await this.syncDirectory();
      this.size = MAGIC.length;
      return { events: [], tornBytes: bytes.length };
    }
    if (!bytes.subarray(0, MAGIC.length).equals(MAGIC)) {
      throw registryError('store_corrupt', `${this.path} is not a registry log`, {
        next: 'give another -store, or move the file away',
      });
    }
    const events: RegistryEvent[] = [];
    let at = MAGIC.length;
    for (let payload = recordAt(bytes, at); payload !== undefined; payload = recordAt(bytes, at)) {
      events.push(decodeEvent(payload));
      at += HEADER_BYTES + payload.length;
    }
    const tornBytes = bytes.length - at;
    if (tornBytes > 0) {
      for (let later = at + 1; later + HEADER_BYTES < bytes.length; later++) {
        if (recordAt(bytes, later) === undefined) continue;
        throw registryError(
          'store_corrupt',
          `${this.path} is damaged at byte ${at}, and sound records follow at byte ${later}`,
          {
            next: 'restore the file from a backup; nothing was changed',
          },
        );
      }
      await file.truncate(at);
      await file.datasync();
    }
    this.size = at;
    return { events, tornBytes };
  }

  /** A new file's name must survive a crash too. */
  private async syncDirectory(): Promise<void> {
    const dir = await open(this.dir, 'r');
    try {
      await dir.sync();
    } finally {
      await dir.close();
    }
  }

  async append(event: RegistryEvent): Promise<void> {
    const file = this.file;
    if (file === undefined || this.broken !== undefined) {
      throw registryError('store_failed', 'the registry store takes no more writes after a failed one', {
        next: 'restart the registry; reads go on until then',
        ...(this.broken === undefined ? {} : { cause: this.broken }),
      });
    }
    const record = encodeRecord(event);
    try {
      let written = 0;
      while (written < record.length) {
        const result = await file.write(record, written, record.length - written, this.size + written);
        written += result.bytesWritten;
      }
      await file.datasync();
      this.size += record.length;
    } catch (cause) {
      // After a failed fsync nobody knows what is on disk, so the process must not go on as if it did.
      this.broken = cause;
      await file.truncate(this.size).catch(() => {});
      throw registryError('store_failed', `cannot write to ${this.path}: ${(cause as Error).message}`, {
        next: 'free space or repair the disk, then restart the registry',
        cause,
      });
    }
  }

  async close(): Promise<void> {
    const file = this.file;
    this.file = undefined;
    await file?.close();
    this.release?.();
    this.release = undefined;
  }
}
