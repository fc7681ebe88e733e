/** Header blocks of answers. Source: the gRPC documentation, PROTOCOL-HTTP2 (Responses). */

import { DATA, END_HEADERS, END_STREAM, frame, HEAD_BYTES, HEADERS, writeHead } from '../http2/frames.ts';
import { writeHeaders } from '../http2/hpack.ts';
import { GRPC_CODES, type GrpcCode, type GrpcReply } from '../port.ts';
import { DETAILS_TRAILER } from './common.ts';
import { encodeStatus } from './details.ts';
import { PREFIX_BYTES } from './message.ts';

const CONTENT_TYPE = ['content-type', 'application/grpc+proto'] as const;
/** Header block that begins every answer with a message. */
export const BEGINNING = writeHeaders([':status', '200', ...CONTENT_TYPE]);
const BEGINNING_FRAME = frame(HEADERS, END_HEADERS, 0, BEGINNING);
/** Most bytes of a status message: it is for a person and must fit into the headers that clients
 *  accept. */
const TEXT_BYTES_MAX = 2048;
/** Accepted encodings of messages. */
const ENCODINGS = ['grpc-accept-encoding', 'identity'] as const;

const STATUS_OK = ['grpc-status', '0'] as const;
const PLAIN_ENDING = writeHeaders(STATUS_OK);
/** Cache of encoded trailers: handlers return the same few objects repeatedly. */
const knownEndings = new WeakMap<object, Buffer>();

/** Trailer block of a successful call. */
export function endingOf(trailers: GrpcReply['trailers']): Buffer {
  if (trailers === undefined) return PLAIN_ENDING;
  const known = knownEndings.get(trailers);
  if (known !== undefined) return known;
  const block = writeHeaders([...STATUS_OK, ...Object.entries(trailers).flat()]);
  knownEndings.set(trailers, block);
  return block;
}

/** Percent-encodes UTF-8 as printable ASCII. */
function percentEncoded(text: string): string {
  let bytes = Buffer.from(text, 'utf8');
  if (bytes.length > TEXT_BYTES_MAX) {
    let end = TEXT_BYTES_MAX;
    // The text must not be cut within a character.
    while (((bytes[end] as number) & 0xc0) === 0x80) end--;
    bytes = bytes.subarray(0, end);
  }
  let encoded = '';
  for (const byte of bytes) {
    const plain = byte >= 0x20 && byte <= 0x7e && byte !== 0x25;
    encoded += plain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

/** Number of a code on the wire. */
const codeNumber = (code: GrpcCode): number => GRPC_CODES.indexOf(code);

function statusFields(code: GrpcCode, text: string, more: Pick<GrpcReply, 'details' | 'trailers'>): string[] {
  const number = codeNumber(code);
  const fields = ['grpc-status', String(number), 'grpc-message', percentEncoded(text)];
  for (const [name, value] of Object.entries(more.trailers ?? {})) fields.push(name, value);
  if (more.details !== undefined && more.details.length > 0) {
    const bytes = encodeStatus(number, text, more.details);
    fields.push(DETAILS_TRAILER, bytes.toString('base64').replace(/=+$/, ''));
  }
  return fields;
}

/** Whole answer of a call that fails before its first answer bytes. */
export function failureBlock(
  code: GrpcCode,
  text: string,
  more: Pick<GrpcReply, 'details' | 'trailers'> = {},
): Buffer {
  return writeHeaders([':status', '200', ...CONTENT_TYPE, ...statusFields(code, text, more)]);
}

/** Trailer block of a call that fails after its first answer bytes. */
export const failureEnding = (code: GrpcCode, text: string): Buffer =>
  writeHeaders(statusFields(code, text, {}));

/** Refusal of a compressed message, with the accepted encodings. */
export const compressedBlock = (encoding: string): Buffer =>
  writeHeaders([
    ':status',
    '200',
    ...CONTENT_TYPE,
    ...ENCODINGS,
    ...(encoding === 'identity'
      ? statusFields('INTERNAL', 'the message is marked as compressed, but grpc-encoding is identity', {})
      : statusFields('UNIMPLEMENTED', 'compressed messages are not supported', {})),
  ]);

/** Answer to an HTTP request that is not gRPC. */
export const httpBlock = (status: 405 | 415): Buffer =>
  writeHeaders([':status', String(status), ...(status === 405 ? ['allow', 'POST'] : [])]);

/** Message with its length prefix. */
export function framedMessage(message: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  bytes[0] = 0;
  bytes.writeUInt32BE(message.length, 1);
  bytes.set(message, PREFIX_BYTES);
  return bytes;
}

/** Whole answer in one buffer: its beginning, its message in one frame, its end. */
export function wholeAnswer(stream: number, message: Uint8Array, ending: Buffer): Buffer {
  const data = PREFIX_BYTES + message.length;
  const bytes = Buffer.allocUnsafe(BEGINNING_FRAME.length + HEAD_BYTES + data + HEAD_BYTES + ending.length);
  bytes.set(BEGINNING_FRAME);
  bytes.writeUInt32BE(stream, 5);
  let at = writeHead(bytes, BEGINNING_FRAME.length, data, DATA, 0, stream);
  bytes[at] = 0;
  at = bytes.writeUInt32BE(message.length, at + 1);
  bytes.set(message, at);
  at = writeHead(bytes, at + message.length, ending.length, HEADERS, END_HEADERS | END_STREAM, stream);
  bytes.set(ending, at);
  return bytes;
}
