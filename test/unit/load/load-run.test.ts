import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { coreError } from '../../../src/core/errors.ts';
import type { GrpcClient, GrpcClientReply, GrpcClientRequest } from '../../../src/io/grpc/client-port.ts';
import type { HttpClient, HttpClientReply, HttpClientRequest } from '../../../src/io/http/client-port.ts';
import { Intents } from '../../../src/load/intents.ts';
import { type LoadOptions, type LoadResult, LoadRun } from '../../../src/load/run.ts';
import { Schedule } from '../../../src/load/schedule.ts';
import { readCreateMessage } from '../../../src/outbox/orders/grpc/messages.ts';
import { type LedgerEntry, summarizeLedger } from '../../../src/outbox/reconcile/client-ledger.ts';

/** Virtual time: a sleep advances the clock and runs the timers that become due. */
class VirtualTime {
  private timers: Array<{ readonly atMs: number; readonly run: () => void }> = [];
  private nowMs = 0;

  readonly clock = { monotonicMs: () => this.nowMs, wallNowMs: () => this.nowMs };

  after(ms: number, run: () => void): void {
    this.timers.push({ atMs: this.nowMs + ms, run });
  }

  readonly sleep = async (ms: number): Promise<void> => {
    const until = this.nowMs + ms;
    for (;;) {
      const next = this.timers.filter((timer) => timer.atMs <= until).sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.timers.splice(this.timers.indexOf(next), 1);
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.run();
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.nowMs = until;
  };
}

type Answer = (
  request: HttpClientRequest,
  number: number,
) => { readonly ms: number; readonly reply?: HttpClientReply; readonly error?: Error };

interface World {
  readonly sent: Array<{ readonly atMs: number; readonly key: string; readonly body: string }>;
  readonly entries: LedgerEntry[];
  /** Ledger length at each request. */
  readonly writtenBefore: number[];
  readonly result: LoadResult;
}

const created = (key: string, replayed = false): HttpClientReply => ({
  status: 201,
  headers: { 'idempotency-replayed': String(replayed) },
  body: new TextEncoder().encode(`{"order_id":"${key}","status":"created"}`),
});

async function simulate(
  answer: Answer,
  over: Partial<LoadOptions> & { count?: number; retryRate?: number; rate?: number } = {},
): Promise<World> {
  const time = new VirtualTime();
  const { count = 200, retryRate = 0.15, rate = 100, ...options } = over;
  const intents = new Intents({ seed: 1n, accounts: 10, zipf: 1.1, keys: 50, retryRate, retryWithinMs: 500 });
  const sent: World['sent'] = [];
  const entries: LedgerEntry[] = [];
  const writtenBefore: number[] = [];
  const client: HttpClient = {
    send: (request) =>
      new Promise((resolve, reject) => {
        const key = request.headers['idempotency-key'] as string;
        sent.push({ atMs: time.clock.monotonicMs(), key, body: request.body });
        writtenBefore.push(entries.length);
        const { ms, reply, error } = answer(request, sent.length);
        time.after(ms, () => (error === undefined ? resolve(reply ?? created(key)) : reject(error)));
      }),
    close: () => {},
  };
  const result = await new LoadRun({
    intents,
    schedule: new Schedule(intents, { rate, retryRate, count, durationMs: Number.POSITIVE_INFINITY }),
    client,
    ledger: { append: (more) => entries.push(...more) },
    clock: time.clock,
    sleep: time.sleep,
    signal: new AbortController().signal,
    path: '/orders',
    resendFirstMs: 100,
    resendMaxMs: 400,
    giveUpMs: 2000,
    giveUpDrainingMs: 1000,
    inFlightMax: 10_000,
    ...options,
  }).run();
  return { sent, entries, writtenBefore, result };
}

describe('load client', () => {
  test('the load client sends on time even to a slow server, and counts latency from the due time', async () => {
    const slow = await simulate(() => ({ ms: 1000 }), { retryRate: 0 });
    const intervalMs = 10;
    slow.sent.forEach((send, i) => {
      expect(send.atMs - i * intervalMs).toBeGreaterThanOrEqual(0);
      expect(send.atMs - i * intervalMs).toBeLessThan(2);
    });
    expect(slow.result.latency.quantileMs(0.5)).toBeGreaterThanOrEqual(1000);
    expect(slow.result.latency.quantileMs(0.5)).toBeLessThan(1030);
  });

  test('a load client with every connection busy counts the wait as latency', async () => {
    const held = await simulate(() => ({ ms: 100 }), { retryRate: 0, inFlightMax: 1, count: 50 });
    expect(held.sent.length).toBe(50);
    expect(held.result.latency.maxMs).toBeGreaterThan(4000);
    expect(held.result.sendLagMsMax).toBeGreaterThan(4000);
  });

  test('repeats carry the key and body of their intent', async () => {
    const { sent, result } = await simulate(() => ({ ms: 3 }));
    const bodies = new Map<string, string>();
    for (const { key, body } of sent) {
      expect(bodies.get(key) ?? body).toBe(body);
      bodies.set(key, body);
    }
    expect(bodies.size).toBe(200);
    expect(sent.length).toBeGreaterThan(200);
    expect(result.requests).toBe(sent.length);
    expect(result.repeats).toBe(sent.length - 200);
    expect(JSON.parse([...bodies.values()][0] as string)).toEqual({
      account_id: expect.any(Number),
      amount_cents: expect.any(Number),
    });
  });

  test('the load client writes an intent before its first request leaves', async () => {
    const { entries, sent, writtenBefore } = await simulate(() => ({ ms: 3 }));
    sent.forEach(({ key }, i) => {
      const known = entries
        .slice(0, writtenBefore[i] as number)
        .some((entry) => entry.type === 'intent' && entry.key === key);
      expect(known).toBe(true);
    });
  });

  test('the load client retries with the same key until there is a final answer', async () => {
    const failing: Answer = (request, number) => {
      if (number % 5 === 0)
        return { ms: 2, error: coreError('unreachable', 'gone', { details: { reason: 'ECONNRESET' } }) };
      if (number % 7 === 0) return { ms: 2, reply: { status: 503, headers: {}, body: new Uint8Array() } };
      if (number % 11 === 0) return { ms: 2, reply: { status: 429, headers: {}, body: new Uint8Array() } };
      return { ms: 2, reply: created(request.headers['idempotency-key'] as string, true) };
    };
    const { entries, result } = await simulate(failing);
    const { intents, end } = await summarizeLedger(entries);
    expect(result.unknown).toBe(0);
    expect(end).toMatchObject({ intents: 200, unknown: 0, failures: result.failures });
    expect(result.failures).toBeGreaterThan(50);
    for (const record of intents.values()) {
      expect(record.acknowledged).toBeGreaterThan(0);
      expect(record.different).toBe(0);
      const digest = createHash('sha256')
        .update(`{"order_id":"${record.key}","status":"created"}`)
        .digest('hex');
      expect(record.answer).toBe(`201 ${digest}`);
    }
    expect(entries.some((entry) => entry.type === 'failure' && entry.error === 'ECONNRESET')).toBe(true);
  });

  test('the load client stops retrying in the end, and reports the unknown intents', async () => {
    const { entries, result } = await simulate(
      (_request, number) => ({ ms: 2, error: coreError('timeout', `no ${number}`) }),
      { retryRate: 0, count: 5 },
    );
    expect(result).toMatchObject({ intents: 5, unknown: 5, replies: 0, acknowledged: 0 });
    expect(result.seconds).toBeLessThan(3);
    expect(entries.at(-1)).toMatchObject({ type: 'end', unknown: 5 });
    const { intents } = await summarizeLedger(entries);
    expect([...intents.values()].every((record) => record.answer === undefined && record.failures > 3)).toBe(
      true,
    );
  });

  test('a refused intent is final and stays unknown', async () => {
    const { result } = await simulate(
      () => ({ ms: 2, reply: { status: 422, headers: {}, body: new Uint8Array() } }),
      { retryRate: 0, count: 3 },
    );
    expect(result).toMatchObject({ refused: 3, failures: 0, unknown: 3 });
  });

  test('a drained load client sends no new intent and finishes the intents that it began', async () => {
    const stop = new AbortController();
    const { result, entries } = await simulate(
      (_request, number) => {
        if (number === 20) stop.abort();
        return { ms: 300 };
      },
      { signal: stop.signal, retryRate: 0 },
    );
    expect(result.intents).toBeLessThan(30);
    expect(result.unknown).toBe(0);
    expect(entries.filter((entry) => entry.type === 'reply').length).toBe(result.intents);
  });

  test('a drained load client ends in time before a server that never answers, and reports the unknown intents', async () => {
    const stop = new AbortController();
    const { result, entries } = await simulate(
      (_request, number) => {
        if (number === 20) stop.abort();
        return { ms: 60_000 };
      },
      { signal: stop.signal, retryRate: 0, giveUpMs: 30_000 },
    );
    expect(result.seconds).toBeLessThan(2);
    expect(result.unknown).toBe(result.intents);
    expect(entries.at(-1)).toMatchObject({ type: 'end', unknown: result.intents });
  });

  test('a ledger that cannot be written ends the load client', async () => {
    const full = {
      append: () => {
        throw coreError('not_writable', 'the disk is full');
      },
    };
    await expect(simulate(() => ({ ms: 1 }), { ledger: full })).rejects.toThrow('the disk is full');
  });

  describe('load client over gRPC', () => {
    const orderId = '00000000-0000-7000-8000-000000000001';
    /** CreateResponse of the order. */
    const message = Buffer.concat([
      Buffer.from([0x0a, orderId.length]),
      Buffer.from(orderId),
      Buffer.from([0x12, 7]),
      Buffer.from('created'),
    ]);
    const grpcOf = (
      share: number,
      answer: (request: GrpcClientRequest) => Promise<GrpcClientReply>,
    ): { readonly share: number; readonly client: GrpcClient } => ({
      share,
      client: { call: answer, close: () => {} },
    });
    const ok = { code: 0, text: '', message, trailers: { 'idempotency-replayed': 'true' } };

    test('a share of the attempts goes over gRPC, also of the repeats of a key that went over HTTP', async () => {
      const calls: GrpcClientRequest[] = [];
      const grpc = grpcOf(0.5, async (request) => {
        calls.push(request);
        return ok;
      });
      const { sent, result } = await simulate(() => ({ ms: 3 }), { grpc, count: 400 });
      expect(calls.length + sent.length).toBe(result.requests);
      expect(result.answeredOverGrpc).toBe(calls.length);
      expect(calls.length / result.requests).toBeGreaterThan(0.4);
      expect(calls.length / result.requests).toBeLessThan(0.6);
      const overHttp = new Set(sent.map(({ key }) => key));
      expect(calls.some(({ metadata }) => overHttp.has(metadata['idempotency-key'] as string))).toBe(true);
      expect(new Set(calls.map(({ path }) => path))).toEqual(new Set(['/orders.v1.Orders/Create']));
    });

    test('the ledger has the status and the body that POST /orders has for the same order', async () => {
      const { entries } = await simulate(() => ({ ms: 3 }), { grpc: grpcOf(1, async () => ok), count: 1 });
      const body = `{"order_id":"${orderId}","status":"created"}`;
      expect(entries.find(({ type }) => type === 'reply')).toMatchObject({
        status: 201,
        replayed: true,
        sha256: createHash('sha256').update(body).digest('hex'),
      });
    });

    test('a call sends the values of its intent, which the decoder of orders reads back', async () => {
      const read: unknown[] = [];
      const grpc = grpcOf(1, async (request) => {
        read.push(readCreateMessage(request.message));
        return ok;
      });
      const { entries } = await simulate(() => ({ ms: 3 }), { grpc, count: 20, retryRate: 0 });
      const intents = entries.filter((entry) => entry.type === 'intent');
      expect(read).toEqual(
        intents.map(({ account_id, amount_cents }) => ({
          accountId: BigInt(account_id),
          amountCents: BigInt(amount_cents),
        })),
      );
    });

    test('a refusal is final, and a lost call is sent again with the same key', async () => {
      const codes = [6, 8, 0];
      const keys: string[] = [];
      const grpc = grpcOf(1, async ({ metadata }) => {
        keys.push(metadata['idempotency-key'] as string);
        if (keys.length === 1)
          throw coreError('unreachable', 'no reply', { details: { reason: 'UNAVAILABLE' } });
        return { ...ok, code: codes.pop() as number, text: 'refused' };
      });
      const { entries, result } = await simulate(() => ({ ms: 3 }), {
        grpc,
        count: 2,
        retryRate: 0,
        rate: 1,
      });
      expect(entries.flatMap((entry) => (entry.type === 'failure' ? entry.error : []))).toEqual([
        'UNAVAILABLE',
      ]);
      expect(entries.flatMap((entry) => (entry.type === 'reply' ? entry.status : []))).toEqual([
        201, 429, 409,
      ]);
      expect(keys[1]).toBe(keys[0]);
      expect(result).toMatchObject({ acknowledged: 1, refused: 1, failures: 2, unknown: 1 });
    });
  });

  test('a bug in the load client is not treated as a failed request', async () => {
    await expect(simulate(() => ({ ms: 1, error: new TypeError('a bug') }))).rejects.toThrow('a bug');
  });
});
