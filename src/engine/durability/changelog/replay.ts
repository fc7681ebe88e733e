/** Reading the changelog after a start: every whole record in order, and what stands at its end.
 *
 *  A crash tears at most the tail that was not durable. Whatever else does not read is damage: a
 *  record that a later one calls durable, a segment that is cut though another follows, a segment
 *  that is missing. Damage is named, never skipped.
 */
import type { Disk } from '../../../io/disk/port.ts';
import { FRAME_HEADER_BYTES, type Frame, readFrame } from './frame.ts';
import { segmentName, segmentSeq } from './log.ts';

/** Read from a file at once, unless a record is longer. */
const PIECE_BYTES = 4 * 1024 * 1024;

export interface ReplayEnd {
  /** Last whole record; the one before the first asked for where there is none. */
  readonly lastSeq: number;
  /** The torn tail of the last segment: its name and the bytes that are whole. */
  readonly torn: { readonly name: string; readonly wholeBytes: number; readonly bytes: number } | undefined;
  /** Why the log is damaged behind lastSeq. */
  readonly damage: string | undefined;
}

export class Replay {
  private readonly disk: Disk;
  private readonly fromSeq: number;
  private last: number;
  private durable: number;
  private torn: ReplayEnd['torn'];
  private damage: string | undefined;

  /** From record `fromSeq` on; `durableSeq`: the last one known to have been durable, as a
   *  checkpoint says. */
  constructor(disk: Disk, fromSeq: number, durableSeq: number) {
    this.disk = disk;
    this.fromSeq = fromSeq;
    this.last = fromSeq - 1;
    this.durable = durableSeq;
  }

  /** Hands every whole record over, in order, one after the other; then says how the log ends. */
  async run(take: (frame: Frame) => void | Promise<void>): Promise<ReplayEnd> {
    const firsts = (await this.disk.list()).flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
    // The segment that holds fromSeq is the last one that starts at or before it.
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
          // A turn of the queue a record would be most of the time of a replay.
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
          // A name without a record yet: the next segment may need it.
          if (isLast && seq === first) this.torn = { name, wholeBytes: 0, bytes: 0 };
          return;
        }
      }
      const fault = 'fault' in read ? read.fault : 'is cut short';
      await this.judgeTail(name, offset + at, seq, isLast, fault);
      return;
    }
  }

  /** What does not read may be a torn tail only where nothing behind it shows that it had been
   *  durable. */
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

  /** Whether a whole record somewhere behind says that record `seq` was durable. Frames start at
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

/** Cuts the torn tail off, so that the log can go on behind its last whole record. */
export async function mendTail(disk: Disk, end: ReplayEnd): Promise<void> {
  if (end.torn === undefined) return;
  const { name, wholeBytes } = end.torn;
  // A file without a record would carry the name of the segment that comes next.
  if (wholeBytes === 0) await disk.remove(name);
  else await disk.truncate(name, wholeBytes);
}
