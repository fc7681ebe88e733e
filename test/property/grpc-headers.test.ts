/** Headers that node:http2 sends reach a handler unchanged, for any dynamic table and any Huffman
 *  coding. */
import { type ClientHttp2Session, connect, type OutgoingHttpHeaders } from 'node:http2';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import { HeaderList, HpackDecoder, writeHeaders } from '../../src/io/grpc/http2/hpack.ts';
import type { GrpcCall, GrpcServer } from '../../src/io/grpc/port.ts';
import { wireGrpcDriver } from '../../src/io/grpc/service/server.ts';
import { bareCall, framed, PROTOS } from '../e2e/orders-grpc-kit.ts';
import { runs } from '../tier.ts';

let server: GrpcServer;
const sessions: ClientHttp2Session[] = [];
let seen: (call: GrpcCall) => void = () => {};

beforeAll(async () => {
  server = await wireGrpcDriver.listen({
    host: '127.0.0.1',
    port: 0,
    methods: [
      {
        service: 'orders.v1.Orders',
        name: 'Create',
        handler: (call) => {
          seen(call);
          return { code: 'OK', message: call.message };
        },
      },
    ],
    protos: { folder: PROTOS, files: ['orders/v1/orders.proto'] },
    healthy: async () => true,
    healthIntervalMs: 1000,
    messageBytesMax: 1024,
    connectionsMax: 100,
    streamsMax: 100,
    heldBytesMax: 64 * 2 ** 20,
    requestTimeoutMs: 10_000,
    idleTimeoutMs: 60_000,
    keepAliveMs: 60_000,
    log: silentLogger,
  });
});
afterAll(async () => {
  for (const session of sessions) session.destroy();
  await server.drain(0);
});

function session(headerTableSize: number): ClientHttp2Session {
  const one = connect(`http://127.0.0.1:${server.port}`, { settings: { headerTableSize } });
  one.on('error', () => {});
  sessions.push(one);
  return one;
}

const name = fc.stringMatching(/^[a-z][a-z0-9_.-]{0,20}$/).map((text) => `x-${text}`);
/** Values without commas and without leading or trailing blanks: a comma separates values, and
 *  blanks around it are not part of a value. */
const value = fc
  .array(
    fc.oneof(
      fc.integer({ min: 0x21, max: 0x7e }),
      fc.constant(0x20),
      fc.integer({ min: 0xa1, max: 0xff }),
      fc.constantFrom(0x61, 0x30, 0x65),
    ),
    { maxLength: 120 },
  )
  .map((codes) =>
    String.fromCharCode(...codes)
      .replaceAll(',', ';')
      .trim(),
  );
const headers = fc.dictionary(name, value, { maxKeys: 12 });

describe('gRPC metadata', () => {
  it.each([4096, 0])(
    'metadata arrives as it was sent, with a table of %i bytes for answers',
    async (tableBytes) => {
      // Values recur, so that the dynamic tables are used.
      const client = session(tableBytes);
      await fc.assert(
        fc.asyncProperty(fc.array(headers, { minLength: 1, maxLength: 3 }), async (lists) => {
          for (const list of [...lists, ...lists]) {
            const given: Record<string, readonly string[]> = {};
            seen = (call) => {
              for (const key of Object.keys(list)) given[key] = call.metadata(key);
            };
            const answer = await bareCall(client, { ...list } as OutgoingHttpHeaders, framed(Buffer.of(1)));
            expect(answer.status).toBe('0');
            expect(given).toEqual(Object.fromEntries(Object.entries(list).map(([key, one]) => [key, [one]])));
          }
        }),
        { numRuns: runs(100) },
      );
    },
  );

  it('written metadata is read back unchanged', () => {
    fc.assert(
      fc.property(headers, (list) => {
        const fields = Object.entries(list).flat();
        const bytes = writeHeaders(fields);
        const read = new HeaderList();
        expect(new HpackDecoder().read(bytes, 0, bytes.length, read)).toBe(true);
        expect(read.sound).toBe(true);
        expect(read.fields).toEqual(fields);
      }),
    );
  });

  it('random header bytes are refused or read, and never exceed the bound', () => {
    fc.assert(
      fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 5 }), (blocks) => {
        const decoder = new HpackDecoder();
        for (const one of blocks) {
          const list = new HeaderList();
          const bytes = Buffer.from(one);
          if (!decoder.read(bytes, 0, bytes.length, list)) return;
          expect(list.fields.length % 2).toBe(0);
          expect(list.bytes).toBeLessThan(200 * 4200);
        }
      }),
      { numRuns: runs(2000) },
    );
  });
});
