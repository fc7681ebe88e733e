/** Orders over gRPC during faults: held keys, deadlines, overload, database outages, signals,
 *  TLS. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { connect, type IncomingHttpHeaders } from 'node:http2';
import { join } from 'node:path';
import { credentials } from '@grpc/grpc-js';
import { describe, expect, it } from 'vitest';
import { certificate } from '../../src/devstack/certificates.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { gateBefore } from '../fixtures/gate.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { pause, until } from '../wait.ts';
import { framed, grpcAddress, METHOD, type OrdersClient, ordersClient } from './orders-grpc-kit.ts';
import {
  holdKeys,
  LONG_LIMITS,
  logOf,
  metric,
  newKey,
  ordersKit,
  rowCounts,
  type Service,
  stop,
} from './orders-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);

interface World {
  readonly pool: SqlPool;
  readonly service: Service;
  readonly client: OrdersClient;
}

async function world(flags: readonly string[] = [], postgres = stack.postgres): Promise<World> {
  const { schema, pool } = await kit.schema();
  const service = await kit.serve(schema, flags, postgres);
  return { pool, service, client: ordersClient(await grpcAddress(service)) };
}

/** Holds a key in an open transaction while `work` runs, then rolls the transaction back. */
async function holding<T>(pool: SqlPool, key: string, work: () => Promise<T>): Promise<T> {
  const release = await holdKeys(pool, key);
  return work().finally(release);
}

const RETRY = { type: 'RetryInfo', retryDelay: { seconds: 1 } };

describe('held key over gRPC', () => {
  it('a call for a held key ends at its deadline, and the key gets its order afterwards', async () => {
    const { pool, client } = await world();
    const key = newKey();
    const late = await holding(pool, key, () => client.create(key, undefined, { timeoutMs: 300 }));
    expect(late.code).toBe('DEADLINE_EXCEEDED');
    // The order in flight is written once the key is free: the next call replays it and creates no
    // second order.
    const first = await client.create(key);
    const again = await client.create(key);
    expect([first.code, again.code, again.replayed]).toEqual(['OK', 'OK', 'true']);
    expect(again.value).toEqual(first.value);
    expect(await rowCounts(pool)).toEqual([1, 1, 1]);
  });

  it('a call for a held key gets a retryable UNAVAILABLE after the wait', async () => {
    const { pool, client } = await world(['-inflight-wait=200ms']);
    const key = newKey();
    const outcome = await holding(pool, key, () => client.create(key));
    expect(outcome).toMatchObject({
      code: 'UNAVAILABLE',
      details: [{ type: 'ErrorInfo', reason: 'IN_FLIGHT' }, RETRY, { type: 'RequestInfo' }],
    });
    expect(await rowCounts(pool)).toEqual([0, 0, 0]);
  });

  it('calls above -in-flight-max are shed', async () => {
    const { pool, service, client } = await world(['-in-flight-max=1', ...LONG_LIMITS]);
    const key = newKey();
    const [held, shed] = await holding(pool, key, async () => {
      const abort = new AbortController();
      const first = client.create(key, undefined, { signal: abort.signal });
      await until('a waiting call', async () =>
        (await metric(service, 'orders_in_flight')) === 1 ? true : undefined,
      );
      const refused = await client.create(newKey(), { account_id: '1', amount_cents: '1' });
      abort.abort();
      return [await first, refused] as const;
    });
    // The call was in flight until it was cancelled.
    expect(held.code).toBe('CANCELLED');
    expect(shed).toMatchObject({
      code: 'RESOURCE_EXHAUSTED',
      details: [{ type: 'ErrorInfo', reason: 'OVERLOADED' }, RETRY, { type: 'RequestInfo' }],
    });
  });
});

describe('database outage', () => {
  it('a database outage causes UNAVAILABLE and NOT_SERVING, and SERVING once it is over', async () => {
    const gate = await gateBefore(stack.postgres);
    const { client } = await world([], gate.url);
    const seen: string[] = [];
    const end = client.watch((status) => seen.push(status));
    await until('SERVING', async () => (seen.at(-1) === 'SERVING' ? true : undefined));
    seen.length = 0;
    gate.close();
    const outcome = await until('a refused call', async () => {
      const answer = await client.create(newKey());
      return answer.code === 'OK' ? undefined : answer;
    });
    expect(outcome).toMatchObject({
      code: 'UNAVAILABLE',
      details: [{ type: 'ErrorInfo', reason: 'DATABASE_UNAVAILABLE' }, RETRY, { type: 'RequestInfo' }],
    });
    await until('NOT_SERVING', async () => ((await client.health()) === 'NOT_SERVING' ? true : undefined));
    gate.open();
    await until('SERVING', async () => ((await client.health()) === 'SERVING' ? true : undefined));
    expect((await client.create(newKey())).code).toBe('OK');
    await until('both statuses at the watcher', async () => (seen.length >= 2 ? true : undefined));
    expect(seen).toEqual(['NOT_SERVING', 'SERVING']);
    end();
  });
});

describe('SIGTERM', () => {
  it('SIGTERM lets the call in flight finish, refuses other calls, and the process exits with 0', async () => {
    const { pool, service, client } = await world(LONG_LIMITS);
    const address = await grpcAddress(service);
    const key = newKey();
    let during: string | undefined;
    let inFlight: ReturnType<OrdersClient['create']> | undefined;
    await holding(pool, key, async () => {
      inFlight = client.create(key);
      await until('a waiting call', async () => {
        return (await metric(service, 'orders_in_flight')) === 1 ? true : undefined;
      });
      service.process.kill('SIGTERM');
      const late = async (): Promise<string | undefined> => {
        const other = ordersClient(address);
        const { code } = await other.create(newKey(), undefined, { timeoutMs: 2000 });
        other.close();
        // The deadline of the client itself proves nothing about the server.
        return code === 'OK' || code === 'DEADLINE_EXCEEDED' ? undefined : code;
      };
      // The server continues to refuse calls, and does not close the connection of the call in
      // flight.
      for (let call = 0; call < 10; call++) during = await until('a refused call', late);
    });
    expect(during).toBe('UNAVAILABLE');
    expect((await inFlight)?.code).toBe('OK');
    expect((await service.process.ended).code).toBe(0);
  });

  it('SIGTERM ends the process immediately when all connected clients are idle', async () => {
    // Longer than any wait of a test: the drain must not wait for an open Watch.
    const { service, client } = await world(['-drain-timeout=30m']);
    const end = client.watch(() => {});
    expect((await client.create(newKey())).code).toBe('OK');
    await stop(service);
    end();
  });

  it('SIGTERM does not wait for a client that never reads its answer, and the process exits with 0', async () => {
    // 0.8 of the drain timeout is less than the 30 s after which the server abandons an unread
    // response in any case.
    const { service } = await world(['-drain-timeout=36s', '-deadline=20s']);
    const session = connect(`http://${await grpcAddress(service)}`, { settings: { initialWindowSize: 0 } });
    session.on('error', () => {});
    const stream = session.request({
      ':method': 'POST',
      ':path': METHOD,
      'content-type': 'application/grpc',
      te: 'trailers',
      'idempotency-key': newKey(),
    });
    stream.on('error', () => {});
    const answered = new Promise<IncomingHttpHeaders>((resolve) => stream.once('response', resolve));
    stream.end(framed(Buffer.of(8, 7, 16, 9)));
    // A response with a status in its first headers would have no data left to read.
    expect(await answered).not.toHaveProperty('grpc-status');
    service.process.kill('SIGTERM');
    await until('the drain', async () => (logOf(service).includes('"msg":"drain"') ? true : undefined));
    // HTTP requests are answered until the end, also after the drain has stopped waiting for calls.
    let isOver = false;
    const ended = service.process.ended.finally(() => {
      isOver = true;
    });
    const answers: number[] = [];
    while (!isOver) {
      const reply = await service.ask({ path: '/health' }).catch(() => undefined);
      if (reply !== undefined) answers.push(reply.status);
      await pause(50);
    }
    expect(new Set(answers)).toEqual(new Set([200]));
    expect((await ended).code).toBe(0);
    session.destroy();
  });

  it.each(['6s', '4s'])(
    'a drain that leaves less time than -deadline is refused: -drain-timeout=%s',
    (drain) =>
      kit.fails(2, /-deadline .* 0\.8 of -drain-timeout .*\[bad_value\]/, [
        '-deadline=5s',
        `-drain-timeout=${drain}`,
      ]),
  );
});

describe('TLS', () => {
  it('orders serves verifying clients, and with a client CA only authenticated clients', async () => {
    const ca = certificate({ subject: [['CN', 'ca']], authority: true });
    const server = certificate({ subject: [['CN', 'orders']], issuer: ca, ips: ['127.0.0.1'] });
    const mine = certificate({ subject: [['CN', 'shop']], issuer: ca });
    const otherCa = certificate({ subject: [['CN', 'ca']], authority: true });
    const foreign = certificate({ subject: [['CN', 'shop']], issuer: otherCa });
    const folder = join(own.dir, 'tls');
    mkdirSync(folder, { recursive: true });
    const file = (name: string, text: string): string => {
      writeFileSync(join(folder, name), text);
      return join(folder, name);
    };
    const { schema } = await kit.schema();
    const start = async (...flags: readonly string[]): Promise<string> => {
      const process = kit.start([
        `-schema=${schema}`,
        '-migrate',
        `-tls-cert=${file('cert.pem', server.cert)}`,
        `-tls-key=${file('key.pem', server.key)}`,
        ...flags,
      ]);
      return grpcAddress({ process });
    };
    const root = Buffer.from(ca.cert);
    const secure = (issued?: typeof mine) =>
      issued === undefined
        ? credentials.createSsl(root)
        : credentials.createSsl(root, Buffer.from(issued.key), Buffer.from(issued.cert));
    const outcome = async (address: string, issued?: typeof mine | 'plain'): Promise<string> => {
      const creds = issued === 'plain' ? credentials.createInsecure() : secure(issued);
      const client = ordersClient(address, creds);
      const { code } = await client.create(newKey(), undefined, { timeoutMs: 60_000 });
      client.close();
      return code;
    };
    const clientCa = `-tls-client-ca=${file('ca.pem', ca.cert)}`;
    const [plain, mutual, optional] = await Promise.all([
      start(),
      start(clientCa),
      start(clientCa, '-tls-client-auth=optional'),
    ]);
    const untilServing = async (address: string): Promise<true> => {
      const probe = ordersClient(address, secure(mine));
      await until('a ready service', async () => ((await probe.health()) === 'SERVING' ? true : undefined));
      probe.close();
      return true;
    };
    await Promise.all([untilServing(plain), untilServing(mutual), untilServing(optional)]);
    expect(await outcome(plain)).toBe('OK');
    expect(await outcome(plain, 'plain')).toBe('UNAVAILABLE');
    expect(await outcome(mutual, mine)).toBe('OK');
    expect(await outcome(mutual)).toBe('UNAVAILABLE');
    expect(await outcome(mutual, foreign)).toBe('UNAVAILABLE');
    expect(await outcome(optional)).toBe('OK');
    expect(await outcome(optional, mine)).toBe('OK');
    expect(await outcome(optional, foreign)).toBe('UNAVAILABLE');
  });
});
