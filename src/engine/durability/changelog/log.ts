/** Changelog: a write-ahead log of every mutation of the window state, appended before any result
 *  that depends on it leaves.
 *
 *  Appends do not wait; records become durable in groups. `durable` settles when all records
 *  appended before the call are on disk. Segments are files named by the number of their first
 *  record; a checkpoint makes older segments superfluous, which are then removed. Invariants: (1)
 *  record numbers ascend by one, across segments too; (2) a record is durable only when all earlier
 *  records are; (3) one write at a time, so that a crash leaves a prefix, and at most one torn
 *  record that was not durable. */
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
  private synced: number;
  private readonly bufferBytes: number;
  private filling: Uint8Array;
  private filled = 0;
  /** Buffers that wait for the write in progress; they hold the records up to `seq` that earlier
   *  buffers do not. */
  private full: Array<{ readonly bytes: Uint8Array; readonly seq: number }> = [];
  private waitingBytes = 0;
  private written: number;
  private segment: Segment | undefined;
  private working: Promise<void> | undefined;
  private wanted: number;
  private failure: unknown;

  constructor(options: ChangelogOptions) {
    this.disk = options.disk;
    this.segmentBytes = options.segmentBytes;
    this.bufferBytes = options.bufferBytes ?? BUFFER_BYTES;
    this.filling = new Uint8Array(this.bufferBytes);
    this.next = options.nextSeq;
    this.synced = options.nextSeq - 1;
    this.written = this.synced;
    this.wanted = this.synced;
  }

  /** Number of the last durable record. */
  get durableSeq(): number {
    return this.synced;
  }
  /** Number of the last appended record. */
  get lastSeq(): number {
    return this.next - 1;
  }
  /** Bytes appended and not yet written to the file; the caller must bound them. */
  get pendingBytes(): number {
    return this.waitingBytes + this.filled;
  }

  /** Appends a record, whose parts are copied. Returns its number. @throws errors of an earlier
   *  write */
  append(kind: number, parts: readonly Uint8Array[]): number {
    this.rethrow();
    let bodyBytes = 0;
    for (const part of parts) bodyBytes += part.length;
    const bytes = frameBytes(bodyBytes);
    if (this.filled + bytes > this.filling.length) {
      this.shelve();
      if (bytes > this.filling.length) this.filling = new Uint8Array(bytes);
    }
    const seq = this.next++;
    this.filled = writeFrame(this.filling, this.filled, kind, seq, this.synced, parts);
    if (this.filled >= this.bufferBytes) this.shelve();
    return seq;
  }

  /** Settles when all records appended so far are durable.
   *  @throws not_writable; every later append then fails too */
  async durable(): Promise<void> {
    const seq = this.lastSeq;
    if (seq > this.wanted) this.wanted = seq;
    while (this.synced < seq) {
      this.rethrow();
      if (this.filled > 0 && this.working === undefined) this.shelve();
      await this.work();
    }
    this.rethrow();
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

  /** Queues the gathered bytes for the writer. */
  private shelve(): void {
    if (this.filled > 0) {
      this.full.push({ bytes: this.filling.subarray(0, this.filled), seq: this.lastSeq });
      this.waitingBytes += this.filled;
      this.filling = new Uint8Array(this.bufferBytes);
      this.filled = 0;
    }
    // A caller of `durable` receives the failure; without one, the next append does.
    this.work().catch(() => {});
  }

  private work(): Promise<void> {
    this.working ??= this.turn().finally(() => {
      this.working = undefined;
    });
    return this.working;
  }

  /** Writes the waiting buffers, and syncs if a caller waits for that. */
  private async turn(): Promise<void> {
    try {
      while (this.full.length > 0) {
        const some = this.full;
        this.full = [];
        const segment = await this.open();
        await segment.file.write(some.map(({ bytes }) => bytes));
        for (const { bytes } of some) this.waitingBytes -= bytes.length;
        this.written = (some.at(-1) as { seq: number }).seq;
        if (segment.file.size >= this.segmentBytes) await this.roll();
      }
      if (this.wanted > this.synced && this.written > this.synced) await this.sync();
    } catch (thrown) {
      this.failure ??= thrown;
      throw thrown;
    }
  }

  private async sync(): Promise<void> {
    const { written } = this;
    await this.segment?.file.sync();
    this.synced = written;
  }

  private async open(): Promise<Segment> {
    if (this.segment === undefined) {
      const firstSeq = this.written + 1;
      const name = segmentName(firstSeq);
      this.segment = { name, firstSeq, file: await this.disk.append(name) };
    }
    return this.segment;
  }

  /** Syncs a segment before the next one starts, so that only the last segment can be torn. */
  private async roll(): Promise<void> {
    const segment = this.segment as Segment;
    await this.sync();
    await segment.file.close();
    this.segment = undefined;
  }
}
