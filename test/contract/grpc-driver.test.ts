/** What the gRPC port promises of a driver beside the answers of a product: bounds in time and number, and ends. */
import { connect as connectTcp, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { findMillraceError } from '../../src/core/errors.ts';
import { silentLogger } from '../../src/core/log.ts';
import { grpcJsDriver } from '../../src/io/grpc/grpc-js.ts';
import type { GrpcReply, GrpcServer, GrpcServerOptions } from '../../src/io/grpc/port.ts';
import { until } from '../e2e/engine-kit.ts';
import { bareCall, bareSession, framed, METHOD, PROTOS } from '../e2e/orders-grpc-kit.ts';
import { certificate } from './certificates.ts';

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

async function listen(
  over: Partial<GrpcServerOptions> & { readonly handler?: () => GrpcReply | Promise<GrpcReply> } = {},
): Promise<GrpcServer> {
  const { handler = () => OK, ...rest } = over;
  const server = await grpcJsDriver.listen({
    host: '127.0.0.1',
    port: 0,
    methods: [{ service: 'orders.v1.Orders', name: 'Create', handler }],
    protos: { folder: PROTOS, files: ['orders/v1/orders.proto'] },
    healthy: async () => true,
    healthIntervalMs: 50,
    messageBytesMax: 1024,
    connectionsMax: 100,
    streamsMax: 100,
    requestTimeoutMs: 10_000,
    idleTimeoutMs: 60_000,
    keepAliveMs: 60_000,
    log: silentLogger,
    ...rest,
  });
  servers.push(server);
  return server;
}

const sessionOf = (server: GrpcServer) => bareSession(`${server.host}:${server.port}`);

function tcp(server: GrpcServer): Socket {
  const socket = connectTcp(server.port, server.host);
  socket.on('error', () => {});
  sockets.push(socket);
  return socket;
}

describe('a gRPC server', () => {
  it('answers, counts what it answers, and knows what is under way', async () => {
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

  it('turns what a handler throws into INTERNAL without its words, and goes on', async () => {
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

  it('counts a call whose client gave up as what it became', async () => {
    const codes: string[] = [];
    let finish: (reply: GrpcReply) => void = () => {};
    const server = await listen({
      handler: () => new Promise((resolve) => (finish = resolve)),
      onAnswer: ({ code }) => codes.push(code),
    });
    const late = await bareCall(sessionOf(server), { 'grpc-timeout': '50m' }, MESSAGE);
    expect(late.status).toBe('4');
    finish(OK);
    await until('the count', async () => codes[0]);
    expect(codes).toEqual(['DEADLINE_EXCEEDED']);
  });

  it('ends calls that never become whole, and serves the others of the connection', async () => {
    const server = await listen({ requestTimeoutMs: 300 });
    const session = sessionOf(server);
    const stalled = session.request({
      ':method': 'POST',
      ':path': METHOD,
      'content-type': 'application/grpc',
    });
    const ended = new Promise<number>((resolve) => stalled.on('close', () => resolve(stalled.rstCode)));
    stalled.on('error', () => {});
    stalled.write(MESSAGE.subarray(0, 3));
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
    expect(await ended).toBe(8);
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
  });

  it('leaves alone a call that is whole and whose handler takes longer than that', async () => {
    const server = await listen({
      requestTimeoutMs: 200,
      handler: async () => {
        await sleep(1500);
        return OK;
      },
    });
    expect((await bareCall(sessionOf(server), {}, MESSAGE)).status).toBe('0');
  });

  it('sends connections away that are idle, and those above its bound', async () => {
    const server = await listen({ idleTimeoutMs: 200, connectionsMax: 2 });
    const session = sessionOf(server);
    expect((await bareCall(session, {}, MESSAGE)).status).toBe('0');
    await until('the end of an idle connection', async () => (session.closed ? true : undefined));
    await until('no connection', async () => (server.connections() === 0 ? true : undefined));
    const kept = [sessionOf(server), sessionOf(server)];
    for (const one of kept) expect((await bareCall(one, {}, MESSAGE)).status).toBe('0');
    const above = tcp(server);
    await until('a refused connection', async () => (above.destroyed ? true : undefined));
  });

  it('has an end to its drain, whatever is under way', async () => {
    const server = await listen({ handler: () => new Promise(() => {}) });
    const call = bareCall(sessionOf(server), {}, MESSAGE).catch(() => undefined);
    await until('the call', async () => (server.inFlight() === 1 ? true : undefined));
    await server.drain(300);
    await call;
    await until('no connection', async () => (server.connections() === 0 ? true : undefined));
    const refused = tcp(server);
    await until('a refused connection', async () => (refused.destroyed ? true : undefined));
  });

  it('names the port that is taken and the certificate that does not fit', async () => {
    const server = await listen();
    const busy = await listen({ port: server.port }).catch(findMillraceError);
    expect(busy).toMatchObject({ code: 'busy_port', next: expect.stringContaining('-grpc-listen') });
    const [a, b] = [certificate({ subject: [['CN', 'a']] }), certificate({ subject: [['CN', 'b']] })];
    const misfit = await listen({ tls: { cert: a.cert, key: b.key } }).catch(findMillraceError);
    expect(misfit).toMatchObject({ code: 'bad_value' });
  });
});
