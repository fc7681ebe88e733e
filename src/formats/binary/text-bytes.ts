/** Texts from UTF-8 bytes. */
import { isUtf8 } from 'node:buffer';

/** The method that `toString` calls for UTF-8 after it has checked its arguments, which takes as
 *  long as a short text. */
interface Utf8Bytes extends Buffer {
  utf8Slice(start: number, end: number): string;
}

/** Up to this length a loop over the bytes is faster than a call into the runtime. */
const LOOP_BYTES_MAX = 20;

/** Character codes of a text, a list for each length. */
const CODES: readonly number[][] = Array.from({ length: LOOP_BYTES_MAX + 1 }, (_, length) =>
  new Array<number>(length).fill(0),
);

/** Text of the bytes from `from` to `to` (exclusive); undefined where they are not UTF-8.
 *  REQUIRES: the bytes are part of the buffer. */
export function textOf(bytes: Buffer, from: number, to: number): string | undefined {
  const length = to - from;
  return length > LOOP_BYTES_MAX ? longText(bytes, from, to) : shortText(bytes, from, length);
}

function shortText(bytes: Buffer, from: number, length: number): string | undefined {
  const codes = CODES[length] as number[];
  let bits = 0;
  for (let i = 0; i < length; i++) {
    const code = bytes[from + i] as number;
    bits |= code;
    codes[i] = code;
  }
  return bits < 128 ? String.fromCharCode.apply(null, codes) : longText(bytes, from, from + length);
}

function longText(bytes: Buffer, from: number, to: number): string | undefined {
  const text = (bytes as Utf8Bytes).utf8Slice(from, to);
  // Invalid UTF-8 decodes to U+FFFD, which may also be a character of the text.
  if (text.includes('\ufffd') && !isUtf8(bytes.subarray(from, to))) return undefined;
  return text;
}
