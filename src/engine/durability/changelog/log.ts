/** Changelog: a write-ahead log of every mutation of the window state. A mutation is appended
 *  before any result that depends on it leaves.
 *
 *  Appends do not wait; records become durable in groups. `durable` settles when all records
 *  appended before the call are on disk. Segments are files named by the number of their first
 *  record. Whole segments are removed once no checkpoint replays them. Invariants: (1) record
 *  numbers ascend by one, across segments too; (2) a record is durable only if all earlier records
 *  are; (3) writes do not overlap, so a crash leaves a prefix of the records, and at most a torn
 *  rest that was not durable.
 */
import type { AppendFile, Disk } from '../../../io/disk/port.ts';
import { frameBytes, writeFrame } from './frame.ts';

export const segmentName = (firstSeq: number): string =>
  `changelog-${String(firstSeq).padStart(16, '0')}.log`;

/** Number of a segment's first record, from its file name; undefined for any other name. */
export function segmentSeq(name: string): number | undefined {
  const match = /^changelog-(\d{16})\.log$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** Bytes gathered before a write; a larger record gets a buffer of its own. */
const BUFFER_BYTES = 1024 * 1024;

export interface ChangelogOptions {
  readonly disk: Disk;
  /** Length at which a segment accepts no more records. */
  readonly segmentBytes: number;
  /** Number of the next record. No segment holds it or a later one. */
  readonly nextSeq: number;
  readonly bufferBytes?: number;
}

interface Segment {
  readonly name: string;
  readonly firstSeq: number;
  readonly file: AppendFile;
}

export class Changelog {
  private readonly disk: Disk;
  private readonly segmentBytes: number;
  private next: number;
  private syncedSeq: number;
  private readonly bufferBytes: number;
  private filling: Uint8Array;
  private filled = 0;
  /** Buffers that wait for the write in progress, oldest first; `seq` is the last record of a
   *  buffer. */
  private queue: Array<{ readonly bytes: Uint8Array; readonly seq: number }> = [];
  private waitingBytes = 0;
  private writtenSeq: number;
  private segment: Segment | undefined;
  private flushing: Promise<void> | undefined;
  private wantedSeq: number;
  private isSealing = false;
  private failure: unknown;

  constructor(options: ChangelogOptions) {
    this.disk = options.disk;
    this.segmentBytes = options.segmentBytes;
    this.bufferBytes = options.bufferBytes ?? BUFFER_BYTES;
    this.filling = new Uint8Array(this.bufferBytes);
    this.next = options.nextSeq;
    this.syncedSeq = options.nextSeq - 1;
    this.writtenSeq = this.syncedSeq;
    this.wantedSeq = this.syncedSeq;
  }

  /** Number of the last durable record. */
  get durableSeq(): number {
    return this.syncedSeq;
  }
  /** Number of the last appended record. */
  get lastSeq(): number {
    return this.next - 1;
  }
  /** Bytes appended and not yet written to the file. The caller must bound them. */
  get pendingBytes(): number {
    return this.waitingBytes + this.filled;
  }

  /** Appends a record and returns its number. The parts are copied. @throws the error of an earlier
   *  write */
  append(kind: number, parts: readonly Uint8Array[]): number {
    this.rethrow();
    let bodyBytes = 0;
    for (const part of parts) bodyBytes += part.length;
    const bytes = frameBytes(bodyBytes);
    if (this.filled + bytes > this.filling.length) {
      this.enqueueBuffer();
      if (bytes > this.filling.length) this.filling = new Uint8Array(bytes);
    }
    const seq = this.next++;
    this.filled = writeFrame(this.filling, this.filled, kind, seq, this.syncedSeq, parts);
    if (this.filled >= this.bufferBytes) this.enqueueBuffer();
    return seq;
  }

  /** Settles when all records appended so far are durable.
   *  @throws not_writable; every later append then fails too */
  async durable(): Promise<void> {
    const seq = this.lastSeq;
    if (seq > this.wantedSeq) this.wantedSeq = seq;
    while (this.syncedSeq < seq) {
      this.rethrow();
      if (this.filled > 0 && this.flushing === undefined) this.enqueueBuffer();
      await this.flush();
    }
    this.rethrow();
  }

  /** Closes the current segment, so that no existing segment changes any more. Returns the last
   *  record of the closed segments. @throws not_writable; every later append then fails too */
  async seal(): Promise<number> {
    await this.durable();
    this.isSealing = true;
    while (this.isSealing) await this.flush();
    return this.syncedSeq;
  }

  /** Removes whole segments that hold only records before `seq`. */
  async truncateBefore(seq: number): Promise<void> {
    const firsts = (await this.disk.list()).flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
    for (let i = 0; i + 1 < firsts.length; i++) {
      if ((firsts[i + 1] as number) <= seq) await this.disk.remove(segmentName(firsts[i] as number));
    }
  }

  /** Makes all records durable and closes the file. */
  async close(): Promise<void> {
    try {
      await this.durable();
    } finally {
      await this.segment?.file.close();
      this.segment = undefined;
    }
  }

  private rethrow(): void {
    if (this.failure !== undefined) throw this.failure;
  }

  /** Queues the filled buffer and starts the writer. */
  private enqueueBuffer(): void {
    if (this.filled > 0) {
      this.queue.push({ bytes: this.filling.subarray(0, this.filled), seq: this.lastSeq });
      this.waitingBytes += this.filled;
      this.filling = new Uint8Array(this.bufferBytes);
      this.filled = 0;
    }
    // A caller of `durable` receives the failure; otherwise the next append throws it.
    this.flush().catch(() => {});
  }

  private flush(): Promise<void> {
    this.flushing ??= this.flushQueue().finally(() => {
      this.flushing = undefined;
    });
    return this.flushing;
  }

  /** Writes the queued buffers, and syncs if a caller waits for durability. */
  private async flushQueue(): Promise<void> {
    try {
      while (this.queue.length > 0) {
        const buffers = this.queue;
        this.queue = [];
        const segment = await this.open();
        await segment.file.write(buffers.map(({ bytes }) => bytes));
        for (const { bytes } of buffers) this.waitingBytes -= bytes.length;
        this.writtenSeq = (buffers.at(-1) as { seq: number }).seq;
        if (segment.file.size >= this.segmentBytes) await this.roll();
      }
      if (this.wantedSeq > this.syncedSeq && this.writtenSeq > this.syncedSeq) await this.sync();
      if (!this.isSealing) return;
      if (this.segment !== undefined) await this.roll();
      this.isSealing = false;
    } catch (thrown) {
      this.isSealing = false;
      this.failure ??= thrown;
      throw thrown;
    }
  }

  private async sync(): Promise<void> {
    const { writtenSeq } = this;
    await this.segment?.file.sync();
    this.syncedSeq = writtenSeq;
  }

  private async open(): Promise<Segment> {
    if (this.segment === undefined) {
      const firstSeq = this.writtenSeq + 1;
      const name = segmentName(firstSeq);
      this.segment = { name, firstSeq, file: await this.disk.append(name) };
    }
    return this.segment;
  }

  /** Closes a segment after a sync, so that only the last segment can be torn. */
  private async roll(): Promise<void> {
    const segment = this.segment as Segment;
    await this.sync();
    await segment.file.close();
    this.segment = undefined;
  }
}
