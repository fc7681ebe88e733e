/** The changelog: every mutation of the state in the order it happened, appended before the results
 *  that depend on it leave.
 *
 *  Records are handed over without waiting and become durable together: `durable` settles when
 *  everything appended before it is on the disk. Segments are files named by the number of their
 *  first record; whole segments go once a checkpoint holds what they say. Invariants: (1) record
 *  numbers rise by one, across segments too; (2) a record is durable only when all before it are;
 *  (3) one write at a time, so that a crash leaves a prefix and at most a torn rest of what was not
 *  durable.
 */
import type { AppendFile, Disk } from '../../../io/disk/port.ts';
import { frameBytes, writeFrame } from './frame.ts';

export const segmentName = (firstSeq: number): string =>
  `changelog-${String(firstSeq).padStart(16, '0')}.log`;

/** Number of a segment's first record by its file name; undefined for any other name. */
export function segmentSeq(name: string): number | undefined {
  const match = /^changelog-(\d{16})\.log$/.exec(name);
  return match === null ? undefined : Number(match[1]);
}

/** Bytes gathered before a write; a larger record gets a buffer of its own. */
const BUFFER_BYTES = 1024 * 1024;

export interface ChangelogOptions {
  readonly disk: Disk;
  /** A segment that is this long gets no more records. */
  readonly segmentBytes: number;
  /** Number of the first record to append. No segment holds it or a later one. */
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
  /** Buffers that wait for the write under way; records up to `seq` are in them and those before.
   */
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

  /** Number of the last record that is durable. */
  get durableSeq(): number {
    return this.synced;
  }
  /** Number of the last record appended. */
  get lastSeq(): number {
    return this.next - 1;
  }
  /** Bytes appended and not yet written to the file: what whoever appends should bound. */
  get pendingBytes(): number {
    return this.waitingBytes + this.filled;
  }

  /** Takes a record; its parts are copied. Returns its number. @throws what an earlier write threw
   */
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

  /** Settles when everything appended so far is durable. @throws not_writable; then nothing
   *  appended later is taken */
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

  /** Makes everything durable and closes the file. */
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

  /** Hands what is gathered to the writer. */
  private shelve(): void {
    if (this.filled > 0) {
      this.full.push({ bytes: this.filling.subarray(0, this.filled), seq: this.lastSeq });
      this.waitingBytes += this.filled;
      this.filling = new Uint8Array(this.bufferBytes);
      this.filled = 0;
    }
    // Whoever waits for durability meets its failure; without one, the next append does.
    this.work().catch(() => {});
  }

  private work(): Promise<void> {
    this.working ??= this.turn().finally(() => {
      this.working = undefined;
    });
    return this.working;
  }

  /** Writes what waits; syncs where somebody waits for that. */
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

  /** A segment is durable before the next one begins, so that only the last one can be torn. */
  private async roll(): Promise<void> {
    const segment = this.segment as Segment;
    await this.sync();
    await segment.file.close();
    this.segment = undefined;
  }
}
