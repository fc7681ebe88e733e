/** Frames and messages from chunks of any size. */
import { describe, expect, it } from 'vitest';
import {
  DATA,
  FRAME_SIZE_ERROR,
  frame,
  Http2FrameReader,
  PING,
  PROTOCOL_ERROR,
} from '../../../../src/io/grpc/http2/frames.ts';
import { MessageReader } from '../../../../src/io/grpc/service/message.ts';
import { framed } from '../../../e2e/orders-grpc-kit.ts';

const GREETING = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

/** Events of a reader of these chunks, as text. */
function readAll(chunks: readonly Buffer[], framesMax = Number.POSITIVE_INFINITY) {
  const seen: string[] = [];
  const reader = new Http2FrameReader({
    onFrame(type, flags, stream, bytes, from, to) {
      seen.push(`${type} ${flags} ${stream} ${bytes.toString('hex', from, to)}`);
      return seen.length < framesMax;
    },
    onBadBytes(code) {
      seen.push(`refused ${code}`);
    },
  });
  for (const chunk of chunks) reader.read(chunk);
  return { seen, heldBytes: reader.heldBytes };
}

const cut = (bytes: Buffer, size: number): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));

describe('HTTP/2 frames', () => {
  const bytes = Buffer.concat([
    GREETING,
    frame(PING, 1, 0, Buffer.from('12345678')),
    frame(DATA, 0, 2 ** 31 - 1, Buffer.alloc(0)),
    frame(DATA, 0xff, 3, Buffer.alloc(300, 7)),
    frame(200, 0, 5, Buffer.from('x')),
  ]);
  const whole = readAll([bytes]);

  it('several frames are read from one chunk', () => {
    expect(whole.seen).toEqual([
      `6 1 0 ${Buffer.from('12345678').toString('hex')}`,
      '0 0 2147483647 ',
      `0 255 3 ${'07'.repeat(300)}`,
      '200 0 5 78',
    ]);
    expect(whole.heldBytes).toBe(0);
  });

  it('frames are read the same when cut in two at every position and in pieces of every size', () => {
    for (let at = 1; at < bytes.length; at++) {
      expect(readAll([bytes.subarray(0, at), bytes.subarray(at)]), `cut at ${at}`).toEqual(whole);
      expect(readAll(cut(bytes, at)), `pieces of ${at}`).toEqual(whole);
    }
  });

  it('frames with the reserved bit of the stream id set belong to the same stream', () => {
    const reserved = Buffer.from(frame(PING, 0, 0, Buffer.alloc(8)));
    reserved[5] = 0x80;
    expect(readAll([GREETING, reserved]).seen).toEqual([`6 0 0 ${'00'.repeat(8)}`]);
  });

  it('a frame that is too long is refused by its head alone, in chunks of any size', () => {
    const head = Buffer.of(0, 0x40, 1, DATA, 0, 0, 0, 0, 1);
    for (const size of [1, 4, 9])
      expect(readAll([GREETING, ...cut(head, size)]).seen).toEqual([`refused ${FRAME_SIZE_ERROR}`]);
  });

  it('a frame that only announces its length allocates no memory', () => {
    const { heldBytes } = readAll([GREETING, Buffer.of(0, 0x40, 0, DATA, 0, 0, 0, 0, 1, 5)]);
    expect(heldBytes).toBeGreaterThan(0);
    expect(heldBytes).toBeLessThan(1024);
  });

  it('no frames are delivered once the consumer has stopped', () => {
    expect(readAll([bytes], 2).seen).toHaveLength(2);
    expect(readAll(cut(bytes, 5), 2).seen).toHaveLength(2);
  });

  it('frames are read after the HTTP/2 preface and after nothing else', () => {
    const http = Buffer.from('POST / HTTP/1.1\r\n\r\n');
    for (const size of [1, 100]) expect(readAll(cut(http, size)).seen).toEqual([`refused ${PROTOCOL_ERROR}`]);
  });
});

describe('gRPC messages', () => {
  /** Results of a reader for these pieces. */
  function messages(pieces: readonly Buffer[], max = 1000): readonly string[] {
    const reader = new MessageReader(max);
    const found: string[] = [];
    for (const piece of pieces) {
      let at = 0;
      while (at < piece.length) {
        const taken = reader.accept(piece, at, piece.length);
        at = reader.at;
        if (taken === 'message') found.push(reader.message.toString('hex'));
        else if (taken !== 'more') return [...found, taken];
      }
    }
    return reader.isWithin ? [...found, 'within'] : found;
  }
  const three = [Buffer.from('first'), Buffer.alloc(0), Buffer.alloc(700, 9)];
  const bytes = Buffer.concat(three.map(framed));
  const texts = three.map((one) => one.toString('hex'));

  it('messages are read the same when cut in two at every position and in pieces of every size', () => {
    for (let at = 1; at < bytes.length; at++) {
      expect(messages([bytes.subarray(0, at), bytes.subarray(at)]), `cut at ${at}`).toEqual(texts);
      expect(messages(cut(bytes, at)), `pieces of ${at}`).toEqual(texts);
    }
  });

  it('the reader reports an incomplete message', () => {
    for (let at = 1; at < 10; at++) expect(messages([bytes.subarray(0, at)])).toEqual(['within']);
  });

  it('an invalid message is refused by its first bytes', () => {
    expect(messages([Buffer.of(1)])).toEqual(['compressed']);
    expect(messages([Buffer.of(2)])).toEqual(['malformed']);
    expect(messages([Buffer.of(0, 0, 0, 3, 0xe9)])).toEqual(['too_long']);
    expect(messages([Buffer.of(0, 0xff, 0xff, 0xff, 0xff)])).toEqual(['too_long']);
    expect(messages([framed(Buffer.alloc(1000))])).toEqual(['00'.repeat(1000)]);
  });

  it('a message allocates memory for received bytes, not for its announced length', () => {
    const reader = new MessageReader(2 ** 30);
    reader.accept(Buffer.of(0, 0x3f, 0xff, 0xff, 0xff, 1, 2, 3), 0, 8);
    expect(reader.heldBytes).toBeGreaterThan(2);
    expect(reader.heldBytes).toBeLessThan(1024);
  });

  it('a message does not keep the chunk alive that contained it', () => {
    const chunk = Buffer.concat([framed(Buffer.from('abc')), Buffer.alloc(60_000)]);
    const reader = new MessageReader(1000);
    expect(reader.accept(chunk, 0, 8)).toBe('message');
    expect(reader.message.buffer).not.toBe(chunk.buffer);
    expect(reader.message.toString()).toBe('abc');
  });
});
