/** Hash of identifiers, whose number a job counts: 64 bits, and the same in every process. */

import { HalfSipHash } from '../../core/random/half-sip-hash.ts';
import { ID_BYTES_MAX } from '../dedup/ids.ts';

/** Fixed, so that a result is a function of the log. */
const SECRET = Uint8Array.of(0x6d, 0x69, 0x6c, 0x6c, 0x72, 0x61, 0x63, 0x65);

export class IdHash {
  // The letter of the type, and zeros up to a whole word.
  private readonly words = new Int32Array(Math.ceil((1 + ID_BYTES_MAX) / 4));
  private readonly bytes = new Uint8Array(this.words.buffer);
  private readonly siphash = new HalfSipHash(SECRET);

  /** Returns the hash of an identifier of at most 1 + ID_BYTES_MAX Latin-1 characters. */
  hash(text: string): bigint {
    const { length } = text;
    for (let i = 0; i < length; i++) this.bytes[i] = text.charCodeAt(i);
    this.bytes.fill(0, length, Math.ceil(length / 4) * 4);
    this.siphash.hash(this.words, 0, length);
    return (BigInt(this.siphash.high) << 32n) | BigInt(this.siphash.low >>> 0);
  }
}
