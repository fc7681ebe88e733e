/** Lines of a byte stream, with their numbers, in groups as they arrive. */

export interface InputLine {
  /** From 1. */
  readonly number: number;
  /** Without the line end; undefined for a line that is longer than the limit. */
  readonly bytes: Buffer | undefined;
}

const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;

/** Splits a stream into lines. Each group holds the lines that a chunk completes; an end of the
 *  stream completes the last line. Empty lines count and are left out.
 *  @param bytesMax greatest length of a line in bytes */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<InputLine[], void> {
  let number = 0;
  let parts: Buffer[] = [];
  let length = 0;
  const lines: InputLine[] = [];
  const add = (part: Buffer): void => {
    length += part.length;
    // The content of a line that is too long is not kept.
    if (length > bytesMax) parts = [];
    else if (part.length > 0) parts.push(part);
  };
  const complete = (): void => {
    number++;
    const all = parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts);
    const line = all.at(-1) === CARRIAGE_RETURN ? all.subarray(0, -1) : all;
    if (length > bytesMax) lines.push({ number, bytes: undefined });
    else if (line.length > 0) lines.push({ number, bytes: line });
    parts = [];
    length = 0;
  };
  for await (const chunk of chunks) {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    let from = 0;
    for (let end = bytes.indexOf(LINE_FEED); end >= 0; end = bytes.indexOf(LINE_FEED, from)) {
      add(bytes.subarray(from, end));
      complete();
      from = end + 1;
    }
    // A copy, because the stream may reuse its chunk.
    add(Buffer.from(bytes.subarray(from)));
    if (lines.length > 0) yield lines.splice(0);
  }
  if (length > 0) complete();
  if (lines.length > 0) yield lines.splice(0);
}
