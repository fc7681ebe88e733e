/** Hostile bytes on the gRPC port: the service stays up and serves other clients meanwhile. */
import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  CONTINUATION,
  DATA,
  END_HEADERS,
  END_STREAM,
  ENHANCE_YOUR_CALM,
  frame,
  GOAWAY,
  HEADERS,
  PING,
  RST_STREAM,
  SETTINGS,
} from '../../src/io/grpc/http2/frames.ts';
import { block, fieldsOf, literal, NOTHING, PREFACE, RawH2 } from '../contract/h2-raw.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, until } from '../wait.ts';
import {
  bareCall,
  bareSession,
  framed,
  grpcAddress,
  METHOD,
  type OrdersClient,
  ordersClient,
} from './orders-grpc-kit.ts';
import { newKey, ordersKit, type Service } from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

let service: Service;
let client: OrdersClient;
let at: { readonly host: string; readonly port: number };
const sockets: Socket[] = [];

async function serve(): Promise<void> {
  const { schema } = await kit.schema();
  service = await kit.serve(schema);
  const address = await grpcAddress(service);
  client = ordersClient(address);
  const [host, port] = address.split(':') as [string, string];
  at = { host, port: Number(port) };
}
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});

/** Resident memory of the service, in bytes. */
const resident = (): number =>
  Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${service.process.pid}/status`, 'utf8'))?.[1]) * 1024;

async function expectServed(): Promise<void> {
  const outcome = await client.create(newKey(), undefined, { timeoutMs: 20_000 });
  expect(outcome.code).toBe('OK');
}

const HEAD = block(fieldsOf(METHOD));

interface Attack {
  readonly socket: Socket;
  /** All bytes that the service sent. */
  received(): Buffer;
}

function attack(...bytes: readonly Uint8Array[]): Attack {
  const socket = connect(at);
  sockets.push(socket);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk) => chunks.push(chunk));
  socket.on('error', () => {});
  socket.write(Buffer.concat(bytes));
  return { socket, received: () => Buffer.concat(chunks) };
}

/** Waits until the connection is closed or got a GOAWAY. */
async function untilClosed({ socket, received }: Attack): Promise<void> {
  await until('the end of the connection', async () =>
    socket.destroyed || frameTypes(received()).includes(GOAWAY) ? true : undefined,
  );
}

/** Types of the complete frames in these bytes. */
function frameTypes(bytes: Buffer): readonly number[] {
  const types: number[] = [];
  for (let from = 0; from + 9 <= bytes.length; from += 9 + bytes.readUIntBE(from, 3))
    types.push(bytes[from + 3] as number);
  return types;
}

describe('hostile gRPC clients', () => {
  beforeAll(serve);

  it.each<[string, readonly Uint8Array[]]>([
    ['noise', [Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 151 + 7) & 0xff))]],
    ['HTTP/1.1', [Buffer.from('POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}')]],
    ['half a preface and then noise', [PREFACE.subarray(0, 12), Buffer.alloc(64, 0xff)]],
    ['a frame of 16 MB', [PREFACE, Buffer.of(0xff, 0xff, 0xff, DATA, 0, 0, 0, 0, 1)]],
    ['data on a stream that is not open', [PREFACE, frame(DATA, 0, 7, Buffer.alloc(10))]],
    ['headers that do not decode', [PREFACE, frame(HEADERS, END_HEADERS, 1, Buffer.alloc(40, 0xff))]],
    ['a stream with an even number', [PREFACE, frame(HEADERS, END_HEADERS, 2, HEAD)]],
    ['settings on a stream', [PREFACE, frame(SETTINGS, 0, 1, NOTHING)]],
  ])('the attack with %s ends its own connection and no other', async (_what, bytes) => {
    await untilClosed(attack(...bytes));
    await expectServed();
  });

  it('headers of a megabyte end their call or connection, in one frame or in many', async () => {
    const before = resident();
    const long = literal('idempotency-key', 'a'.repeat(1 << 20));
    const parts = Array.from({ length: Math.ceil(long.length / 16_384) }, (_, i) =>
      frame(CONTINUATION, 0, 1, long.subarray(i * 16_384, (i + 1) * 16_384)),
    );
    const many = attack(
      PREFACE,
      frame(HEADERS, 0, 1, HEAD),
      ...parts,
      frame(CONTINUATION, END_HEADERS, 1, NOTHING),
    );
    await untilClosed(many);
    // An endless header block, whose bytes decode to no field.
    const endless = attack(PREFACE, frame(HEADERS, 0, 1, HEAD));
    const more = Buffer.concat(
      Array.from({ length: 64 }, () => frame(CONTINUATION, 0, 1, Buffer.alloc(16_000, 0x20))),
    );
    const writing = (async () => {
      for (; !endless.socket.destroyed; await pause(5)) endless.socket.write(more);
    })();
    await untilClosed(endless);
    await writing;
    await expectServed();
    expect(resident() - before).toBeLessThan(200 * 2 ** 20);
  });

  it('ten thousand immediately reset calls are cut off', async () => {
    const before = resident();
    const cancel = Buffer.of(0, 0, 0, 8);
    const calls = Array.from({ length: 10_000 }, (_, i) => [
      frame(HEADERS, END_HEADERS, 2 * i + 1, HEAD),
      frame(RST_STREAM, 0, 2 * i + 1, cancel),
    ]).flat();
    const reset = attack(PREFACE, ...calls);
    await Promise.all([expectServed(), untilClosed(reset)]);
    await expectServed();
    expect(resident() - before).toBeLessThan(300 * 2 ** 20);
  });

  it('calls above the limit of one connection are refused, and incomplete calls hold little memory', async () => {
    const before = resident();
    const { socket, received } = attack(
      PREFACE,
      ...Array.from({ length: 3000 }, (_, i) => frame(HEADERS, END_HEADERS, 2 * i + 1, HEAD)),
    );
    await expectServed();
    // The service sends RST_STREAM for each call above the 1024.
    await until('the refusals', async () => {
      const refused = frameTypes(received()).filter((type) => type === RST_STREAM).length;
      return socket.destroyed || refused >= 1000 ? true : undefined;
    });
    expect(resident() - before).toBeLessThan(200 * 2 ** 20);
  });

  it('a flood of pings and settings is answered or cut off', async () => {
    const before = resident();
    const flood = Buffer.concat(
      Array.from({ length: 20_000 }, () => [
        frame(PING, 0, 0, Buffer.alloc(8)),
        frame(SETTINGS, 0, 0, NOTHING),
      ]).flat(),
    );
    const { socket } = attack(PREFACE, flood);
    socket.pause();
    await expectServed();
    socket.resume();
    await expectServed();
    expect(resident() - before).toBeLessThan(200 * 2 ** 20);
  });

  it.each(['idempotency-key', 'traceparent'])(
    '60,000 spaces in %s are handled like any other invalid value',
    async (name) => {
      const session = bareSession(`${at.host}:${at.port}`);
      const spaces = `a,b${' '.repeat(60_000)}c`;
      const key = () => (name === 'idempotency-key' ? {} : { 'idempotency-key': newKey() });
      const answer = await bareCall(session, { ...key(), [name]: spaces }, framed(Buffer.of(8, 7, 16, 9)));
      // An invalid traceparent is ignored.
      expect(answer.status).toBe(name === 'traceparent' ? '0' : '3');
      await expectServed();
    },
  );

  it('messages that claim four gigabytes hold no memory', async () => {
    const before = resident();
    const claim = Buffer.from([0, 0xff, 0xff, 0xff, 0xff]);
    const { received } = attack(
      PREFACE,
      ...Array.from({ length: 500 }, (_, i) => [
        frame(HEADERS, END_HEADERS, 2 * i + 1, HEAD),
        frame(DATA, END_STREAM, 2 * i + 1, claim),
      ]).flat(),
    );
    await expectServed();
    await until('the refusals', async () =>
      frameTypes(received()).filter((type) => type === HEADERS).length === 500 ? true : undefined,
    );
    expect(resident() - before).toBeLessThan(200 * 2 ** 20);
  });

  it('the service exits with 0 after the attacks', async () => {
    await expectServed();
    expect(await client.health()).toBe('SERVING');
    await service.process.drain();
  });
});

describe('-connections-per-address', () => {
  it('connections of a client above -connections-per-address get GOAWAY and are counted', async () => {
    const { schema } = await kit.schema();
    const limited = await kit.serve(schema, ['-connections-per-address=3']);
    const port = Number((await grpcAddress(limited)).split(':')[1]);
    const opened: RawH2[] = [];
    for (let i = 0; i < 3; i++) {
      const one = await RawH2.open(port);
      sockets.push(one.socket);
      await one.send(PREFACE).next(SETTINGS, 0);
      opened.push(one);
    }
    const above = await RawH2.open(port);
    sockets.push(above.socket);
    expect(await above.goneAway()).toBe(ENHANCE_YOUR_CALM);
    const { body } = await limited.ask({ path: '/metrics' });
    expect(body.toString()).toMatch(/^orders_grpc_connections_refused_total\{limit="address"\} 1$/m);
  });
});
