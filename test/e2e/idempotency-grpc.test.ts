/** Idempotent unary handlers of @grpc/grpc-js on a real database. */
import {
  Client,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js';
import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';
import { type IdempotencyOptions, idempotency } from '../../src/outbox/index.ts';
import { until } from '../wait.ts';
import { atEnd, DAY_MS, newKey, openShop, pay, type Shop } from './idempotency-kit.ts';

interface Payment {
  readonly cents: number;
  readonly fault?: string;
}

const toBytes = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
const fromBytes = (bytes: Buffer): never => JSON.parse(bytes.toString()) as never;
const CREATE = {
  path: '/shop.Payments/Create',
  requestStream: false,
  responseStream: false,
  requestSerialize: toBytes as (value: Payment) => Buffer,
  requestDeserialize: fromBytes as (bytes: Buffer) => Payment,
  responseSerialize: toBytes as (value: { text: string }) => Buffer,
  responseDeserialize: fromBytes as (bytes: Buffer) => { text: string },
} as const;

let shop: Shop;
beforeAll(async () => {
  shop = await openShop();
});

interface Reply {
  /** 0 with the bytes of the message, or the status of the error. */
  readonly code: number;
  readonly bytes: string;
  readonly trailer: Metadata;
  readonly details: string;
}

type App = typeof pay;

/** Starts a server and returns a function that calls it. */
async function start(options: Partial<IdempotencyOptions<pg.PoolClient>> = {}, app: App = pay) {
  const idem = idempotency({
    sql: shop.pool,
    scope: (call) => String(call.metadata.get('x-tenant')[0] ?? 'shared'),
    ttlMs: DAY_MS,
    answerBytesMax: 4096,
    ...options,
  });
  const server = new Server();
  server.addService({ Create: CREATE } as unknown as ServiceDefinition, {
    Create: idem.grpc(CREATE, async (call: ServerUnaryCall<Payment, { text: string }>, { tx, key }) => {
      if (call.request.fault === 'status')
        throw Object.assign(new Error('no funds'), { code: 9, details: 'no funds' });
      return { text: (await app(tx, key, call.request)).text };
    }),
  });
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    ),
  );
  const client = new Client(`127.0.0.1:${port}`, credentials.createInsecure());
  atEnd(() => {
    client.close();
    server.forceShutdown();
  });
  return (keys: readonly string[], message: Payment, more: Readonly<Record<string, string>> = {}) =>
    new Promise<Reply>((resolve) => {
      const metadata = new Metadata();
      for (const key of keys) metadata.add('idempotency-key', key);
      for (const [name, value] of Object.entries(more)) metadata.set(name, value);
      let reply: Omit<Reply, 'trailer'> = { code: -1, bytes: '', details: '' };
      const answer = (error: ServiceError | null, bytes?: Buffer): void => {
        reply =
          error === null
            ? { code: 0, bytes: (bytes as Buffer).toString('hex'), details: '' }
            : { code: error.code, bytes: '', details: error.details };
      };
      client
        .makeUnaryRequest(CREATE.path, CREATE.requestSerialize, (bytes) => bytes, message, metadata, answer)
        .on('status', ({ metadata: trailer }) => setImmediate(() => resolve({ ...reply, trailer })));
    });
}

const trailerOf = ({ trailer }: Reply, name: string): unknown => trailer.get(name)[0];

describe('an idempotent unary method', () => {
  it('64 concurrent calls of one key get the same bytes, the handler pays once, and later calls replay', async () => {
    const call = await start();
    const key = newKey();
    const all = await Promise.all(Array.from({ length: 64 }, () => call([key], { cents: 5 })));
    expect(new Set(all.map(({ code, bytes }) => `${code} ${bytes}`)).size).toBe(1);
    expect(all[0]?.code).toBe(0);
    expect(all.filter((one) => trailerOf(one, 'idempotency-replayed') === 'false')).toHaveLength(1);
    const again = await call([key], { cents: 5 });
    expect([again.bytes, trailerOf(again, 'idempotency-replayed')]).toEqual([all[0]?.bytes, 'true']);
    expect(await shop.payments(key)).toBe(1);
  });

  it('a missing, repeated or malformed key is INVALID_ARGUMENT, and nothing is executed', async () => {
    const call = await start();
    for (const keys of [[], ['a', 'b'], ['two words'], ['x'.repeat(256)]]) {
      const refused = await call(keys, { cents: 1 });
      expect([refused.code, trailerOf(refused, 'error-code')]).toEqual([3, 'BAD_IDEMPOTENCY_KEY']);
      expect(refused.details).toContain('idempotency-key');
    }
  });

  it('another message under the same key is ALREADY_EXISTS, and another tenant has keys of its own', async () => {
    const call = await start();
    const key = newKey();
    await call([key], { cents: 5 });
    const other = await call([key], { cents: 6 });
    expect([other.code, trailerOf(other, 'error-code')]).toEqual([6, 'IDEMPOTENCY_KEY_REUSED']);
    expect((await call([key], { cents: 6 }, { 'x-tenant': 'two' })).code).toBe(0);
    expect(await shop.payments(key)).toBe(2);
  });

  it('a call in flight is UNAVAILABLE with a delay where calls do not wait', async () => {
    let open: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    let entered = false;
    const call = await start({ waitMs: 0 }, async (tx, key, body) => {
      entered = true;
      await gate;
      return pay(tx, key, body);
    });
    const key = newKey();
    const first = call([key], { cents: 5 });
    await until('the handler', () => entered);
    const refused = await call([key], { cents: 5 });
    expect([refused.code, trailerOf(refused, 'grpc-retry-pushback-ms')]).toEqual([14, '1000']);
    open();
    expect((await first).code).toBe(0);
  });

  it('a status of the handler reaches the client, is not stored, and its transaction is rolled back', async () => {
    const call = await start();
    const key = newKey();
    const refused = await call([key], { cents: 5, fault: 'status' });
    expect([refused.code, refused.details, await shop.records(key)]).toEqual([9, 'no funds', []]);
    expect((await call([key], { cents: 5 })).code).toBe(0);
  });

  it('an error of the handler is INTERNAL without its text, and a large answer is refused', async () => {
    const errors: Error[] = [];
    const call = await start({ onError: (error) => errors.push(error as Error) });
    const failed = await call([newKey()], { cents: 5, fault: 'throws' });
    expect([failed.code, failed.details.includes('handler failed')]).toEqual([13, false]);
    expect(errors.map(({ message }) => message)).toEqual(['the handler failed']);
    const key = newKey();
    const large = await call([key], { cents: 5, fault: 'large' });
    expect([large.code, trailerOf(large, 'error-code')]).toEqual([13, 'ANSWER_TOO_LARGE']);
    expect(await shop.payments(key)).toBe(0);
  });
});
