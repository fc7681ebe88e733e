/** Codec of the keys that a changelog record assigns to ids.
 *
 *      0 form u32 | 4 keys u32 | 8 upper bound of the event times f64 (-Infinity: unchanged)
 *     16 keys, padded to 8 each: id u64 | bytes u32 | zero u32 | the bytes
 *
 *  All numbers are little-endian. */
import { KEY_BYTES_MAX } from './type.ts';

const FORM = 1;
const HEAD_BYTES = 16;
const ENTRY_BYTES = 16;
/** Length at which a body accepts no more keys. */
const BODY_BYTES_MAX = 16 * 1024 * 1024;

const padded = (bytes: number): number => (bytes + 7) & ~7;

/** Keys of a record, in order. */
export interface KeyEntries {
  readonly count: number;
  readonly bound: number;
  /** Visits each id with its key, which is borrowed. */
  each(visit: (low: number, high: number, key: Uint8Array) => void): void;
}

/** Collects assigned keys until a record takes them. */
export class KeyJournal {
  private bodies: Uint8Array[] = [];
  private bytes = new Uint8Array(4096);
  private view = new DataView(this.bytes.buffer);
  private used = HEAD_BYTES;
  private count = 0;
  private bound = Number.NEGATIVE_INFINITY;

  add(low: number, high: number, key: Uint8Array): void {
    const end = this.used + ENTRY_BYTES + padded(key.length);
    if (end > this.bytes.length) this.grow(end);
    const { view, used } = this;
    view.setInt32(used, low, true);
    view.setInt32(used + 4, high, true);
    view.setUint32(used + 8, key.length, true);
    view.setUint32(used + 12, 0, true);
    this.bytes.set(key, used + ENTRY_BYTES);
    this.bytes.fill(0, used + ENTRY_BYTES + key.length, end);
    this.used = end;
    this.count++;
    if (end >= BODY_BYTES_MAX) this.seal();
  }

  /** Records a bound that is above every earlier one. */
  raise(bound: number): void {
    this.bound = bound;
  }

  /** Returns the bodies of the records that hold everything since the last call. */
  take(): readonly Uint8Array[] {
    if (this.count > 0 || this.bound > Number.NEGATIVE_INFINITY) this.seal();
    const { bodies } = this;
    this.bodies = [];
    return bodies;
  }

  private seal(): void {
    const { view } = this;
    view.setUint32(0, FORM, true);
    view.setUint32(4, this.count, true);
    view.setFloat64(8, this.bound, true);
    this.bodies.push(this.bytes.slice(0, this.used));
    this.used = HEAD_BYTES;
    this.count = 0;
    this.bound = Number.NEGATIVE_INFINITY;
  }

  private grow(least: number): void {
    const bytes = new Uint8Array(Math.max(least, 2 * this.bytes.length));
    bytes.set(this.bytes);
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer);
  }
}

/** Decodes a body, which the entries borrow; or returns the fault. Accepts any bytes. */
export function decodeKeys(body: Uint8Array): KeyEntries | { readonly fault: string } {
  const view = new DataView(body.buffer, body.byteOffset, body.byteLength);
  if (body.length < HEAD_BYTES) return { fault: `it has ${body.length} bytes` };
  const count = view.getUint32(4, true);
  const bound = view.getFloat64(8, true);
  if (Number.isNaN(bound) || bound === Number.POSITIVE_INFINITY) return { fault: `its bound is ${bound}` };
  let at = HEAD_BYTES;
  for (let i = 0; i < count; i++) {
    const length = body.length - at < ENTRY_BYTES ? -1 : view.getUint32(at + 8, true);
    if (length < 0 || length > KEY_BYTES_MAX || view.getUint32(at + 12, true) !== 0)
      return { fault: `key ${i} of ${count} is not valid` };
    at += ENTRY_BYTES + padded(length);
  }
  if (at !== body.length) return { fault: `its ${count} keys have ${at} bytes, not ${body.length}` };
  return {
    count,
    bound,
    each(visit) {
      for (let i = 0, from = HEAD_BYTES; i < count; i++) {
        const length = view.getUint32(from + 8, true);
        const key = body.subarray(from + ENTRY_BYTES, from + ENTRY_BYTES + length);
        visit(view.getInt32(from, true), view.getInt32(from + 4, true), key);
        from += ENTRY_BYTES + padded(length);
      }
    },
  };
}
