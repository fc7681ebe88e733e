/** The node:net driver, frame by frame: every violation of HTTP/2 and gRPC ends as the
 *  specifications require, and no refused call reaches its handler. Source: RFC 9113; the gRPC
 *  documentation, PROTOCOL-HTTP2 and statuscodes. */
import { describe, expect, it } from 'vitest';
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  GOAWAY,
  HEADERS,
  PADDED,
  PING,
  PRIORITY,
  PUSH_PROMISE,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
  WITH_PRIORITY,
} from '../../src/io/grpc/http2/frames.ts';
import { METHOD } from '../e2e/orders-grpc-kit.ts';
import { CALL, expectOk, fine, HEAD, having, MESSAGE, wireKit, without } from './grpc-wire-kit.ts';
import {
  block,
  callFrames,
  type Fields,
  fieldsOf,
  literal,
  NOTHING,
  number,
  PREFACE,
  setting,
} from './h2-raw.ts';

const PROTOCOL = 1;
const FLOW_CONTROL = 3;
const STREAM_CLOSED = 5;
const FRAME_SIZE = 6;
const REFUSED = 7;
const COMPRESSION = 9;
const CALM = 11;
const ENDED = END_HEADERS | END_STREAM;

const kit = wireKit();

describe('connection errors', () => {
  it.each<[string, number, readonly Uint8Array[]]>([
    [
      'another frame before SETTINGS',
      PROTOCOL,
      [PREFACE.subarray(0, 24), frame(PING, 0, 0, Buffer.alloc(8))],
    ],
    [
      'an acknowledgement before SETTINGS',
      PROTOCOL,
      [PREFACE.subarray(0, 24), frame(SETTINGS, 1, 0, NOTHING)],
    ],
    ['SETTINGS of five bytes', FRAME_SIZE, [PREFACE, frame(SETTINGS, 0, 0, Buffer.alloc(5))]],
    ['SETTINGS on a stream', PROTOCOL, [PREFACE, frame(SETTINGS, 0, 1, NOTHING)]],
    ['SETTINGS that acknowledge and set', FRAME_SIZE, [PREFACE, frame(SETTINGS, 1, 0, setting(3, 1))]],
    ['ENABLE_PUSH of 2', PROTOCOL, [PREFACE, frame(SETTINGS, 0, 0, setting(2, 2))]],
    ['INITIAL_WINDOW_SIZE of 2^31', FLOW_CONTROL, [PREFACE, frame(SETTINGS, 0, 0, setting(4, 2 ** 31))]],
    ['MAX_FRAME_SIZE of 16383', PROTOCOL, [PREFACE, frame(SETTINGS, 0, 0, setting(5, 16_383))]],
    ['MAX_FRAME_SIZE of 2^24', PROTOCOL, [PREFACE, frame(SETTINGS, 0, 0, setting(5, 2 ** 24))]],
    [
      '33 settings in a frame',
      CALM,
      [PREFACE, frame(SETTINGS, 0, 0, Buffer.concat(Array.from({ length: 33 }, () => setting(3, 1))))],
    ],
    ['PING of seven bytes', FRAME_SIZE, [PREFACE, frame(PING, 0, 0, Buffer.alloc(7))]],
    ['PING on a stream', PROTOCOL, [PREFACE, frame(PING, 0, 1, Buffer.alloc(8))]],
    ['GOAWAY on a stream', PROTOCOL, [PREFACE, frame(GOAWAY, 0, 1, Buffer.alloc(8))]],
    ['GOAWAY of seven bytes', FRAME_SIZE, [PREFACE, frame(GOAWAY, 0, 0, Buffer.alloc(7))]],
    ['WINDOW_UPDATE of three bytes', FRAME_SIZE, [PREFACE, frame(WINDOW_UPDATE, 0, 0, Buffer.alloc(3))]],
    ['WINDOW_UPDATE with increment 0', PROTOCOL, [PREFACE, frame(WINDOW_UPDATE, 0, 0, number(0))]],
    ['WINDOW_UPDATE beyond 2^31', FLOW_CONTROL, [PREFACE, frame(WINDOW_UPDATE, 0, 0, number(2 ** 31 - 1))]],
    ['WINDOW_UPDATE on an idle stream', PROTOCOL, [PREFACE, frame(WINDOW_UPDATE, 0, 1, number(1))]],
    ['RST_STREAM of three bytes', FRAME_SIZE, [PREFACE, frame(RST_STREAM, 0, 1, Buffer.alloc(3))]],
    ['RST_STREAM on no stream', PROTOCOL, [PREFACE, frame(RST_STREAM, 0, 0, number(8))]],
    ['RST_STREAM on an idle stream', PROTOCOL, [PREFACE, frame(RST_STREAM, 0, 1, number(8))]],
    ['PRIORITY on no stream', PROTOCOL, [PREFACE, frame(PRIORITY, 0, 0, Buffer.alloc(5))]],
    ['PRIORITY of four bytes', FRAME_SIZE, [PREFACE, frame(PRIORITY, 0, 1, Buffer.alloc(4))]],
    ['PUSH_PROMISE', PROTOCOL, [PREFACE, frame(PUSH_PROMISE, END_HEADERS, 1, Buffer.alloc(4))]],
    ['CONTINUATION without HEADERS', PROTOCOL, [PREFACE, frame(CONTINUATION, END_HEADERS, 1, HEAD)]],
    [
      'CONTINUATION of another stream',
      PROTOCOL,
      [PREFACE, frame(HEADERS, 0, 1, HEAD), frame(CONTINUATION, END_HEADERS, 3, NOTHING)],
    ],
    ['DATA within headers', PROTOCOL, [PREFACE, frame(HEADERS, 0, 1, HEAD), frame(DATA, 0, 1, MESSAGE)]],
    [
      'an unknown frame within headers',
      PROTOCOL,
      [PREFACE, frame(HEADERS, 0, 1, HEAD), frame(99, 0, 1, MESSAGE)],
    ],
    ['HEADERS on no stream', PROTOCOL, [PREFACE, frame(HEADERS, END_HEADERS, 0, HEAD)]],
    ['HEADERS on an even stream', PROTOCOL, [PREFACE, frame(HEADERS, END_HEADERS, 2, HEAD)]],
    [
      'HEADERS with padding longer than they are',
      PROTOCOL,
      [PREFACE, frame(HEADERS, END_HEADERS | PADDED, 1, Buffer.concat([Buffer.of(255), HEAD]))],
    ],
    [
      'HEADERS too short for a priority',
      FRAME_SIZE,
      [PREFACE, frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, Buffer.alloc(4))],
    ],
    [
      'HEADERS too short for padding',
      FRAME_SIZE,
      [PREFACE, frame(HEADERS, END_HEADERS | PADDED, 1, NOTHING)],
    ],
    ['HEADERS that cannot be read', COMPRESSION, [PREFACE, frame(HEADERS, END_HEADERS, 1, Buffer.of(0x80))]],
    [
      'HEADERS of more than 64 KiB',
      CALM,
      [
        PREFACE,
        frame(HEADERS, 0, 1, HEAD),
        ...Array.from({ length: 5 }, () => frame(CONTINUATION, 0, 1, Buffer.alloc(16_384, 0x20))),
      ],
    ],
    [
      'HEADERS in more than 64 frames',
      CALM,
      [
        PREFACE,
        frame(HEADERS, 0, 1, HEAD),
        ...Array.from({ length: 64 }, () => frame(CONTINUATION, 0, 1, NOTHING)),
      ],
    ],
    [
      'HEADERS on a skipped stream',
      PROTOCOL,
      [PREFACE, callFrames(5, CALL, MESSAGE.subarray(0, 4)), frame(HEADERS, ENDED, 3, HEAD)],
    ],
    [
      'HEADERS on a closed stream',
      STREAM_CLOSED,
      [PREFACE, callFrames(1, CALL, NOTHING), frame(HEADERS, ENDED, 1, HEAD)],
    ],
    ['DATA on no stream', PROTOCOL, [PREFACE, frame(DATA, 0, 0, MESSAGE)]],
    ['DATA on an idle stream', PROTOCOL, [PREFACE, frame(DATA, 0, 1, MESSAGE)]],
    ['DATA on an even stream', PROTOCOL, [PREFACE, frame(DATA, 0, 2, MESSAGE)]],
    [
      'DATA with padding longer than it is',
      PROTOCOL,
      [PREFACE, frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, PADDED, 1, Buffer.of(3, 0, 0))],
    ],
    [
      'DATA too short for padding',
      PROTOCOL,
      [PREFACE, frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, PADDED, 1, NOTHING)],
    ],
    ['a frame of more than 16 KiB', FRAME_SIZE, [PREFACE, frame(99, 0, 0, Buffer.alloc(16_385))]],
    ['HTTP/1.1', PROTOCOL, [Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n')]],
  ])('the connection ends after %s with code %i', async (_what, code, parts) => {
    const client = await kit.open(...parts, callFrames(101, CALL, MESSAGE));
    expect(await client.goneAway()).toBe(code);
    await client.until(() => (client.over ? true : undefined));
    expect(kit.handled).toEqual([]);
    await kit.clean();
  });

  it.each<[string, (i: number) => Uint8Array]>([
    [
      'calls that are begun and reset',
      (i) =>
        Buffer.concat([
          frame(HEADERS, END_HEADERS, 2 * i + 1, HEAD),
          frame(RST_STREAM, 0, 2 * i + 1, number(8)),
        ]),
    ],
    ['SETTINGS', () => frame(SETTINGS, 0, 0, NOTHING)],
    ['malformed calls', (i) => frame(HEADERS, ENDED, 2 * i + 1, literal(':x', ''))],
    ['empty DATA', (i) => (i === 0 ? frame(HEADERS, END_HEADERS, 1, HEAD) : frame(DATA, 0, 1, NOTHING))],
  ])('the connection ends after a flood of %s with code 11', async (_what, part) => {
    const client = await kit.open(PREFACE, ...Array.from({ length: 12_000 }, (_, i) => part(i)));
    expect(await client.goneAway()).toBe(CALM);
    await kit.clean();
  });

  it('the connection ends after endless DATA for a finished call with code 11', async () => {
    const client = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
    await expectOk(client, 1);
    client.send(...Array.from({ length: 12_000 }, () => frame(DATA, 0, 1, MESSAGE)));
    expect((await client.next(RST_STREAM, 1))?.payload).toEqual(number(STREAM_CLOSED));
    expect(await client.goneAway()).toBe(CALM);
  });
});

describe('stream errors', () => {
  it.each<[string, number, Fields]>([
    ['an upper-case name', PROTOCOL, having('X-Y', 'z')],
    ['a line feed in a value', PROTOCOL, having('x', 'a\nb')],
    ['a blank around a value', PROTOCOL, having('x', ' a')],
    ['a pseudo-header after a header', PROTOCOL, [...without(':path'), [':path', METHOD]]],
    ['an unknown pseudo-header', PROTOCOL, [[':x', 'y'], ...CALL]],
    [':status', PROTOCOL, [[':status', '200'], ...CALL]],
    ['two paths', PROTOCOL, [[':path', METHOD], ...CALL]],
    ['two methods', PROTOCOL, [[':method', 'POST'], ...CALL]],
    ['two schemes', PROTOCOL, [[':scheme', 'http'], ...CALL]],
    ['two authorities', PROTOCOL, [[':authority', 'y'], ...CALL]],
    ['no method', PROTOCOL, without(':method')],
    ['no scheme', PROTOCOL, without(':scheme')],
    ['no path', PROTOCOL, without(':path')],
    ['an empty path', PROTOCOL, [[':path', ''], ...without(':path')]],
    ['connection', PROTOCOL, having('connection', 'close')],
    ['keep-alive', PROTOCOL, having('keep-alive', '1')],
    ['proxy-connection', PROTOCOL, having('proxy-connection', 'x')],
    ['transfer-encoding', PROTOCOL, having('transfer-encoding', 'chunked')],
    ['upgrade', PROTOCOL, having('upgrade', 'h2c')],
    ['te that is not trailers', PROTOCOL, having('te', 'trailers, gzip')],
    ['an invalid length', PROTOCOL, having('content-length', '1x')],
    ['two lengths', PROTOCOL, [...having('content-length', '10'), ['content-length', '11']]],
    ['a length above the received bytes', PROTOCOL, having('content-length', '11')],
    ['a length below the received bytes', PROTOCOL, having('content-length', '9')],
  ])('only the stream is reset for %s with code %i', async (_what, code, fields) => {
    const client = await kit.open(PREFACE, callFrames(1, fields, MESSAGE), callFrames(3, CALL, MESSAGE));
    expect((await client.answer(1)).reset).toBe(code);
    await expectOk(client, 3);
    expect(kit.handled).toEqual(['hello']);
  });

  it.each<[string, number, readonly Uint8Array[]]>([
    ['DATA after its end', STREAM_CLOSED, [frame(DATA, 0, 1, MESSAGE)]],
    ['HEADERS after its end', STREAM_CLOSED, [frame(HEADERS, ENDED, 1, literal('x', 'y'))]],
    ['WINDOW_UPDATE with increment 0', PROTOCOL, [frame(WINDOW_UPDATE, 0, 1, number(0))]],
    ['WINDOW_UPDATE beyond 2^31', FLOW_CONTROL, [frame(WINDOW_UPDATE, 0, 1, number(2 ** 31 - 1))]],
  ])('only the stream is reset for %s with code %i while its handler runs', async (_what, code, parts) => {
    const gate = kit.holdCalls();
    const client = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE), ...parts);
    expect((await client.answer(1)).reset).toBe(code);
    expect(kit.server.inFlight()).toBe(1);
    gate.open();
    await kit.clean();
    kit.answer = fine;
    client.send(callFrames(3, CALL, MESSAGE));
    await expectOk(client, 3);
    expect(client.frames.filter(({ type, stream }) => type === HEADERS && stream === 1)).toEqual([]);
    expect(kit.handled).toHaveLength(2);
  });

  it.each<[string, Uint8Array]>([
    ['trailers that do not end it', frame(HEADERS, END_HEADERS, 1, literal('x', 'y'))],
    ['trailers with a pseudo-header', frame(HEADERS, ENDED, 1, literal(':path', '/'))],
    ['trailers with connection', frame(HEADERS, ENDED, 1, literal('connection', 'close'))],
  ])('only the stream is reset for %s with code 1', async (_what, bytes) => {
    const begun = Buffer.concat([frame(HEADERS, END_HEADERS, 1, HEAD), frame(DATA, 0, 1, MESSAGE)]);
    const client = await kit.open(PREFACE, begun, bytes, callFrames(3, CALL, MESSAGE));
    expect((await client.answer(1)).reset).toBe(PROTOCOL);
    await expectOk(client, 3);
    expect(kit.handled).toEqual(['hello']);
  });

  it('only the stream is reset for a call above the limit, also while handlers of reset calls still run', async () => {
    const gate = kit.holdCalls();
    await kit.listen({ streamsMax: 3 });
    const client = await kit.open(PREFACE);
    for (let i = 0; i < 20; i++)
      client.send(callFrames(2 * i + 1, CALL, MESSAGE), frame(RST_STREAM, 0, 2 * i + 1, number(8)));
    client.send(callFrames(101, CALL, MESSAGE));
    expect((await client.answer(101)).reset).toBe(REFUSED);
    expect([kit.server.inFlight(), kit.handled.length]).toEqual([3, 3]);
    gate.open();
    await kit.clean();
    // The streams are free again.
    kit.answer = fine;
    for (const stream of [103, 105, 107, 109]) {
      client.send(callFrames(stream, CALL, MESSAGE));
      await expectOk(client, stream);
    }
  });
});

describe('refused calls', () => {
  const compressed = Buffer.from(MESSAGE);
  compressed[0] = 1;
  const unknown = Buffer.from(MESSAGE);
  unknown[0] = 2;
  it.each<[string, Readonly<Record<string, string>>, Fields, Uint8Array]>([
    ['GET', { ':status': '405', allow: 'POST' }, [[':method', 'GET'], ...without(':method')], MESSAGE],
    ['no content type', { ':status': '415' }, without('content-type'), MESSAGE],
    [
      'another content type',
      { ':status': '415' },
      [...without('content-type'), ['content-type', 'application/grpcx']],
      MESSAGE,
    ],
    ['two content types', { ':status': '415' }, having('content-type', 'application/grpc'), MESSAGE],
    ['no te', { 'grpc-status': '13' }, without('te'), MESSAGE],
    ['a timeout without a unit', { 'grpc-status': '13' }, having('grpc-timeout', '1'), MESSAGE],
    ['a timeout of nine digits', { 'grpc-status': '13' }, having('grpc-timeout', '123456789m'), MESSAGE],
    ['a timeout below zero', { 'grpc-status': '13' }, having('grpc-timeout', '-1m'), MESSAGE],
    [
      'two timeouts',
      { 'grpc-status': '13' },
      [...having('grpc-timeout', '1H'), ['grpc-timeout', '2H']],
      MESSAGE,
    ],
    ['a timeout that has passed', { 'grpc-status': '4' }, having('grpc-timeout', '0m'), MESSAGE],
    ['an unknown method', { 'grpc-status': '12' }, fieldsOf('/orders.v1.Orders/None'), MESSAGE],
    ['metadata above 64 KiB', { 'grpc-status': '8' }, having('x', 'y'.repeat(65_300)), MESSAGE],
    [
      'a compressed message',
      { 'grpc-status': '12', 'grpc-accept-encoding': 'identity' },
      having('grpc-encoding', 'gzip'),
      compressed,
    ],
    ['a compressed message without grpc-encoding', { 'grpc-status': '13' }, CALL, compressed],
    ['a message of another kind', { 'grpc-status': '13' }, CALL, unknown],
    ['two messages', { 'grpc-status': '12' }, CALL, Buffer.concat([MESSAGE, MESSAGE])],
    ['one byte after its message', { 'grpc-status': '12' }, CALL, Buffer.concat([MESSAGE, Buffer.of(0)])],
    ['no message', { 'grpc-status': '12' }, CALL, NOTHING],
    ['a part of a prefix', { 'grpc-status': '13' }, CALL, MESSAGE.subarray(0, 3)],
    ['a part of a message', { 'grpc-status': '13' }, CALL, MESSAGE.subarray(0, 8)],
    ['a message above its bound', { 'grpc-status': '8' }, CALL, Buffer.of(0, 0, 0, 0x9c, 0x41, 1)],
  ])('a call with %s is refused with a status and never handled', async (_what, fields, headers, body) => {
    const bytes = block(headers);
    const parts = [bytes.subarray(0, 16_000), bytes.subarray(16_000)] as const;
    const rest = Array.from({ length: Math.ceil(parts[1].length / 16_000) }, (_, i) =>
      frame(CONTINUATION, 0, 1, parts[1].subarray(i * 16_000, (i + 1) * 16_000)),
    );
    const sent = [frame(HEADERS, 0, 1, parts[0]), ...rest, frame(CONTINUATION, END_HEADERS, 1, NOTHING)];
    const client = await kit.open(PREFACE, ...sent, frame(DATA, END_STREAM, 1, body));
    const refused = await client.answer(1);
    expect(refused).toMatchObject({
      fields: { ':status': '200', ...fields },
      data: NOTHING,
      reset: undefined,
    });
    client.send(callFrames(3, CALL, MESSAGE));
    await expectOk(client, 3);
    expect(kit.handled).toEqual(['hello']);
    await kit.clean();
  });

  it('a refused call of an unfinished client is reset without an error, and its rest is ignored', async () => {
    const headers = frame(HEADERS, END_HEADERS, 1, block(fieldsOf('/x')));
    const client = await kit.open(PREFACE, headers);
    await client.next(RST_STREAM, 1);
    expect(client.frames.find(({ type }) => type === RST_STREAM)?.payload).toEqual(number(0));
    client.send(frame(DATA, 0, 1, MESSAGE), frame(HEADERS, ENDED, 1, literal('x', 'y')));
    client.send(callFrames(3, CALL, MESSAGE));
    await expectOk(client, 3);
  });
});
