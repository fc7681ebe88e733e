/** Limits and texts of the gRPC server. */
import type { GrpcReply } from '../port.ts';

/** Memory counted for a call beside its received bytes: an upper bound, measured on Node.js with
 *  nghttp2 and grpc-js. */
export const CALL_BYTES = 16 * 1024;
/** Share of the memory limit for calls that a client may keep open. */
export const LONG_SHARE = 1 / 2;
/** Margin above the memory limit for unread refusals, as a share of the limit. */
export const REFUSED_SHARE = 1 / 4;
/** Most bytes of a call to reflection or health, whose requests have a few bytes. */
export const LONG_CALL_BYTES_MAX = 16 * 1024;
/** Memory counted for each request byte of reflection: a request of five bytes gets an answer
 *  object of a kilobyte, which waits for a client that does not read. */
export const ANSWER_BYTES_A_BYTE = 256;
/** Longest time that a client may keep reflection or Watch open. */
export const LONG_CALL_MS_MAX = 600_000;
/** Time that a drain waits for calls that wait for their client. */
export const DRAIN_PATIENCE_MS = 500;
/** Bounds of the interval of deadline checks, which is a quarter of the request timeout. */
const SWEEP_MS_MIN = 20;
const SWEEP_MS_MAX = 1000;

export const sweepMsOf = (requestTimeoutMs: number): number =>
  Math.min(SWEEP_MS_MAX, Math.max(SWEEP_MS_MIN, requestTimeoutMs / 4));

export const DETAILS_TRAILER = 'grpc-status-details-bin';
/** Longest metadata value that is split; Millrace's own values are shorter, and splitting a longer
 *  one wastes work. */
const METADATA_CHARS_MAX = 256;

/** Splits the values of one metadata entry: proxies, and HTTP/2 in Node, join the lines of one name
 *  with commas. Millrace's own values contain no comma. */
export function splitValues(values: readonly string[]): readonly string[] {
  return values.some((value) => value.includes(','))
    ? values.flatMap((value) =>
        value.length > METADATA_CHARS_MAX ? value : value.split(',').map((part) => part.trim()),
      )
    : values;
}

const NO_BYTES = new Uint8Array(0);
export const FAILED: GrpcReply = {
  code: 'INTERNAL',
  message: NO_BYTES,
  text: 'the call could not be handled',
};
export const LATE: GrpcReply = {
  code: 'DEADLINE_EXCEEDED',
  message: NO_BYTES,
  text: 'the deadline has passed',
};

/** Status messages of calls that the server ends early. */
export const END_TEXTS = {
  memory: 'the server has reached its memory limit; call again later',
  incomplete: 'the message was not complete in time',
  unread: 'the answer was not read in time',
  kept_open: 'the call was open for too long',
} as const;

export const floodText = (bytesMax: number): string => `the call sent more than ${bytesMax} bytes`;
