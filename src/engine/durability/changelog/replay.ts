/** Replays the changelog after a start: reads every whole record in order, and reports how the log
 *  ends.
 *
 *  A crash tears at most the tail that was not durable. Every other unreadable part is damage: a
 *  record that a later record reports as durable, a truncated segment with a successor, or a
 *  missing segment. Damage is reported, never skipped.
 */
import type { Disk } from '../../../io/disk/port.ts';
import { FRAME_HEADER_BYTES, type Frame, readFrame } from './frame.ts';
import { segmentName, segmentSeq } from './log.ts';

/** Bytes of one read, unless a record is longer. */
const READ_BYTES = 4 * 1024 * 1024;

export interface ReplayEnd {
  /** Last whole record; without any, the number before the first requested record. */
  readonly lastSeq: number;
  /** Torn tail of the last segment: `wholeBytes` of its `bytes` bytes are readable. */
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

  /** Passes every whole record to `apply`, in order, one at a time. Returns how the log ends. */
  async run(apply: (frame: Frame) => void | Promise<void>): Promise<ReplayEnd> {
    const firsts = (await this.disk.list()).flatMap((name) => segmentSeq(name) ?? []).sort((a, b) => a - b);
    // The segment that holds fromSeq is the last segment that starts at or before it.
    const start = Math.max(
      0,
      firsts.findLastIndex((first) => first <= this.fromSeq),
    );
    for (let i = start; i < firsts.length && this.damage === undefined; i++) {
      const first = firsts[i] as number;
      if (first > this.last + 1) {
        this.damage = `${segmentName(first)} begins at record ${first}, but the log before it ends at ${this.last}`;
        break;
      }
      await this.segment(first, i === firsts.length - 1, apply);
    }
    if (this.damage === undefined && this.last < this.durable) {
      const newest = firsts.at(-1);
      const where = newest === undefined ? 'the changelog' : segmentName(newest);
      this.damage = `${where} ends before record ${this.last + 1}, but records up to ${this.durable} were durable`;
    }
    return { lastSeq: this.last, torn: this.torn, damage: this.damage };
  }

  private async segment(
    first: number,
    isLast: boolean,
    apply: (frame: Frame) => void | Promise<void>,
  ): Promise<void> {
    const name = segmentName(first);
    let seq = first;
    let offset = 0;
    let bytes = await this.disk.readPiece(name, 0, READ_BYTES);
    let at = 0;
    for (;;) {
      const read = readFrame(bytes, at);
      if ('frame' in read) {
        const { frame } = read;
        if (frame.seq !== seq) {
          this.damage = `${name} has record ${frame.seq} instead of ${seq}`;
          return;
        }
        if (frame.durable > this.durable) this.durable = frame.durable;
        if (seq === this.last + 1) {
          const applied = apply(frame);
          // An await for every record, of one turn of the microtask queue, would dominate a replay.
          if (applied !== undefined) await applied;
          this.last = seq;
        }
        seq++;
        at = read.end;
        continue;
      }
      if ('needs' in read) {
        const more = await this.disk.readPiece(name, offset + at, Math.max(READ_BYTES, read.needs));
        if (more.length > bytes.length - at) {
          offset += at;
          bytes = more;
          at = 0;
          continue;
        }
        if (at === bytes.length) {
          // The file has no record yet, and the next segment may need its name.
          if (isLast && seq === first) this.torn = { name, wholeBytes: 0, bytes: 0 };
          return;
        }
      }
      const fault = 'fault' in read ? read.fault : 'is cut short';
      await this.classifyTail(name, offset + at, seq, isLast, fault);
      return;
    }
  }

  /** Decides whether an unreadable record is a torn tail or damage. It is a torn tail only if it is
   *  in the last segment and nothing shows that it was durable. */
  private async classifyTail(
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
    if (seq <= this.durable || (await this.isReportedDurable(name, at, seq))) {
      this.damage = `${name} ${fault} at byte ${at}, record ${seq}, which had been durable`;
      return;
    }
    const rest = await this.restBytes(name, at);
    this.torn = { name, wholeBytes: at, bytes: at + rest };
  }

  private async restBytes(name: string, at: number): Promise<number> {
    let rest = 0;
    for (;;) {
      const bytes = await this.disk.readPiece(name, at + rest, READ_BYTES);
      if (bytes.length === 0) return rest;
      rest += bytes.length;
    }
  }

  /** True if a later whole record reports that record `seq` was durable. Frames start at multiples
   *  of 8. */
  private async isReportedDurable(name: string, from: number, seq: number): Promise<boolean> {
    let offset = from + 8;
    for (;;) {
      const bytes = await this.disk.readPiece(name, offset, READ_BYTES);
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

/** Cuts off the torn tail, so that appends can continue after the last whole record. */
export async function truncateTornTail(disk: Disk, end: ReplayEnd): Promise<void> {
  if (end.torn === undefined) return;
  const { name, wholeBytes } = end.torn;
  // The next segment will have the name of a file without records.
  if (wholeBytes === 0) await disk.remove(name);
  else await disk.truncate(name, wholeBytes);
}
