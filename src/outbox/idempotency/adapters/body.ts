/** Bounded reading of request bodies. */
import { outboxError } from '../../errors.ts';

const tooLarge = (bytesMax: number): Error =>
  outboxError('body_too_large', `the body is over ${bytesMax} bytes`, { next: 'send a shorter body' });

/** Refuses a declared length above the limit before a byte is read. @throws body_too_large */
export function requireLength(contentLength: string | null | undefined, bytesMax: number): void {
  if (contentLength !== null && contentLength !== undefined && Number(contentLength) > bytesMax)
    throw tooLarge(bytesMax);
}

/** Reads a body of at most `bytesMax` bytes from a stream of chunks, and no chunk after the limit.
 *  @throws body_too_large; errors of the stream */
export async function readBounded(
  chunks: AsyncIterable<Uint8Array | string>,
  bytesMax: number,
): Promise<Buffer> {
  const held: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    const part = typeof chunk === 'string' ? Buffer.from(chunk) : Buffer.from(chunk);
    bytes += part.length;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    held.push(part);
  }
  return Buffer.concat(held);
}

/** Error for a fingerprint over a body that is not known. */
export const bodyUnseen = (): Error =>
  outboxError(
    'bad_option',
    'the request has a body that neither this endpoint nor a parser before it has read',
    {
      next: 'parse the body first, or give a fingerprint that selects what identifies the request without its body',
    },
  );
