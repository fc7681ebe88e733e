/** The node:net driver, frame by frame: valid input in any chunks, flow control, and the ends of
 *  connections. No call is handled twice, or from a part of its message. */
import { describe, expect, it } from 'vitest';
import {
  ACK,
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
  SETTINGS,
  WINDOW_UPDATE,
  WITH_PRIORITY,
} from '../../src/io/grpc/http2/frames.ts';
import { framed } from '../e2e/orders-grpc-kit.ts';
import { until } from '../wait.ts';
import { CALL, expectOk, HEAD, MESSAGE, wireKit } from './grpc-wire-kit.ts';
import { callFrames, literal, NOTHING, number, PREFACE, type RawH2, setting } from './h2-raw.ts';

const FLOW_CONTROL = 3;
const CALM = 11;
const ENDED = END_HEADERS | END_STREAM;

const kit = wireKit();

describe('accepted frames', () => {
  it('a call is accepted in frames of any size, padded, with priorities, and among unknown frames', async () => {
    const priority = Buffer.alloc(5);
    const padded = (bytes: Uint8Array): Buffer => Buffer.concat([Buffer.of(4), bytes, Buffer.alloc(4)]);
    const client = await kit.open(
      PREFACE,
      frame(99, 7, 0, MESSAGE),
      frame(PRIORITY, 0, 77, priority),
      frame(
        HEADERS,
        PADDED | WITH_PRIORITY,
        1,
        Buffer.concat([Buffer.of(2), priority, HEAD.subarray(0, 10), Buffer.alloc(2)]),
      ),
      ...[...HEAD.subarray(10, 40)].map((byte) => frame(CONTINUATION, 0, 1, Buffer.of(byte))),
      frame(CONTINUATION, END_HEADERS, 1, HEAD.subarray(40)),
      frame(99, 7, 1, MESSAGE),
      ...[...MESSAGE].map((byte) => frame(DATA, PADDED, 1, padded(Buffer.of(byte)))),
      frame(DATA, 0, 1, NOTHING),
      frame(HEADERS, ENDED, 1, literal('x-trailer', 'y')),
    );
    expect(await client.answer(1)).toMatchObject({
      fields: { 'grpc-status': '0' },
      data: framed(Buffer.from('fine')),
    });
    expect(kit.handled).toEqual(['hello']);
  });

  it('padding reopens the flow-control window, however long it continues', async () => {
    const client = await kit.open(PREFACE, frame(HEADERS, END_HEADERS, 1, HEAD));
    const byte = (one: number): Buffer =>
      frame(DATA, PADDED, 1, Buffer.concat([Buffer.of(255, one), Buffer.alloc(255)]));
    const message = framed(Buffer.alloc(1000, 120));
    client.send(...[...message].map(byte));
    await client.next(WINDOW_UPDATE, 1);
    client.send(frame(DATA, END_STREAM, 1, NOTHING));
    await expectOk(client, 1);
    expect(kit.handled).toEqual(['x'.repeat(1000)]);
  });

  it('a stream of frames may be cut anywhere, and each call is handled once', async () => {
    const bytes = Buffer.concat([
      PREFACE,
      callFrames(1, CALL, MESSAGE),
      frame(PING, 0, 0, Buffer.from('12345678')),
      callFrames(3, CALL, framed(NOTHING)),
    ]);
    for (let at = 1; at < bytes.length; at++) {
      kit.handled = [];
      const client = await kit.open(bytes.subarray(0, at));
      // The second part is sent in a later turn of the event loop.
      await client.next(SETTINGS, 0);
      client.send(bytes.subarray(at));
      const answers = [await client.answer(1), await client.answer(3)];
      expect(answers.map(({ fields }) => fields['grpc-status'])).toEqual(['0', '0']);
      expect(kit.handled).toEqual(['hello', '']);
      client.close();
    }
    await kit.clean();
  });

  it('a ping is answered with its bytes', async () => {
    const client = await kit.open(PREFACE, frame(PING, 0, 0, Buffer.from('12345678')));
    expect(await client.next(PING, 0)).toMatchObject({ flags: 1, payload: Buffer.from('12345678') });
  });
});

describe('flow control', () => {
  it('an answer is sent in pieces as the windows of stream and connection open', async () => {
    const message = Buffer.alloc(50_000, 'abc');
    kit.answer = () => ({ code: 'OK', message });
    const client = await kit.open(
      PREFACE,
      frame(SETTINGS, 0, 0, setting(4, 100)),
      callFrames(1, CALL, MESSAGE),
    );
    const sizes = (): readonly number[] =>
      client.frames.filter(({ type }) => type === DATA).map(({ payload }) => payload.length);
    await client.until(() => (sizes().length === 1 ? true : undefined));
    // Closes the stream's window; bytes opened before count against the next update.
    client.send(frame(SETTINGS, 0, 0, setting(4, 0)), frame(WINDOW_UPDATE, 0, 1, number(150)));
    await client.until(() => (sizes().length === 2 ? true : undefined));
    expect(sizes()).toEqual([100, 50]);
    client.send(frame(WINDOW_UPDATE, 0, 1, number(100_000)));
    const ended = await client.answer(1);
    expect(ended.data).toEqual(framed(message));
    expect(ended.fields['grpc-status']).toBe('0');
    expect(Math.max(...sizes())).toBeLessThanOrEqual(16_384);
    // The connection has a window of 65,535 bytes: the second answer must wait.
    client.send(frame(SETTINGS, 0, 0, setting(4, 1_000_000)), callFrames(3, CALL, MESSAGE));
    await client.until(() => (sizes().reduce((sum, size) => sum + size, 0) === 65_535 ? true : undefined));
    client.send(frame(PING, 0, 0, Buffer.alloc(8)));
    await client.next(PING, 0);
    expect(sizes().reduce((sum, size) => sum + size, 0)).toBe(65_535);
    client.send(frame(WINDOW_UPDATE, 0, 0, number(50_000)));
    expect((await client.answer(3)).data).toEqual(framed(message));
    await kit.clean();
  });

  it('the connection ends if SETTINGS open a window beyond 2^31', async () => {
    kit.answer = () => new Promise(() => {});
    const client = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
    client.send(
      frame(WINDOW_UPDATE, 0, 1, number(2 ** 31 - 1 - 65_535)),
      frame(SETTINGS, 0, 0, setting(4, 65_536)),
    );
    expect(await client.goneAway()).toBe(FLOW_CONTROL);
  });

  /** Client with open windows that reads nothing, and this many calls with answers of 30 kB. */
  async function unread(calls: number): Promise<RawH2> {
    const message = Buffer.alloc(30_000);
    kit.answer = () => ({ code: 'OK', message });
    const client = await kit.open(PREFACE, frame(SETTINGS, 0, 0, setting(4, 2 ** 31 - 1)));
    client.send(frame(WINDOW_UPDATE, 0, 0, number(2 ** 31 - 1 - 65_535)));
    client.socket.pause();
    for (let i = 0; i < calls; i++) client.send(callFrames(2 * i + 1, CALL, MESSAGE));
    return client;
  }

  it('the server pauses for a client that does not read, and resumes when the client reads', async () => {
    await kit.listen({ heldBytesMax: 2 ** 30, streamsMax: 2000 });
    const calls = 1500;
    const client = await unread(calls);
    let before = 0;
    await until('a server that waits', async () => {
      const handled = kit.handled.length;
      const waits = handled > 0 && handled === before;
      before = handled;
      return waits ? true : undefined;
    });
    expect(kit.handled.length).toBeLessThan(calls);
    client.socket.resume();
    await expectOk(client, 2 * calls - 1);
    expect(kit.handled.length).toBe(calls);
    await kit.clean();
  });

  it('the connection of a client that never reads is ended', async () => {
    await kit.listen({ requestTimeoutMs: 2000, streamsMax: 2000 });
    await unread(1500);
    await until('no connection', async () => (kit.server.connections() === 0 ? true : undefined));
    await kit.clean();
  });
});

describe('end of a connection', () => {
  it('a drain announces itself twice, serves calls in transit and refuses later calls', async () => {
    const gate = kit.holdCalls();
    const client = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
    await until('the call', async () => (gate.waiting() === 1 ? true : undefined));
    const drained = kit.server.drain(20_000);
    const first = await client.next(GOAWAY, 0);
    expect(first?.payload.readUInt32BE(0)).toBe(2 ** 31 - 1);
    const asked = (await client.next(PING, 0))?.payload as Buffer;
    client.send(callFrames(3, CALL, MESSAGE), frame(PING, 1, 0, asked), callFrames(5, CALL, MESSAGE));
    const second = await client.until(() => client.frames.filter(({ type }) => type === GOAWAY)[1]);
    expect([second?.payload.readUInt32BE(0), second?.payload.readUInt32BE(4)]).toEqual([3, 0]);
    gate.open();
    for (const stream of [1, 3]) await expectOk(client, stream);
    await drained;
    await client.until(() => (client.over ? true : undefined));
    expect(client.frames.filter(({ stream }) => stream === 5)).toEqual([]);
    expect(kit.handled).toHaveLength(2);
  });

  it('the connection of a client that sends GOAWAY ends after the calls in flight', async () => {
    const gate = kit.holdCalls();
    const client = await kit.open(
      PREFACE,
      callFrames(1, CALL, MESSAGE),
      frame(GOAWAY, 0, 0, Buffer.alloc(8)),
    );
    await until('the call', async () => (kit.server.inFlight() === 1 ? true : undefined));
    gate.open();
    await expectOk(client, 1);
    await client.until(() => (client.over ? true : undefined));
  });

  it('the connection of a client that stays silent or answers no ping is ended', async () => {
    await kit.listen({ keepAliveMs: 100, requestTimeoutMs: 2000 });
    const silent = await kit.open(PREFACE);
    expect((await silent.next(PING, 0))?.flags).toBe(0);
    await silent.until(() => (silent.over ? true : undefined));
    const silentClients = [
      await kit.open(),
      await kit.open(PREFACE.subarray(0, 10)),
      await kit.open(PREFACE.subarray(0, 24)),
    ];
    for (const one of silentClients) await one.until(() => (one.over ? true : undefined));
  });

  it('the connection of a client that never ends its headers is ended', async () => {
    await kit.listen({ requestTimeoutMs: 2000 });
    const endless = await kit.open(PREFACE, frame(HEADERS, 0, 1, HEAD));
    expect(await endless.goneAway()).toBe(CALM);
  });

  it('the connection of a client that answers pings stays open', async () => {
    await kit.listen({ keepAliveMs: 50, requestTimeoutMs: 20_000 });
    const client = await kit.open(PREFACE);
    for (let i = 1; i <= 12; i++) {
      const asked = await client.until(() => client.frames.filter(({ type }) => type === PING)[i - 1]);
      client.send(frame(PING, 1, 0, asked?.payload as Buffer));
    }
    client.send(callFrames(1, CALL, MESSAGE));
    await expectOk(client, 1);
  });
});

describe('cheap floods', () => {
  const ping = frame(PING, 0, 0, Buffer.from('12345678'));
  const floods: ReadonlyArray<readonly [string, Buffer]> = [
    ['PINGs', ping],
    ['answers to PINGs that were not sent', frame(PING, ACK, 0, Buffer.alloc(8))],
    ['SETTINGS', frame(SETTINGS, 0, 0, NOTHING)],
    ['acknowledgements of SETTINGS', frame(SETTINGS, ACK, 0, NOTHING)],
  ];
  // Number of frames, far above the burst, so that the budget regained meanwhile does not matter.
  const FLOOD = 40_000;
  it.each(floods)('a flood of %s ends its connection with ENHANCE_YOUR_CALM', async (_what, one) => {
    const client = await kit.open(PREFACE, Buffer.concat(new Array<Buffer>(FLOOD).fill(one)));
    expect(await client.goneAway()).toBe(CALM);
  });

  it('a PING with each call is not counted, for any number of calls', async () => {
    const client = await kit.open(PREFACE);
    const calls = 4000;
    const perChunk = 50;
    for (let from = 0; from < calls; from += perChunk) {
      const ids = Array.from({ length: perChunk }, (_, i) => 2 * (from + i) + 1);
      client.send(...ids.flatMap((id) => [callFrames(id, CALL, MESSAGE), ping]));
      await client.answer(ids.at(-1) as number);
      client.frames.length = 0;
    }
    expect(kit.handled.length).toBe(calls);
  });
});

describe('connection limits', () => {
  it.each([
    ['total', { connectionsMax: 2 }],
    ['address', { connectionsMax: 100, connectionsPerAddressMax: 2 }],
  ] as const)(
    'connections above the limit (%s) get GOAWAY with ENHANCE_YOUR_CALM until another connection ends',
    async (limit, over) => {
      const refused: string[] = [];
      await kit.listen({ ...over, onConnectionRefused: (why) => refused.push(why) });
      const first = await kit.open(PREFACE);
      const second = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
      await expectOk(second, 1);
      expect(kit.server.connections()).toBe(2);
      const above = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
      expect(await above.goneAway()).toBe(CALM);
      expect(refused).toEqual([limit]);
      await above.until(() => undefined);
      first.close();
      await until('room for another one', async () => (kit.server.connections() === 1 ? true : undefined));
      const next = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
      await expectOk(next, 1);
      expect(kit.handled.length).toBe(2);
    },
  );
});
