/** What both drivers hold calls to and say of them, so that a client cannot tell which one serves. */
import type { GrpcReply } from '../port.ts';

/** What a call is counted to hold beside what its client sent: measured on Node.js, nghttp2 and grpc-js, which keep the most. */
export const CALL_BYTES = 16 * 1024;
/** Of the bytes that may be held: for calls that a client may keep open. */
export const LONG_SHARE = 1 / 2;
/** Above the bytes that may be held: answers of refusal that nobody reads. */
export const REFUSED_SHARE = 1 / 4;
/** Reflection and health take requests of a few bytes. */
export const LONG_CALL_BYTES_MAX = 16 * 1024;
/** Reflection answers a request of five bytes with an object of a kilobyte, which waits for who does not read. */
export const ANSWER_BYTES_A_BYTE = 256;
/** A client may keep reflection and Watch open; no longer than this without its end from the client. */
export const LONG_CALL_MS_MAX = 600_000;
/** How long a drain waits for calls that wait for their client. */
export const DRAIN_PATIENCE_MS = 500;
/** How often calls that wait for their client are looked at: a quarter of the time they have, within these. */
const SWEEP_MS_MIN = 20;
const SWEEP_MS_MAX = 1000;

export const sweepMsOf = (requestTimeoutMs: number): number =>
  Math.min(SWEEP_MS_MAX, Math.max(SWEEP_MS_MIN, requestTimeoutMs / 4));

export const DETAILS_TRAILER = 'grpc-status-details-bin';
/** Longer metadata is handed on as it came: no value of ours is that long, and splitting it is work for nothing. */
const METADATA_CHARS_MAX = 256;

/** The values of one metadata entry: a proxy, and HTTP/2 in Node, joins the lines of one name; a value of ours holds no comma. */
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

/** Why a call is ended before its time, for the client. */
export const END_TEXTS = {
  memory: 'the server holds as much as it may; call again later',
  incomplete: 'the message was not whole in time',
  unread: 'the answer was not read in time',
  kept_open: 'the call was open for too long',
} as const;

export const floodText = (bytesMax: number): string => `the call sent more than ${bytesMax} bytes`;
