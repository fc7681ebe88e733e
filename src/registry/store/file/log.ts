/** Log in one file, `registry.log`, of frames (frames.ts): one frame for each append.
 *
 *  Invariants:
 *  1. An append is on disk (fdatasync) before it settles.
 *  2. A last frame that was not written completely is removed at the next start, and reported.
 *  3. A frame that was complete once is never cut off. When it is damaged, removed, repeated or
 *     moved, the start is refused, because the frame was acknowledged.
 *  4. A failed append leaves the file unchanged, or the log refuses further writes.
 *  5. The file durably has the length of a frame before that frame is written. So a file that ends
 *     inside a frame was cut by another program, and the start is refused.
 *  6. A compacted file replaces the file by one rename, after it durably holds all acknowledged
 *     records.
 *
 *  Limits: a file that was cut exactly between two frames, or emptied, looks like an earlier file.
 *  A file whose last frame lost a whole sector looks like one whose last write did not finish.
 */
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { coreError, findMillraceError } from '../../../core/errors.ts';
import type { Logger } from '../../../core/log.ts';
import type { Disk, RandomFile } from '../../../io/disk/port.ts';
import type { FolderLock, LockDriver } from '../../../io/lock/port.ts';
import { registryError } from '../../errors.ts';
import type { LogRecord, LogRole, LogSink, OpenReport, RegistryLog } from '../log.ts';
import { Survivors } from '../state/survivors.ts';
import { StoreFrameReader } from './frame-reader.ts';
import {
  CHAIN_START,
  type ChainPlace,
  encodeFrame,
  FRAMES,
  type FrameFormat,
  judgeTail,
  OLD_FRAMES,
  recordBytes,
  recordsOf,
} from './frames.ts';
import { LogWriter, UNFINISHED_LOG_FILE } from './log-writer.ts';

/** Room by which the file grows: a sync is faster where it need not change the file's length. */
const ROOM_BYTES = 256 << 10;
/** Bytes of one read at the start. */
const READ_BYTES = 4 << 20;
/** Bytes after which a frame ends when a whole log is written. */
const FILL_BYTES = 1 << 20;
/** Bytes of one read of a compaction, a few milliseconds of work; then other work runs. */
const COMPACT_READ_BYTES = 256 << 10;
/** Least length of a file that is compacted. */
const COMPACT_BYTES_MIN = 1 << 20;
/** Growth of the file, as a factor, between a failed compaction and the next one. */
const RETRY_GROWTH = 1.25;
/** Bytes left to copy below which appends wait, and maximum rounds before that. Earlier rounds copy
 *  beside new appends.
 */
const LAST_COPY_BYTES = 256 << 10;
const COPY_ROUNDS_MAX = 8;

export const REGISTRY_LOG_FILE = 'registry.log';

export interface FileLogParts {
  readonly dir: string;
  /** Opens a folder, and creates it where it is missing. @throws not_writable */
  readonly openDisk: (dir: string) => Promise<Disk>;
  readonly locks: LockDriver;
  readonly log: Logger;
  /** Least length of a file that is compacted. */
  readonly compactBytesMin?: number;
}

const keyText = ({ key }: LogRecord): string =>
  Buffer.from(key.buffer, key.byteOffset, key.length).toString('latin1');

/** Error code of the system, or the error's message. */
function codeOf(thrown: unknown): string {
  for (let at: unknown = thrown; at instanceof Error; at = at.cause) {
    const { syscall, code } = at as NodeJS.ErrnoException;
    if (syscall !== undefined && code !== undefined) return code;
  }
  return thrown instanceof Error ? thrown.message : String(thrown);
}

export class FileLog implements RegistryLog {
  readonly name: string;
  private readonly parts: FileLogParts;
  private disk: Disk | undefined;
  private lock: FolderLock | undefined;
  private file: RandomFile | undefined;
  private sink: LogSink | undefined;
  /** Byte after the last frame, and its position in the chain. */
  private end = 0;
  private place: ChainPlace = CHAIN_START;
  private broken: unknown;
  /** Bytes of the last record of each key with a value, and their sum; the rest of the file is
   *  garbage.
   */
  private readonly live = new Map<string, number>();
  private liveBytes = 0;
  /** Bytes of garbage that the last compaction could not remove. */
  private fixedBytes = 0;
  private compactFrom: number;
  private compacting: Promise<void> | undefined;
  private closing = false;
  /** Last of the queued changes, which run one at a time: appends, fills and the end of a
   *  compaction.
   */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(parts: FileLogParts) {
    this.parts = parts;
    this.name = `file:${parts.dir}`;
    this.compactFrom = parts.compactBytesMin ?? COMPACT_BYTES_MIN;
  }

  async open(sink: LogSink): Promise<OpenReport> {
    const { dir, locks } = this.parts;
    let disk: Disk;
    try {
      disk = await this.parts.openDisk(dir);
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.disk = disk;
    this.sink = sink;
    const outcome = await locks.tryLock(disk.where);
    if ('holder' in outcome) {
      throw registryError('store_locked', `the registry store ${dir} is in use by ${outcome.holder}`, {
        next: 'stop that process, or give another -store',
      });
    }
    this.lock = outcome.lock;
    try {
      const report = await this.read(disk, sink);
      this.compactIfWorthwhile();
      return report;
    } catch (thrown) {
      await this.giveBack();
      throw thrown;
    }
  }

  private notWritable(cause: unknown): Error {
    const { dir } = this.parts;
    const why = codeOf(cause);
    const said: Readonly<Record<string, string>> = {
      EEXIST: `${dir} is a file, and the registry store is a folder`,
      ENOTDIR: `${dir} cannot be a registry store: one of the folders above it is a file`,
      ENOENT: `the folder ${dir} of the registry store cannot be created there: ${why}`,
    };
    return coreError('not_writable', said[why] ?? `cannot write to the registry store ${dir}: ${why}`, {
      next:
        said[why] === undefined
          ? 'give -store=file:DIR with a folder that this user may write'
          : 'give -store=file:DIR with another folder',
      cause,
    });
  }

  private async read(disk: Disk, sink: LogSink): Promise<OpenReport> {
    let file: RandomFile;
    try {
      await disk.remove(UNFINISHED_LOG_FILE);
      file = await disk.edit(REGISTRY_LOG_FILE);
    } catch (cause) {
      throw this.notWritable(cause);
    }
    this.file = file;
    const { magic } = FRAMES;
    const head = Buffer.alloc(Math.min(magic.length, file.size));
    await file.read(head, 0);
    if (file.size <= magic.length && head.every((byte) => byte === 0)) {
      // An empty folder, or a file whose first write never reached the disk.
      await this.rewrite(async () => {}).catch((cause: unknown) => {
        throw this.notWritable(cause);
      });
      return { records: 0, tornBytes: 0 };
    }
    const format = [FRAMES, OLD_FRAMES].find((one) => one.magic.subarray(0, head.length).equals(head));
    if (format !== undefined && head.length < magic.length) throw this.cutOff(file);
    if (format === undefined) {
      throw registryError('store_corrupt', `${this.path} is not a registry log of this release`, {
        next: 'give another -store, or move the file away',
      });
    }
    const report = await this.replay(file, format, sink);
    if (format === OLD_FRAMES) await this.upgrade(file);
    return report;
  }

  private get path(): string {
    return join(this.parts.dir, REGISTRY_LOG_FILE);
  }

  private async replay(file: RandomFile, format: FrameFormat, sink: LogSink): Promise<OpenReport> {
    const reader = new StoreFrameReader(file, format, Math.min(READ_BYTES, file.size));
    let records = 0;
    for (;;) {
      const payloads = await reader.read(file.size);
      if (payloads.length === 0) break;
      for (const payload of payloads) {
        const batch = recordsOf(payload);
        this.account(batch);
        sink.apply(batch);
        records += batch.length;
      }
    }
    this.end = reader.at;
    this.place = reader.place;
    return { records, tornBytes: await this.judge(file, format) };
  }

  /** Checks the bytes after the last valid frame. @returns the bytes of an unfinished write, which
   *  are cut off
   */
  private async judge(file: RandomFile, format: FrameFormat): Promise<number> {
    const tail = Buffer.alloc(file.size - this.end);
    await file.read(tail, this.end);
    const verdict = judgeTail(tail, this.end, format);
    if (verdict === 'clean') return 0;
    if (verdict === 'cut') throw this.cutOff(file);
    if (verdict === 'damaged') throw this.damaged(tail, format);
    await file.truncate(this.end);
    await file.sync();
    return tail.findLastIndex((byte) => byte !== 0) + 1;
  }

  private damaged(tail: Buffer, format: FrameFormat): Error {
    const isFrame = format.payloadAt(tail, 0) !== undefined;
    const found = isFrame ? format.sequenceAt(tail, 0) : undefined;
    const due = this.place.frames + 1;
    const why =
      found === undefined
        ? 'the records there were acknowledged'
        : found === due
          ? `it has write ${found} after writes that it does not follow`
          : `it has write ${found} in place of write ${due}`;
    return registryError('store_corrupt', `${this.path} is damaged at byte ${this.end}: ${why}`, {
      next: 'restore the file from a backup; nothing was changed',
    });
  }

  private cutOff(file: RandomFile): Error {
    return registryError(
      'store_corrupt',
      `${this.path} was cut off at byte ${file.size}, inside the write at byte ${this.end}: the lost writes may have been acknowledged`,
      { next: 'restore the file from a backup; nothing was changed' },
    );
  }

  /** Rewrites a file of an earlier format in the format of this release. */
  private async upgrade(file: RandomFile): Promise<void> {
    const bytes = this.end;
    try {
      const reader = new StoreFrameReader(file, OLD_FRAMES, Math.min(READ_BYTES, file.size));
      await this.rewrite((writer) => this.copy(reader, writer, bytes));
    } catch (cause) {
      throw coreError(
        'not_writable',
        `cannot rewrite ${this.path} in the format of this release: ${codeOf(cause)}`,
        { next: 'free space or repair the disk; the file is unchanged', cause },
      );
    }
    this.parts.log.info(
      { store: this.name, bytes, bytesNow: this.end },
      'rewrote the registry log in the format of this release',
    );
  }

  append(records: readonly LogRecord[]): Promise<void> {
    return this.inTurn(() => this.appendNow(records));
  }

  private inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.turn.then(work);
    this.turn = done.catch(() => {});
    return done;
  }

  private async appendNow(records: readonly LogRecord[]): Promise<void> {
    const { file } = this;
    if (file === undefined || this.broken !== undefined) {
      throw registryError('store_failed', 'the registry store refuses writes after a failed one', {
        next: 'restart the registry; reads continue until then',
        ...(this.broken === undefined ? {} : { cause: this.broken }),
      });
    }
    const { frame, after } = encodeFrame(records, this.place);
    const end = this.end + frame.length;
    try {
      if (end > file.size) await this.makeRoom(file, end);
      await file.write(frame, this.end);
      await this.sync(file);
    } catch (cause) {
      await this.takeBack(file);
      const why = (cause as NodeJS.ErrnoException).code ?? 'the disk refused it';
      // Clients see this message, so it does not contain the path.
      throw registryError('store_failed', `cannot write to the registry store: ${why}`, {
        next: 'free space or repair the disk; nothing of this write was kept',
        cause,
      });
    }
    this.end = end;
    this.place = after;
    this.account(records);
    this.compactIfWorthwhile();
  }

  /** Extends the file durably before the frame is written. So the end of the file distinguishes a
   *  write that never finished from a file that was cut.
   */
  private async makeRoom(file: RandomFile, end: number): Promise<void> {
    const from = file.size;
    try {
      await file.write(Buffer.alloc(end + ROOM_BYTES - from), from);
    } catch {
      // A disk without room for later frames may still have room for this frame.
      await file.truncate(from);
      await file.write(Buffer.alloc(end - from), from);
    }
    await this.sync(file);
  }

  /** After a failed sync the content of the disk is unknown, so the log refuses further writes. */
  private async sync(file: RandomFile): Promise<void> {
    try {
      // During a compaction a sync also waits for the bytes that the compaction wrote.
      await file.sync({ offThread: this.compacting !== undefined });
    } catch (thrown) {
      this.broken = thrown;
      throw thrown;
    }
  }

  /** Cuts a failed append off. Where that fails too, the log refuses further writes. */
  private async takeBack(file: RandomFile): Promise<void> {
    try {
      await file.truncate(this.end);
      await file.sync();
    } catch (thrown) {
      this.broken ??= thrown;
    }
  }

  /** Writes a whole log into an empty one: all or nothing. @throws store_failed */
  fill(records: readonly LogRecord[]): Promise<void> {
    return this.inTurn(async () => {
      try {
        await this.rewrite(async (writer) => {
          for (const batch of batches(records)) await writer.append(batch);
        });
        this.account(records);
      } catch (cause) {
        throw registryError('store_failed', `cannot write ${this.path}: ${(cause as Error).message}`, {
          next: 'free space or repair the disk; the store is unchanged',
          cause,
        });
      }
    });
  }

  /** Replaces the log by a file that `fill` writes: completely or not at all. */
  private async rewrite(fill: (writer: LogWriter) => Promise<void>): Promise<void> {
    const writer = await LogWriter.create(this.disk as Disk);
    try {
      await fill(writer);
      await this.replaceBy(writer);
    } catch (thrown) {
      await writer.abandon();
      throw thrown;
    }
  }

  /** Makes the writer's file the log. */
  private async replaceBy(writer: LogWriter): Promise<void> {
    await writer.sync();
    try {
      await writer.rename(REGISTRY_LOG_FILE);
    } catch (thrown) {
      // The name may belong to either file now, so an append to one of them could be lost.
      this.broken = thrown;
      throw thrown;
    }
    const old = this.file;
    this.file = writer.file;
    this.end = writer.end;
    this.place = writer.place;
    await old?.close().catch(() => {});
  }

  private account(records: readonly LogRecord[]): void {
    for (const record of records) {
      const key = keyText(record);
      this.liveBytes -= this.live.get(key) ?? 0;
      if (record.value === null) this.live.delete(key);
      else {
        const bytes = recordBytes(record);
        this.live.set(key, bytes);
        this.liveBytes += bytes;
      }
    }
  }

  /** Starts a compaction where garbage is more than half of the file. */
  private compactIfWorthwhile(): void {
    const garbage = this.end - FRAMES.magic.length - this.liveBytes - this.fixedBytes;
    if (garbage <= this.end / 2 || this.end < this.compactFrom) return;
    if (this.sink?.summary === undefined || this.compacting !== undefined || this.closing) return;
    this.compacting = this.compact()
      .catch((thrown: unknown) => {
        this.compactFrom = this.end * RETRY_GROWTH;
        if (this.closing) return;
        const error = findMillraceError(thrown)?.toLine() ?? codeOf(thrown);
        this.parts.log.warn({ store: this.name, error }, 'cannot compact the registry log; it is unchanged');
      })
      .finally(() => {
        this.compacting = undefined;
      });
  }

  /** Lets other work of the process run. @throws closed when the log is closing */
  private readonly pause = async (): Promise<void> => {
    await nextTurn();
    if (this.closing) throw coreError('closed', 'the registry log is closing');
  };

  /** Writes the surviving records into a new file, while appends continue, and replaces the log by
   *  it.
   */
  private async compact(): Promise<void> {
    // After one turn of the event loop the state holds every append that settled, and no other.
    await this.pause();
    const file = this.file as RandomFile;
    const upTo = this.end;
    const summary = this.sink?.summary?.() ?? [];
    this.account(summary);
    const liveBytes = this.liveBytes;
    const kept = await this.survivors(file, upTo, summary);
    const writer = await LogWriter.create(this.disk as Disk);
    try {
      const reader = new StoreFrameReader(file, FRAMES, COMPACT_READ_BYTES);
      await this.copy(reader, writer, upTo, kept);
      if (summary.length > 0) await writer.append(summary);
      const fixedBytes = Math.max(0, writer.end - FRAMES.magic.length - liveBytes);
      await writer.sync();
      for (let round = 0; round < COPY_ROUNDS_MAX && this.end - reader.at > LAST_COPY_BYTES; round++) {
        await this.copy(reader, writer, this.end);
        await writer.sync();
      }
      await this.inTurn(async () => {
        const before = this.end;
        await this.copy(reader, writer, before);
        await this.replaceBy(writer);
        this.fixedBytes = fixedBytes;
        this.compactFrom = this.parts.compactBytesMin ?? COMPACT_BYTES_MIN;
        this.parts.log.info(
          { store: this.name, bytes: before, bytesNow: this.end },
          'compacted the registry log',
        );
      });
    } catch (thrown) {
      await writer.abandon();
      throw thrown;
    }
  }

  private async survivors(
    file: RandomFile,
    upTo: number,
    summary: readonly LogRecord[],
  ): Promise<Uint8Array> {
    const survivors = new Survivors();
    const reader = new StoreFrameReader(file, FRAMES, COMPACT_READ_BYTES);
    while (reader.at < upTo) {
      for (const payload of await this.nextFrames(reader, upTo))
        for (const record of recordsOf(payload)) survivors.add(record);
      await this.pause();
    }
    for (const record of summary) survivors.add(record);
    return survivors.kept(this.pause);
  }

  /** Returns the payloads of the next frames. @throws store_corrupt where the file changed since it
   *  was read or written
   */
  private async nextFrames(reader: StoreFrameReader, upTo: number): Promise<readonly Buffer[]> {
    const payloads = await reader.read(upTo);
    if (payloads.length > 0) return payloads;
    throw registryError('store_corrupt', `${this.path} has changed at byte ${reader.at}`, {
      next: 'restore the file from a backup',
    });
  }

  /** Copies frames up to a byte: all records, or those that `kept` names by their ordinal in the
   *  log.
   */
  private async copy(
    reader: StoreFrameReader,
    writer: LogWriter,
    upTo: number,
    kept?: Uint8Array,
  ): Promise<void> {
    let ordinal = 0;
    while (reader.at < upTo) {
      const payloads = await this.nextFrames(reader, upTo);
      const records = payloads.flatMap((payload) => recordsOf(payload));
      const batch = kept === undefined ? records : records.filter(() => kept[ordinal++] === 1);
      if (batch.length > 0) await writer.append(batch);
      await this.pause();
    }
  }

  async catchUp(): Promise<void> {}

  role(): LogRole {
    return { leader: true };
  }

  async close(): Promise<void> {
    this.closing = true;
    await this.compacting;
    await this.turn;
    // Without its room the file ends with its last frame.
    if (this.file !== undefined && this.file.size > this.end && this.broken === undefined)
      await this.file.truncate(this.end).catch(() => {});
    await this.giveBack();
  }

  private async giveBack(): Promise<void> {
    const { file } = this;
    this.file = undefined;
    await file?.close();
    this.lock?.release();
    this.lock = undefined;
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
