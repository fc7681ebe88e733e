/** The log as one file, `registry.log`: a magic word, then a frame for each append.
 *
 *  Invariants: (1) an append is on disk (fdatasync) before it settles; (2) a last frame that was not written to its end
 *  is removed at the next start and reported; (3) a frame that was whole once and is damaged, in the middle or at the
 *  end, is never cut off: the start is refused, because it was acknowledged; (4) a failed append leaves the file as it
 *  was, or the log refuses to go on; (5) the file is at least as long as a frame, durably, before that frame is
 *  written, so a file that ends inside a frame was cut by somebody else, and the start is refused.
 *
 *  What cannot be told: a file that was cut exactly between two frames, or emptied, looks like an earlier one; one whose
 *  last frame lost a whole sector looks like one whose last write did not finish.
 */
import fs, { constants } from 'node:fs';
import { type FileHandle, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { coreError } from '../../core/errors.ts';
import { registryError } from '../errors.ts';
import {
  encodeFrame,
  FRAME_HEADER_BYTES,
  judgeTail,
  payloadAt,
  payloadBytesAt,
  recordsOf,
} from './frames.ts';
import { lockDirectory } from './lock.ts';
import type { LogRecord, LogRole, LogSink, OpenReport, RegistryLog } from './log.ts';

const MAGIC = Buffer.from('MRREGLG2', 'latin1');
/** The file grows by this much room at once: a sync that need not change the file's length is faster. */
const ROOM_BYTES = 256 << 10;
/** Read at once at the start. */
const READ_BYTES = 4 << 20;
/** A longer write is left to another thread. */
const WRITE_SYNC_BYTES_MAX = 64 << 10;
/** A sync that takes no longer than this is made in place: handing it to another thread and back takes as long. */
const SYNC_IN_PLACE_MS_MAX = 0.5;
/** After a longer one, nothing waits for the disk in place for so long. */
const SYNC_ELSEWHERE_MS = 1_000;
/** Records and bytes of a frame when a whole log is written. */
const FILL_BYTES = 4 << 20;

export const REGISTRY_LOG_FILE = 'registry.log';

const fdatasync = promisify(fs.fdatasync);
const write = promisify(fs.write);

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

async function writeWhole(file: FileHandle, bytes: Buffer, at: number): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const chunk = bytes.length - written;
    const now =
      chunk <= WRITE_SYNC_BYTES_MAX
        ? fs.writeSync(file.fd, bytes, written, chunk, at + written)
        : (await write(file.fd, bytes, written, chunk, at + written)).bytesWritten;
    written += now;
  }
}

export class FileLog implements RegistryLog {
  readonly name: string;
  private readonly dir: string;
  private readonly path: string;
  private file: FileHandle | undefined;
  private release: (() => void) | undefined;
  /** End of the last frame, and of the file with its room. */
  private size = 0;
  private allocated = 0;
  private broken: unknown;
  /** Until then the disk is taken for slow. */
  private slowUntilMs = 0;

  constructor(dir: string) {
    this.dir = dir;
    this.path = join(dir, REGISTRY_LOG_FILE);
    this.name = `file:${dir}`;
  }

  async open(sink: LogSink): Promise<OpenReport> {
    try {
      await makeFolder(resolve(this.dir));
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.release = lockDirectory(this.dir);
    try {
      return await this.read(sink);
    } catch (thrown) {
      await this.giveBack();
      throw thrown;
    }
  }

  private notWritable(cause: unknown): Error {
    const why = (cause as NodeJS.ErrnoException).code ?? String(cause);
    const said: Readonly<Record<string, string>> = {
      EEXIST: `${this.dir} is a file, and the registry store is a folder`,
      ENOTDIR: `${this.dir} cannot be a registry store: one of the folders above it is a file`,
      ENOENT: `the folder ${this.dir} of the registry store cannot be created there: ${why}`,
    };
    return coreError('not_writable', said[why] ?? `cannot write to the registry store ${this.dir}: ${why}`, {
      next:
        said[why] === undefined
          ? 'give -store=file:DIR with a folder that this user may write'
          : 'give -store=file:DIR with another folder',
      cause,
    });
  }

  private async read(sink: LogSink): Promise<OpenReport> {
    let file: FileHandle;
    try {
      file = await open(this.path, constants.O_RDWR | constants.O_CREAT, 0o644);
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.file = file;
    this.allocated = (await file.stat()).size;
    const head = Buffer.alloc(Math.min(MAGIC.length, this.allocated));
    await file.read(head, 0, head.length, 0);
    if (this.allocated <= MAGIC.length && head.every((byte) => byte === 0)) {
      // An empty folder, or one whose first write never reached the disk.
      await this.start(file);
      return { records: 0, tornBytes: 0 };
    }
    if (this.allocated < MAGIC.length && MAGIC.subarray(0, head.length).equals(head)) throw this.cutOff();
    if (!head.equals(MAGIC)) {
      throw registryError('store_corrupt', `${this.path} is not a registry log of this release`, {
        next: 'give another -store, or move the file away',
      });
    }
    return this.replay(file, sink);
  }

  private async start(file: FileHandle): Promise<void> {
    try {
      await file.truncate(0);
      await writeWhole(file, MAGIC, 0);
      await file.datasync();
      await this.syncDirectory();
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.size = MAGIC.length;
    this.allocated = MAGIC.length;
  }

  private async replay(file: FileHandle, sink: LogSink): Promise<OpenReport> {
    let buffer = Buffer.allocUnsafe(Math.min(READ_BYTES, this.allocated));
    let held = 0;
    let records = 0;
    let readAt = MAGIC.length;
    this.size = MAGIC.length;
    for (;;) {
      const { bytesRead } = await file.read(buffer, held, buffer.length - held, readAt);
      readAt += bytesRead;
      held += bytesRead;
      const bytes = buffer.subarray(0, held);
      let at = 0;
      for (let payload = payloadAt(bytes, at); payload !== undefined; payload = payloadAt(bytes, at)) {
        const batch = recordsOf(payload);
        sink.apply(batch);
        records += batch.length;
        at += FRAME_HEADER_BYTES + payload.length;
      }
      this.size += at;
      buffer.copyWithin(0, at, held);
      held -= at;
      if (bytesRead === 0) break;
      const needed = FRAME_HEADER_BYTES + (payloadBytesAt(buffer.subarray(0, held), 0) ?? 0);
      // A sound header whose frame goes on behind what is read: a frame larger than the buffer gets a larger one.
      if (held < needed && needed > buffer.length && this.size + needed <= this.allocated) {
        const larger = Buffer.allocUnsafe(needed);
        larger.set(buffer.subarray(0, held));
        buffer = larger;
      } else if (held === buffer.length || (held >= needed && held >= FRAME_HEADER_BYTES)) break;
    }
    return { records, tornBytes: await this.judge(file) };
  }

  /** Looks at what follows the last sound frame. @returns the bytes of an unfinished write, which are cut off */
  private async judge(file: FileHandle): Promise<number> {
    const tail = Buffer.alloc(this.allocated - this.size);
    await file.read(tail, 0, tail.length, this.size);
    const verdict = judgeTail(tail, this.size);
    if (verdict === 'clean') return 0;
    if (verdict === 'cut') throw this.cutOff();
    if (verdict === 'damaged') {
      throw registryError(
        'store_corrupt',
        `${this.path} is damaged at byte ${this.size}: what stood there was acknowledged once`,
        { next: 'restore the file from a backup; nothing was changed' },
      );
    }
    await file.truncate(this.size);
    await file.datasync();
    this.allocated = this.size;
    return tail.findLastIndex((byte) => byte !== 0) + 1;
  }

  private cutOff(): Error {
    return registryError(
      'store_corrupt',
      `${this.path} was cut off at byte ${this.allocated}, inside the write at byte ${this.size}: what it lost may have been acknowledged`,
      { next: 'restore the file from a backup; nothing was changed' },
    );
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

  async append(records: readonly LogRecord[]): Promise<void> {
    const file = this.file;
    if (file === undefined || this.broken !== undefined) {
      throw registryError('store_failed', 'the registry store takes no more writes after a failed one', {
        next: 'restart the registry; reads go on until then',
        ...(this.broken === undefined ? {} : { cause: this.broken }),
      });
    }
    const frame = encodeFrame(records);
    const end = this.size + frame.length;
    try {
      await this.put(file, frame, end);
      await this.sync(file);
    } catch (cause) {
      await this.takeBack(file, cause);
      const why = (cause as NodeJS.ErrnoException).code ?? 'the disk refused it';
      // Clients are told this; where the file lies is no business of theirs.
      throw registryError('store_failed', `cannot write to the registry store: ${why}`, {
        next: 'free space or repair the disk; nothing of this write was kept',
        cause,
      });
    }
    this.size = end;
  }

  private sync(file: FileHandle): Promise<void> | undefined {
    const started = performance.now();
    if (started < this.slowUntilMs) return fdatasync(file.fd);
    fs.fdatasyncSync(file.fd);
    const ended = performance.now();
    if (ended - started > SYNC_IN_PLACE_MS_MAX) this.slowUntilMs = ended + SYNC_ELSEWHERE_MS;
    return undefined;
  }

  private async put(file: FileHandle, frame: Buffer, end: number): Promise<void> {
    if (end > this.allocated) await this.makeRoom(file, end);
    await writeWhole(file, frame, this.size);
  }

  /** On disk before the frame is: so the end of the file tells a write that never finished from a file that was cut. */
  private async makeRoom(file: FileHandle, end: number): Promise<void> {
    const from = this.allocated;
    try {
      await writeWhole(file, Buffer.alloc(end + ROOM_BYTES - from), from);
      this.allocated = end + ROOM_BYTES;
    } catch {
      // No room for what comes later is no reason to refuse what comes now.
      await file.truncate(from);
      await writeWhole(file, Buffer.alloc(end - from), from);
      this.allocated = end;
    }
    await fdatasync(file.fd);
  }

  /** After a failed sync nobody knows what is on disk, so only a file that can be cut back is written again. */
  private async takeBack(file: FileHandle, cause: unknown): Promise<void> {
    const failedSync = (cause as NodeJS.ErrnoException).syscall === 'fdatasync';
    try {
      await file.truncate(this.size);
      await fdatasync(file.fd);
      this.allocated = this.size;
      if (failedSync) this.broken = cause;
    } catch {
      this.broken = cause;
    }
  }

  /** Writes a whole log into an empty one: all of it or none. @throws store_failed */
  async fill(records: readonly LogRecord[]): Promise<void> {
    const path = `${this.path}.filling`;
    try {
      const file = await open(path, constants.O_RDWR | constants.O_CREAT | constants.O_TRUNC, 0o644);
      try {
        await writeWhole(file, MAGIC, 0);
        let at = MAGIC.length;
        for (const batch of batches(records)) {
          const frame = encodeFrame(batch);
          await writeWhole(file, frame, at);
          at += frame.length;
        }
        await file.sync();
        await rename(path, this.path);
        await this.syncDirectory();
        await this.file?.close();
        this.file = file;
        this.size = at;
        this.allocated = at;
      } catch (thrown) {
        await file.close();
        throw thrown;
      }
    } catch (cause) {
      await rm(path, { force: true }).catch(() => {});
      throw registryError('store_failed', `cannot write ${this.path}: ${(cause as Error).message}`, {
        next: 'free space or repair the disk; the store is as it was',
        cause,
      });
    }
  }

  async catchUp(): Promise<void> {}

  role(): LogRole {
    return { leader: true };
  }

  async close(): Promise<void> {
    // Without its room the file is as long as what it says.
    if (this.file !== undefined && this.allocated > this.size && this.broken === undefined)
      await this.file.truncate(this.size).catch(() => {});
    await this.giveBack();
  }

  private async giveBack(): Promise<void> {
    const file = this.file;
    this.file = undefined;
    await file?.close();
    this.release?.();
    this.release = undefined;
  }
}

function* batches(records: readonly LogRecord[]): Iterable<readonly LogRecord[]> {
  let batch: LogRecord[] = [];
  let bytes = 0;
  for (const record of records) {
    batch.push(record);
    bytes += record.key.length + (record.value?.length ?? 0);
    if (bytes < FILL_BYTES) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  if (batch.length > 0) yield batch;
}
