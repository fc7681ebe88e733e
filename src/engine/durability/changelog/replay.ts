/** Replays the changelog after a start: reads every whole record in order, and reports how the log
 *  ends.
 *
 *  A crash tears at most the tail that was not durable. Every other unreadable part is damage: a
 *  record that a later record reports as durable, a short segment with a successor, a missing
 *  segment. Damage is reported, never skipped. */
import type { Disk } from '../../../io/disk/port.ts';
import { FRAME_HEADER_BYTES, type Frame, readFrame } from './frame.ts';
import { segmentName, segmentSeq } from './log.ts';

/** Bytes of one read, unless a record is longer. */
const PIECE_BYTES = 4 * 1024 * 1024;

export interface ReplayEnd {
  /** Last whole record; without records, the number before the first requested one. */
  readonly lastSeq: number;
  /** Torn tail of the last segment: its name and the number of whole bytes. */
  readonly torn: { readonly name: string; readonly wholeBytes: number; readonly bytes: number } | undefined;
  /** Reason why the log is damaged after lastSeq. */
  readonly damage: string | undefined;
}

export class Replay {
  private readonly disk: Disk;
  private readonly fromSeq: number;
  private last: number;
  private durable: number;
  private torn: ReplayEnd['torn'];
  private damage: string | undefined;

  /** @param fromSeq first record to read
   *  @param durableSeq last record that was durable according to a checkpoint */
  constructor(disk: Disk, fromSeq: number, durableSeq: number) {
    this.disk = disk;
    this.fromSeq = fromSeq;
    this.last = fromSeq - 1;
    this.durable = durableSeq;
  }

  /** Passes every whole record to `take`, in order, one at a time; then reports the end of the log.
   */
  async run(take: (frame: Frame) => void | Promise<void>): Promise<ReplayEnd> {
    const firsts = (await this.disk.list()).flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
    // The segment that holds fromSeq is the last segment that starts at or before it.
    const start = Math.max(
      0,
      firsts.findLastIndex((first) => first <= this.fromSeq),
    );
    for (let i = start; i < firsts.length && this.damage === undefined; i++) {
      const first = firsts[i] as number;
      if (first > this.last + 1) {
        this.damage = `${segmentName(first)} begins at record ${first}, the log before it ends at ${this.last}`;
        break;
      }
      await this.segment(first, i === firsts.length - 1, take);
    }
    if (this.damage === undefined && this.last < this.durable) {
      const newest = firsts.at(-1);
      const where = newest === undefined ? 'the changelog' : segmentName(newest);
      this.damage = `${where} ends before record ${this.last + 1}, records up to ${this.durable} were durable`;
    }
    return { lastSeq: this.last, torn: this.torn, damage: this.damage };
  }

  private async segment(
    first: number,
    isLast: boolean,
    take: (frame: Frame) => void | Promise<void>,
  ): Promise<void> {
    const name = segmentName(first);
    let seq = first;
    let offset = 0;
    let bytes = await this.disk.readPiece(name, 0, PIECE_BYTES);
    let at = 0;
    for (;;) {
      const read = readFrame(bytes, at);
      if ('frame' in read) {
        const { frame } = read;
        if (frame.seq !== seq) {
          this.damage = `${name} has record ${frame.seq} where ${seq} belongs`;
          return;
        }
        if (frame.durable > this.durable) this.durable = frame.durable;
        if (seq === this.last + 1) {
          const taken = take(frame);
          // Awaits only if needed: one turn of the microtask queue a record would dominate a
          // replay.
          if (taken !== undefined) await taken;
          this.last = seq;
        }
        seq++;
        at = read.end;
        continue;
      }
      if ('needs' in read) {
        const more = await this.disk.readPiece(name, offset + at, Math.max(PIECE_BYTES, read.needs));
        if (more.length > bytes.length - at) {
          offset += at;
          bytes = more;
          at = 0;
          continue;
        }
        if (at === bytes.length) {
          // A name without a record: the next segment may need this name.
          if (isLast && seq === first) this.torn = { name, wholeBytes: 0, bytes: 0 };
          return;
        }
      }
      const fault = 'fault' in read ? read.fault : 'is cut short';
      await this.judgeTail(name, offset + at, seq, isLast, fault);
      return;
    }
  }

  /** Treats an unreadable record as a torn tail only if no later bytes show that it was durable. */
  private async judgeTail(
    name: string,
    at: number,
    seq: number,
    isLast: boolean,
    fault: string,
  ): Promise<void> {
    if (!isLast) {
      this.damage = `${name} ${fault} at byte ${at}, though another segment follows`;
      return;
    }
    if (seq <= this.durable || (await this.laterSaysDurable(name, at, seq))) {
      this.damage = `${name} ${fault} at byte ${at}, record ${seq}, which had been durable`;
      return;
    }
    const rest = await this.restBytes(name, at);
    this.torn = { name, wholeBytes: at, bytes: at + rest };
  }

  private async restBytes(name: string, at: number): Promise<number> {
    let rest = 0;
    for (;;) {
      const piece = await this.disk.readPiece(name, at + rest, PIECE_BYTES);
      if (piece.length === 0) return rest;
      rest += piece.length;
    }
  }

  /** True when a later whole record reports that record `seq` was durable. Frames start at
   *  multiples of 8. */
  private async laterSaysDurable(name: string, from: number, seq: number): Promise<boolean> {
    let offset = from + 8;
    for (;;) {
      const bytes = await this.disk.readPiece(name, offset, PIECE_BYTES);
      if (bytes.length < FRAME_HEADER_BYTES) return false;
      let at = 0;
      for (; at + FRAME_HEADER_BYTES <= bytes.length; at += 8) {
        let read = readFrame(bytes, at);
        if ('needs' in read && read.needs > bytes.length - at) {
          const whole = await this.disk.readPiece(name, offset + at, read.needs);
          if (whole.length >= read.needs) read = readFrame(whole, 0);
        }
        if ('frame' in read && read.frame.seq > seq && read.frame.durable >= seq) return true;
      }
      offset += at;
    }
  }
}

/** Cuts off the torn tail, so that the log can continue after its last whole record. */
export async function mendTail(disk: Disk, end: ReplayEnd): Promise<void> {
  if (end.torn === undefined) return;
  const { name, wholeBytes } = end.torn;
  // A file without a record would have the name of the next segment.
  if (wholeBytes === 0) await disk.remove(name);
  else await disk.truncate(name, wholeBytes);
}
