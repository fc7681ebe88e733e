/** Contract of the gRPC driver, apart from the answers of a product: bounds in time and number,
 *  and the ends of calls and connections. */
import { once } from 'node:events';
import { type ClientHttp2Session, connect as connectH2, type Settings } from 'node:http2';
import { connect as connectTcp, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import protobuf from 'protobufjs';
import { afterEach, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import type {
  GrpcCall,
  GrpcCallEnd,
  GrpcDriver,
  GrpcReply,
  GrpcServer,
  GrpcServerOptions,
} from '../../src/io/grpc/port.ts';
import { CALL_BYTES } from '../../src/io/grpc/service/common.ts';
import { wireGrpcDriver } from '../../src/io/grpc/service/server.ts';
import { bareCall, bareSession, framed, METHOD, PROTOS } from '../e2e/orders-grpc-kit.ts';
import { until } from '../wait.ts';
import { certificate } from '../../src/devstack/certificates.ts';
import { gate } from './http-harness.ts';

const OK: GrpcReply = {
  code: 'OK',
  message: new Uint8Array([1, 2]),
  trailers: { 'idempotency-replayed': 'false' },
};
const MESSAGE = framed(Buffer.of(1));

const servers: GrpcServer[] = [];
const sockets: Socket[] = [];
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  for (const server of servers.splice(0)) await server.drain(0);
});

interface Over extends Partial<GrpcServerOptions> {
  readonly handler?: (call: GrpcCall) => GrpcReply | Promise<GrpcReply>;
}

async function listenWith(driver: GrpcDriver, over: Over = {}): Promise<GrpcServer> {
  const { handler = () => OK, ...rest } = over;
  const server = await driver.listen({
    host: '127.0.0.1',
    port: 0,
    methods: [{ service: 'orders.v1.Orders', name: 'Create', handler }],
    protos: { folder: PROTOS, files: ['orders/v1/orders.proto'] },
    healthy: async () => true,
    healthIntervalMs: 50,
    messageBytesMax: 1024,
    connectionsMax: 100,
    streamsMax: 100,
    heldBytesMax: 64 * 2 ** 20,
    requestTimeoutMs: 10_000,
    idleTimeoutMs: 60_000,
    keepAliveMs: 60_000,
    log: silentLogger,
    ...rest,
  });
  servers.push(server);
  return server;
}

const sessionOf = (server: GrpcServer, settings?: Settings) =>
  bareSession(`${server.host}:${server.port}`, settings);

/** Sends a call with these bytes and no end.
 *  @returns its status, if any */
async function stall(
  session: ClientHttp2Session,
  bytes: Uint8Array,
  path = METHOD,
): Promise<{ readonly status: string | undefined }> {
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
  });
  let status: string | undefined;
  stream.on('response', (headers) => {
    status = headers['grpc-status'] as string | undefined;
  });
  stream.resume();
  stream.write(bytes);
  await once(stream, 'close');
  return { status };
}

function tcp(server: GrpcServer): Socket {
  const socket = connectTcp(server.port, server.host);
  socket.on('error', () => {});
  sockets.push(socket);
  return socket;
}

describe('gRPC server', () => {
  const listen = (over?: Over): Promise<GrpcServer> => listenWith(wireGrpcDriver, over);

  it('the gRPC server answers calls, counts answers and reports the calls in flight', async () => {
    let finish: (reply: GrpcReply) => void = () => {};
    const answers: string[] = [];
    const server = await listen({
      handler: () => new Promise((resolve) => (finish = resolve)),
      onAnswer: ({ method, code, seconds }) => answers.push(`${method} ${code} ${seconds >= 0}`),
    });
    const call = bareCall(sessionOf(server), {}, MESSAGE);
    await until('the call', async () => (server.inFlight() === 1 ? true : undefined));
    expect(server.connections()).toBe(1);
    finish(OK);
    expect((await call).status).toBe('0');
    expect(server.inFlight()).toBe(0);
    expect(answers).toEqual(['Create OK true']);
  });

  it('an error that a handler throws becomes INTERNAL without its text, and the server continues', async () => {
    const server = await listen({
      handler: () => {
        throw new Error('secret words');
      },
    });
    const session = sessionOf(server);
    for (let i = 0; i < 2; i++) {
      const answer = await bareCall(session, {}, MESSAGE);
      expect(answer).toMatchObject({ status: '13', text: 'the call could not be handled' });
    }
  });

  it('a handler gets the message and each metadata entry, by any case of its name', async () => {
    const seen: unknown[] = [];
    const server = await listen({
      handler: (call) => {
        const values = ['x-one', 'X-TWO', 'x-joined', 'x-long', 'x-none'].map((name) => call.metadata(name));
        seen.push([Buffer.from(call.message).toString('hex'), ...values, call.cancelled()]);
        return OK;
      },
    });
    const long = `${'a'.repeat(200)},${'b'.repeat(200)}`;
    const headers = { 'x-one': 'a b', 'x-two': ['1', '2'], 'x-joined': 'k, l', 'x-long': long };
    expect((await bareCall(sessionOf(server), headers, MESSAGE)).status).toBe('0');
    expect(seen).toEqual([['01', ['a b'], ['1', '2'], ['k', 'l'], [long], [], false]]);
  });

  it('an answer carries the code, the text, the trailers and the details that the handler gives', async () => {
    const text = 'zażółć 100% \u{1f600}\n';
    const server = await listen({
      handler: () => ({
        code: 'ALREADY_EXISTS',
        message: new Uint8Array(0),
        text,
        trailers: { 'x-more': 'yes' },
        details: [{ kind: 'retry_info', delayMs: 1500 }],
      }),
    });
    const answer = await bareCall(sessionOf(server), {}, MESSAGE);
    expect(answer).toEqual({
      status: '6',
      text,
      details: [{ type: 'RetryInfo', retryDelay: { seconds: 1, nanos: 500_000_000 } }],
    });
  });

  it('a handler learns that its client disconnected, and the call counts as cancelled', async () => {
    const codes: string[] = [];
    let handled: GrpcCall | undefined;
    let finish: (reply: GrpcReply) => void = () => {};
    const server = await listen({
      handler: (call) => {
        handled = call;
        return new Promise((resolve) => (finish = resolve));
      },
      onAnswer: ({ code }) => codes.push(code),
    });
    const session = sessionOf(server);
    const call = bareCall(session, {}, MESSAGE).catch(() => undefined);
    await until('the call', async () => handled);
    expect(handled?.cancelled()).toBe(false);
    session.destroy();
    await call;
    await until('the end of the call', async () => (handled?.cancelled() ? true : undefined));
    expect(server.inFlight()).toBe(1);
    finish(OK);
    await until('the count', async () => codes[0]);
    expect(codes).toEqual(['CANCELLED']);
    expect(server.inFlight()).toBe(0);
    await until('nothing held', async () => (server.heldBytes() === 0 ? true : undefined));
  });

  it("an answer larger than the client's flow-control windows is delivered whole", async () => {
    const message = Buffer.alloc(1_000_000, 'ab');
    const server = await listen({ handler: () => ({ code: 'OK', message }) });
    const session = sessionOf(server, { initialWindowSize: 1000 });
    const sizes = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const stream = session.request({
          ':method': 'POST',
          ':path': METHOD,
          'content-type': 'application/grpc',
          te: 'trailers',
        });
        stream.end(MESSAGE);
        const bytes = await buffer(stream);
        return bytes.subarray(5).equals(message) ? bytes.length : bytes;
      }),
    );
    expect(sizes).toEqual(sizes.map(() => message.length + 5));
  });

  it('a call whose client timed out is counted by its outcome', async () => {
    const codes: string[] = [];
    let finish: (reply: GrpcReply) => void = () => {};
    const server = await listen({
      handler: () => new Promise((resolve) => (finish = resolve)),
      onAnswer: ({ code }) => codes.push(code),
    });
    const late = await bareCall(sessionOf(server), { 'grpc-timeout': '1500m' }, MESSAGE);
    expect(late.status).toBe('4');
    finish(OK);
    await until('the count', async () => codes[0]);
    expect(codes).toEqual(['DEADLINE_EXCEEDED']);
  });

  it('the server ends calls that stay incomplete, and serves the other calls of the connection', async () => {
    const ends: GrpcCallEnd[] = [];
    const server = await listen({ requestTimeoutMs: 3000, onEnd: (why) => ends.push(why) });
    const session = sessionOf(server);
    const stalled = stall(session, MESSAGE.subarray(0, 3));
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
    expect(await stalled).toMatchObject({ status: '4' });
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
    expect(ends).toEqual(['incomplete']);
    await until('nothing held', async () => (server.heldBytes() === 0 ? true : undefined));
  });

  it('the server ends calls whose client never reads the answer, and serves its other calls', async () => {
    const ends: GrpcCallEnd[] = [];
    const server = await listen({ requestTimeoutMs: 3000, onEnd: (why) => ends.push(why) });
    const session = sessionOf(server, { initialWindowSize: 0 });
    const unread = Array.from({ length: 20 }, () => bareCall(session, {}, MESSAGE));
    // RST_STREAM with CANCEL, so without a status.
    for (const { status } of await Promise.all(unread)) expect(status).toBeUndefined();
    expect(ends).toEqual(unread.map(() => 'unread'));
    await until('nothing held', async () => (server.heldBytes() === 0 ? true : undefined));
    // An answer of headers alone needs no window.
    const unknown = await bareCall(session, { ':path': '/orders.v1.Orders/None' }, MESSAGE);
    expect(unknown.status).toBe('12');
  });

  it('the memory held by all calls is bounded, and new calls are accepted when old ones end', async () => {
    const ends: GrpcCallEnd[] = [];
    const heldBytesMax = 4 * 2 ** 20;
    const server = await listen({
      messageBytesMax: 64 * 1024,
      heldBytesMax,
      onEnd: (why) => ends.push(why),
    });
    // Each call counts a base cost and at least 40 KiB of a message of 60 KiB.
    const part = framed(Buffer.alloc(60 * 1024)).subarray(0, 40 * 1024);
    const sessions = Array.from({ length: 3 }, () => sessionOf(server));
    const statuses: Array<string | undefined> = [];
    for (let i = 0; i < 120; i++) {
      const session = sessions[i % 3] as (typeof sessions)[number];
      stall(session, part).then(
        ({ status }) => statuses.push(status),
        () => {},
      );
    }
    await until('refused calls', async () => (statuses.length >= 40 ? true : undefined));
    expect(new Set(statuses)).toEqual(new Set(['8']));
    expect(new Set(ends)).toEqual(new Set(['memory']));
    expect(server.heldBytes()).toBeLessThanOrEqual(heldBytesMax * 1.25);
    expect(server.heldBytes()).toBeGreaterThan(heldBytesMax / 4);
    for (const session of sessions) session.destroy();
    await until('nothing held', async () => (server.heldBytes() === 0 ? true : undefined));
    expect((await bareCall(sessionOf(server), {}, MESSAGE)).status).toBe('0');
  });

  it('clients that keep Watch open leave room for the other methods', async () => {
    const server = await listen({ heldBytesMax: 40 * CALL_BYTES });
    const session = sessionOf(server);
    const watch = (name: string) => {
      const request = framed(Buffer.concat([Buffer.of(10, name.length), Buffer.from(name)]));
      return bareCall(session, { ':path': '/grpc.health.v1.Health/Watch' }, request);
    };
    const refused: Array<string | undefined> = [];
    for (let i = 0; i < 30; i++)
      watch(`absent ${i}`).then(
        ({ status }) => refused.push(status),
        () => {},
      );
    await until('refused watches', async () => (refused.length >= 10 ? true : undefined));
    expect(new Set(refused)).toEqual(new Set(['8']));
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
  });

  it('reflection describes map fields as protoc does, so that every client reads them', async () => {
    const session = sessionOf(await listen());
    const stream = session.request({
      ':method': 'POST',
      ':path': '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo',
      'content-type': 'application/grpc',
      te: 'trailers',
    });
    const symbol = Buffer.from('grpc.health.v1.Health');
    stream.end(framed(Buffer.concat([Buffer.of(0x22, symbol.length), symbol])));
    const type = protobuf
      .parse(`
        syntax = "proto3";
        message Answer { Files files = 4; }
        message Files { repeated File file = 1; }
        message File { string name = 1; repeated Message message = 4; repeated Service service = 6; }
        message Message { string name = 1; repeated Field field = 2; repeated Message nested = 3; Options options = 7; }
        message Field { string name = 1; string type = 6; }
        message Options { bool map_entry = 7; }
        message Service { string name = 1; }
      `)
      .root.lookupType('Answer');
    const answer = type.toObject(type.decode((await buffer(stream)).subarray(5)));
    const [file] = answer['files'].file;
    expect(file.service).toEqual([{ name: 'Health' }]);
    expect(file.message).toContainEqual({
      name: 'HealthListResponse',
      field: [{ name: 'statuses', type: 'StatusesEntry' }],
      nested: [
        {
          name: 'StatusesEntry',
          field: [{ name: 'key' }, { name: 'value', type: 'HealthCheckResponse' }],
          options: { mapEntry: true },
        },
      ],
    });
  });

  it('the server ends an endless reflection stream that the client does not read', async () => {
    const ends: GrpcCallEnd[] = [];
    const server = await listen({ onEnd: (why) => ends.push(why) });
    const path = '/grpc.reflection.v1.ServerReflection/ServerReflectionInfo';
    const asks = Buffer.concat(Array.from({ length: 8000 }, () => framed(new Uint8Array(0))));
    const asking = stall(sessionOf(server, { initialWindowSize: 0 }), asks, path);
    // RST_STREAM with ENHANCE_YOUR_CALM.
    await expect(asking).rejects.toThrow(/code NGHTTP2_ENHANCE_YOUR_CALM/);
    expect(ends).toEqual(['flood']);
    await until('nothing held', async () => (server.heldBytes() === 0 ? true : undefined));
  });

  it('a complete call whose handler takes longer than the request timeout is answered', async () => {
    const door = gate();
    const server = await listen({
      requestTimeoutMs: 2000,
      handler: async () => {
        await door.opened;
        return OK;
      },
    });
    const call = bareCall(sessionOf(server), {}, MESSAGE);
    await until('the call', () => server.inFlight() === 1);
    // The request timeout has passed for a call that began later.
    expect(await stall(sessionOf(server), MESSAGE.subarray(0, 3))).toMatchObject({ status: '4' });
    door.open();
    expect((await call).status).toBe('0');
  });

  it('idle connections and connections above the limit are closed', async () => {
    const refusals: string[] = [];
    const onConnectionRefused = (limit: string): void => void refusals.push(limit);
    const server = await listen({ idleTimeoutMs: 6000, connectionsMax: 2, onConnectionRefused });
    const session = sessionOf(server);
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
    await until('the end of an idle connection', async () => (session.closed ? true : undefined));
    await until('no connection', async () => (server.connections() === 0 ? true : undefined));
    const kept = [sessionOf(server), sessionOf(server)];
    for (const one of kept) expect((await bareCall(one, {}, MESSAGE)).status).toBe('0');
    const above = tcp(server).resume();
    await until('a refused connection', async () => (above.destroyed ? true : undefined));
    // The end of the connection alone would not prove the bound: an idle connection ends as well.
    expect(refusals).toEqual(['total']);
  });

  it.each([
    ['total', { connectionsMax: 2 }],
    ['address', { connectionsMax: 100, connectionsPerAddressMax: 2 }],
  ] as const)(
    'a TLS connection above the limit (%s) is closed before its handshake until another connection ends',
    async (limit, over) => {
      const own = certificate({ subject: [['CN', 'limited']], ips: ['127.0.0.1'] });
      const refused: string[] = [];
      const server = await listen({
        ...over,
        tls: { cert: own.cert, key: own.key },
        onConnectionRefused: (why) => refused.push(why),
      });
      const secured = (localAddress = '127.0.0.1'): TLSSocket => {
        const { host, port } = server;
        // tls.connect forwards localAddress to net.connect; its type does not declare it.
        const options: ConnectionOptions & { localAddress: string } = {
          host,
          port,
          localAddress,
          ca: own.cert,
        };
        const socket = connectTls({ ...options, ALPNProtocols: ['h2'] });
        socket.on('error', () => {});
        sockets.push(socket);
        return socket;
      };
      const served = async (socket: TLSSocket): Promise<string | undefined> => {
        const session = connectH2(`https://${server.host}`, { createConnection: () => socket });
        session.on('error', () => {});
        return (await bareCall(session, {}, MESSAGE)).status;
      };
      const expectRefused = async (socket: TLSSocket): Promise<void> => {
        let isSecured = false;
        socket.once('secureConnect', () => {
          isSecured = true;
        });
        await until('the end of a refused connection', () => socket.destroyed || isSecured);
        expect([isSecured, refused.splice(0)]).toEqual([false, [limit]]);
      };
      const first = secured();
      expect(await served(first)).toBe('0');
      // A client that never begins its handshake counts as a connection, too.
      tcp(server);
      await until('two connections', () => server.connections() === 2);
      await expectRefused(secured());
      const plain = tcp(server).resume();
      await until('the end of a refused client without TLS', () => plain.destroyed);
      expect([plain.bytesRead, refused.splice(0)]).toEqual([0, [limit]]);
      if (limit === 'total') await expectRefused(secured('127.0.0.2'));
      else expect(await served(secured('127.0.0.2'))).toBe('0');
      const before = server.connections();
      first.destroy();
      await until('the end of the first connection', () => server.connections() === before - 1);
      expect(await served(secured())).toBe('0');
      expect(refused).toEqual([]);
    },
  );

  it('a drain of the gRPC server ends although a call stays in flight', async () => {
    const server = await listen({ handler: () => new Promise(() => {}) });
    const call = bareCall(sessionOf(server), {}, MESSAGE).catch(() => undefined);
    await until('the call', async () => (server.inFlight() === 1 ? true : undefined));
    await server.drain(300);
    await call;
    await until('no connection', async () => (server.connections() === 0 ? true : undefined));
    const refused = tcp(server);
    await until('a refused connection', async () => (refused.destroyed ? true : undefined));
  });

  it('a reloaded certificate is served to new connections, and a mismatched one is refused', async () => {
    const issued = (name: string) => certificate({ subject: [['CN', name]], ips: ['127.0.0.1'] });
    const [first, second] = [issued('first'), issued('second')];
    const server = await listen({ tls: { cert: first.cert, key: first.key } });
    const served = (): Promise<string> =>
      new Promise((resolve, reject) => {
        const options = {
          host: server.host,
          port: server.port,
          ALPNProtocols: ['h2'],
          rejectUnauthorized: false,
        };
        const socket = connectTls(options, () => {
          resolve(socket.getPeerX509Certificate()?.subject ?? '');
          socket.destroy();
        });
        socket.on('error', reject);
      });
    expect(await served()).toBe('CN=first');
    server.reloadTls({ cert: second.cert, key: second.key });
    expect(await served()).toBe('CN=second');
    expect(() => server.reloadTls({ cert: first.cert, key: second.key })).toThrow('does not fit');
    expect(await served()).toBe('CN=second');
    const plain = await listen();
    expect(() => plain.reloadTls({ cert: first.cert, key: first.key })).toThrow('speaks no TLS');
  });

  it('a handler gets the address of its client and the subject of a verified client certificate', async () => {
    const seen: unknown[] = [];
    const handler = (call: GrpcCall): GrpcReply => {
      seen.push([call.remoteAddress, call.peer]);
      return OK;
    };
    await bareCall(sessionOf(await listen({ handler })), {}, MESSAGE);
    const authority = certificate({ subject: [['CN', 'authority']], authority: true });
    const own = certificate({ subject: [['CN', 'server']], issuer: authority, ips: ['127.0.0.1'] });
    const till = certificate({
      subject: [
        ['O', 'acme, inc'],
        ['CN', 'till'],
      ],
      issuer: authority,
    });
    const { port } = await listen({
      handler,
      tls: { cert: own.cert, key: own.key, clientCa: authority.cert, clientCertificateRequired: false },
    });
    for (const client of [{}, { cert: till.cert, key: till.key }]) {
      const session = connectH2(`https://127.0.0.1:${port}`, { ca: authority.cert, ...client });
      expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
      session.close();
    }
    expect(seen).toEqual([
      ['127.0.0.1', undefined],
      ['127.0.0.1', undefined],
      ['127.0.0.1', { subject: 'O=acme\\, inc,CN=till' }],
    ]);
  });

  it('a start error names the busy port or the mismatched certificate', async () => {
    const server = await listen();
    const busy = await listen({ port: server.port }).catch(findMillraceError);
    expect(busy).toMatchObject({ code: 'busy_port', next: expect.stringContaining('-grpc-listen') });
    const [a, b] = [certificate({ subject: [['CN', 'a']] }), certificate({ subject: [['CN', 'b']] })];
    const misfit = await listen({ tls: { cert: a.cert, key: b.key } }).catch(findMillraceError);
    expect(misfit).toMatchObject({ code: 'bad_value' });
  });
});
