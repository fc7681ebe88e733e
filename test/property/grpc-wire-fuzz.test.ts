/** Random bytes on a connection: the server still serves the other clients, handles no incomplete
 *  call, and keeps no state afterwards. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  DATA,
  END_HEADERS,
  END_STREAM,
  frame,
  HEADERS,
  PING,
  RST_STREAM,
  SETTINGS,
  WINDOW_UPDATE,
} from '../../src/io/grpc/http2/frames.ts';
import { CALL, expectOk, HEAD, MESSAGE, wireKit } from '../contract/grpc-wire-kit.ts';
import { callFrames, literal, NOTHING, number, PREFACE, setting } from '../contract/h2-raw.ts';
import { runs } from '../tier.ts';

const kit = wireKit();

/** Frames of valid calls, in any order. */
const validFrame = fc.constantFrom(
  callFrames(1, CALL, MESSAGE),
  callFrames(3, CALL, MESSAGE),
  callFrames(5, CALL, MESSAGE.subarray(0, 7)),
  frame(HEADERS, END_HEADERS, 7, HEAD),
  frame(HEADERS, 0, 9, HEAD.subarray(0, 20)),
  frame(DATA, END_STREAM, 7, MESSAGE),
  frame(DATA, 0, 7, MESSAGE.subarray(0, 3)),
  frame(HEADERS, END_HEADERS | END_STREAM, 7, literal('x', 'y')),
  frame(RST_STREAM, 0, 1, number(8)),
  frame(WINDOW_UPDATE, 0, 0, number(1000)),
  frame(WINDOW_UPDATE, 0, 1, number(1000)),
  frame(SETTINGS, 0, 0, setting(4, 3)),
  frame(SETTINGS, 0, 0, setting(1, 0)),
  frame(PING, 0, 0, Buffer.alloc(8)),
);
const anyFrame = fc
  .tuple(
    fc.integer({ min: 0, max: 11 }),
    fc.integer({ min: 0, max: 255 }),
    fc.integer({ min: 0, max: 9 }),
    fc.uint8Array({ maxLength: 60 }),
  )
  .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload));
const noise = fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes));
const parts = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: validFrame },
    { weight: 3, arbitrary: anyFrame },
    { weight: 1, arbitrary: noise },
  ),
  { maxLength: 30 },
);
/** Conversations with up to two changed bytes. */
const corrupted = fc
  .tuple(parts, fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 2 }))
  .map(([list, changes]) => {
    const bytes = Buffer.concat([PREFACE, ...list]);
    for (const [at, byte] of changes) bytes[at % bytes.length] = byte;
    return bytes;
  });

it('random conversations, corrupted and cut anywhere, leave no state behind', async () => {
  await fc.assert(
    fc.asyncProperty(corrupted, fc.array(fc.nat(), { maxLength: 3 }), async (bytes, cuts) => {
      const client = await kit.open();
      let from = 0;
      for (const at of [...cuts.map((cut) => cut % bytes.length).sort((a, b) => a - b), bytes.length]) {
        if (at > from) client.send(bytes.subarray(from, at));
        await new Promise((resolve) => setImmediate(resolve));
        from = at;
      }
      const honest = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
      await expectOk(honest, 1);
      honest.close();
      client.socket.end();
      await client.until(() => (client.over ? true : undefined));
    }),
    { numRuns: runs(600) },
  );
  await kit.clean();
  expect(kit.server.inFlight()).toBe(0);
  // A valid call of each kind delivers one message; a truncated call delivers none.
  expect(kit.handled.every((message) => message.length <= 64)).toBe(true);
});

it('a valid call with one changed byte is answered, refused or ends its connection', async () => {
  const bytes = Buffer.concat([PREFACE, callFrames(1, CALL, MESSAGE), frame(PING, 0, 0, NOTHING)]);
  for (let at = 0; at < bytes.length; at++) {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] as number) ^ (1 << (at % 8));
    const client = await kit.open(changed);
    client.socket.end();
    await client.until(() => (client.over ? true : undefined));
  }
  const honest = await kit.open(PREFACE, callFrames(1, CALL, MESSAGE));
  await expectOk(honest, 1);
  honest.close();
  await kit.clean();
});
