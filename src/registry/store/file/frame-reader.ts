/** Reads the frames of a registry file in order, a bounded piece at a time. Stops at the first
 *  position without a valid frame that belongs there.
 */
import type { RandomFile } from '../../../io/disk/port.ts';
import { CHAIN_START, type ChainPlace, type FrameFormat } from './frames.ts';

export class StoreFrameReader {
  /** Byte after the last returned frame, and its position in the chain. */
  at: number;
  place: ChainPlace = CHAIN_START;
  private readonly file: RandomFile;
  private readonly format: FrameFormat;
  private buffer: Buffer;
  private held = 0;
  /** Bytes of the buffer whose frames were returned. */
  private consumed = 0;

  /** @param pieceBytes bytes of one read; a longer frame is read whole */
  constructor(file: RandomFile, format: FrameFormat, pieceBytes: number) {
    this.file = file;
    this.format = format;
    this.at = format.magic.length;
    this.buffer = Buffer.allocUnsafe(pieceBytes);
  }

  /** Payloads of the next frames that end at or before `to`: views that the next call overwrites.
   *  Empty: no valid frame that belongs there follows.
   */
  async read(to: number): Promise<readonly Buffer[]> {
    const { headerBytes } = this.format;
    this.buffer.copyWithin(0, this.consumed, this.held);
    this.held -= this.consumed;
    this.consumed = 0;
    for (;;) {
      const wanted = Math.min(this.buffer.length - this.held, to - this.at - this.held);
      const count =
        wanted > 0
          ? await this.file.read(this.buffer.subarray(this.held, this.held + wanted), this.at + this.held)
          : 0;
      this.held += count;
      const payloads = this.takeFrames();
      if (payloads.length > 0) return payloads;
      const bytes = this.buffer.subarray(0, this.held);
      const needed = headerBytes + (this.format.payloadBytesAt(bytes, 0) ?? 0);
      if (needed > this.buffer.length && this.at + needed <= to) {
        const larger = Buffer.allocUnsafe(needed);
        larger.set(bytes);
        this.buffer = larger;
      } else if (count === 0 || this.held >= needed) return [];
    }
  }

  private takeFrames(): readonly Buffer[] {
    const bytes = this.buffer.subarray(0, this.held);
    const payloads: Buffer[] = [];
    for (;;) {
      const payload = this.format.payloadAt(bytes, this.consumed);
      const next = payload === undefined ? undefined : this.format.next(bytes, this.consumed, this.place);
      if (payload === undefined || next === undefined) break;
      payloads.push(payload);
      this.place = next;
      this.consumed += this.format.headerBytes + payload.length;
    }
    this.at += this.consumed;
    return payloads;
  }
}
