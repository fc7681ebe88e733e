/** Server of the node:net driver for each test, with one method that records its messages, and raw
 *  clients. */
import { afterEach, beforeEach, expect } from 'vitest';
import { silentLogger } from '../../src/core/log.ts';
import type { GrpcReply, GrpcServer, GrpcServerOptions } from '../../src/io/grpc/port.ts';
import { wireGrpcDriver } from '../../src/io/grpc/service/server.ts';
import { framed, METHOD, PROTOS } from '../e2e/orders-grpc-kit.ts';
import { until } from '../wait.ts';
import { block, type Fields, fieldsOf, RawH2 } from './h2-raw.ts';

/** Fields, header block and message of a valid call. */
export const CALL = fieldsOf(METHOD);
export const HEAD = block(CALL);
export const MESSAGE = framed(Buffer.from('hello'));

export const having = (name: string, value: string): Fields => [...CALL, [name, value]];
export const without = (name: string): Fields => CALL.filter(([one]) => one !== name);

export const fine = (): GrpcReply => ({ code: 'OK', message: Buffer.from('fine') });

export class WireKit {
  server!: GrpcServer;
  /** Messages of the calls that reached the method. */
  handled: string[] = [];
  answer: () => GrpcReply | Promise<GrpcReply> = fine;
  private readonly clients: RawH2[] = [];
  private readonly servers: GrpcServer[] = [];

  /** Starts another server instead of the current one. */
  async listen(over: Partial<GrpcServerOptions> = {}): Promise<void> {
    const handler = (call: { readonly message: Uint8Array }): GrpcReply | Promise<GrpcReply> => {
      this.handled.push(Buffer.from(call.message).toString());
      return this.answer();
    };
    this.server = await wireGrpcDriver.listen({
      host: '127.0.0.1',
      port: 0,
      methods: [{ service: 'orders.v1.Orders', name: 'Create', handler }],
      protos: { folder: PROTOS, files: ['orders/v1/orders.proto'] },
      healthy: async () => true,
      healthIntervalMs: 1000,
      messageBytesMax: 40_000,
      connectionsMax: 100,
      streamsMax: 100,
      heldBytesMax: 64 * 2 ** 20,
      requestTimeoutMs: 20_000,
      idleTimeoutMs: 60_000,
      keepAliveMs: 60_000,
      log: silentLogger,
      ...over,
    });
    this.servers.push(this.server);
  }

  async open(...parts: readonly Uint8Array[]): Promise<RawH2> {
    const client = await RawH2.open(this.server.port);
    this.clients.push(client);
    return client.send(...parts);
  }

  /** Makes calls wait until the returned `open` is called. */
  holdCalls(): { readonly waiting: () => number; readonly open: () => void } {
    const finish: Array<() => void> = [];
    this.answer = () =>
      new Promise((resolve) => {
        finish.push(() => resolve(fine()));
      });
    return {
      waiting: () => finish.length,
      open: () => {
        for (const one of finish.splice(0)) one();
      },
    };
  }

  /** Waits until the server has released all memory and calls. */
  async clean(): Promise<void> {
    await until('nothing held', async () =>
      this.server.heldBytes() === 0 && this.server.inFlight() === 0 ? true : undefined,
    );
  }

  async end(): Promise<void> {
    for (const client of this.clients.splice(0)) client.close();
    await Promise.all(this.servers.splice(0).map((one) => one.drain(0)));
  }
}

/** Registers the kit; call it at the beginning of a file. */
export function wireKit(): WireKit {
  const kit = new WireKit();
  beforeEach(async () => {
    kit.handled = [];
    kit.answer = fine;
    await kit.listen();
  });
  afterEach(() => kit.end());
  return kit;
}

/** Waits for the whole answer of the stream, which must be OK. */
export async function expectOk(client: RawH2, stream: number): Promise<void> {
  expect((await client.answer(stream)).fields['grpc-status']).toBe('0');
}
