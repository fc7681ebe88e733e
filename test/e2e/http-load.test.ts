/** The load generator of the benches against servers that answer correctly, wrongly, late and in
 *  pieces. Its latency has no coordinated omission: it counts from the due time of each request. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, afterEach, expect, it } from 'vitest';
import { type LoadOptions, load } from '../../bench/effects/load.ts';
import { readLedger, summarizeLedger } from '../../src/outbox/reconcile/client-ledger.ts';
import { pause, realClock } from '../wait.ts';

interface Seen {
  readonly key: string;
  readonly body: string;
  readonly turn: number;
}

const dir = mkdtempSync(join(tmpdir(), 'http-load-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));
const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

const bodyOf = (key: string): string => `{"order_id":"${key}","status":"created"}`;

/** Starts a server that passes each request to `answer`; `turn` counts the requests of a key. */
async function serve(answer: (seen: Seen, response: ServerResponse, request: IncomingMessage) => void) {
  const seen: Seen[] = [];
  const turns = new Map<string, number>();
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      const key = request.headers['idempotency-key'] as string;
      const turn = (turns.get(key) ?? 0) + 1;
      turns.set(key, turn);
      const one = { key, body, turn };
      seen.push(one);
      answer(one, response, request);
    });
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { target: `127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const good = ({ key, turn }: Seen, response: ServerResponse): void => {
  const body = bodyOf(key);
  response.writeHead(201, {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(body)),
    'Idempotency-Replayed': String(turn > 1),
  });
  response.end(body);
};

const run = (target: string, more: Partial<LoadOptions> = {}) =>
  load({ target, rate: 400, seconds: 1, seed: 5, ...more });

it('the bench client sends each intent once and a hot share again, and keeps a ledger for reconcile', async () => {
  const { target, seen } = await serve(good);
  const ledger = join(dir, 'ledger.jsonl');
  const report = await run(target, { ledger, seconds: 2 });
  const bodies = new Map<string, Set<string>>();
  for (const { key, body } of seen) bodies.set(key, (bodies.get(key) ?? new Set()).add(body));
  expect(report).toMatchObject({
    replies: seen.length,
    intents: bodies.size,
    differing: 0,
    unknown: 0,
    failures: 0,
  });
  expect(report.statuses).toEqual({ 201: seen.length });
  expect(report.replayed).toBe(seen.length - bodies.size);
  // On average 15% of the intents are followed by two repeats; repeats due after the end are left
  // out.
  expect(report.replayed / report.intents).toBeGreaterThan(0.05);
  expect(report.replayed / report.intents).toBeLessThan(0.4);
  for (const [key, of] of bodies) {
    expect(key).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(of.size, key).toBe(1);
    const order = JSON.parse([...of][0] as string) as { account_id: number; amount_cents: number };
    expect(Object.keys(order)).toEqual(['account_id', 'amount_cents']);
    expect(Math.min(order.account_id, order.amount_cents)).toBeGreaterThan(0);
  }
  const { intents, end } = await summarizeLedger(readLedger(createReadStream(ledger)));
  expect(end).toMatchObject({ intents: bodies.size, replies: seen.length, unknown: 0 });
  expect(new Set(intents.keys())).toEqual(new Set(bodies.keys()));
  for (const [key, record] of intents) {
    expect(record).toMatchObject({ failures: 0, different: 0 });
    expect(record.answer).toBe(`201 ${createHash('sha256').update(bodyOf(key)).digest('hex')}`);
    expect([...(bodies.get(key) as Set<string>)][0]).toBe(
      `{"account_id":${record.accountId},"amount_cents":${record.amountCents}}`,
    );
  }
});

it('the bench client sends the same keys for the same seed, and other keys for another', async () => {
  const { target, seen } = await serve(good);
  const keys = async (seed: number): Promise<string[]> => {
    seen.length = 0;
    await run(target, { seed, seconds: 0.4 });
    return [...new Set(seen.map(({ key, body }) => `${key} ${body}`))].sort();
  };
  const first = await keys(8);
  expect(await keys(8)).toEqual(first);
  const other = new Set(await keys(9));
  expect(first.filter((one) => other.has(one))).toEqual([]);
});

it('the bench client counts latency from the due time, so a stalled server raises it', async () => {
  let stalledUntilMs = 0;
  const { target } = await serve((seen, response) => {
    if (stalledUntilMs === 0) stalledUntilMs = realClock.monotonicMs() + 700;
    void pause(Math.max(0, stalledUntilMs - realClock.monotonicMs())).then(() => good(seen, response));
  });
  // With two connections, requests that become due during the stall cannot even be sent.
  const { latency_ms, service_ms } = await run(target, { rate: 300, seconds: 1.4, connections: 2 });
  expect(latency_ms.max).toBeGreaterThan(650);
  // The server stalls for 0.7 s of 1.4 s, so a quarter of all requests wait longer than 350 ms.
  expect(latency_ms.p90).toBeGreaterThan(300);
  expect(service_ms.p50).toBeLessThan(latency_ms.p90);
});

it('the bench client fails the bench when a key gets two answers', async () => {
  const { target } = await serve((seen, response) => {
    const body = `${bodyOf(seen.key)}${seen.turn > 1 ? ' ' : ''}`;
    response.writeHead(201, { 'content-length': String(body.length) }).end(body);
  });
  await expect(run(target, { pattern: 'zipf', keys: 20 })).rejects.toThrow('all answers of a key are equal');
});

it('the bench client retries refused or interrupted requests until they are answered', async () => {
  const { target, seen } = await serve((one, response) => {
    const choice = Number.parseInt(one.key[0] as string, 16);
    if (one.turn === 1 && choice < 3) response.writeHead(503, { 'retry-after': '1' }).end('{}');
    else if (one.turn === 1 && choice === 3) response.destroy();
    else good(one, response);
  });
  const report = await run(target);
  expect(report.unknown).toBe(0);
  expect(report.failures).toBeGreaterThan(0);
  expect(report.statuses['503']).toBeGreaterThan(0);
  expect(report.requests).toBe(seen.length);
});

it('the bench client distinguishes a refusal from an answer', async () => {
  const { target } = await serve((_seen, response) => {
    response.writeHead(422, { 'content-type': 'application/problem+json' }).end('{"code":"bad"}');
  });
  await expect(run(target)).rejects.toThrow('every intent is acknowledged');
});

it('the bench client reads answers in chunks, in pieces, and on connections that end with them', async () => {
  const { target } = await serve((seen, response) => {
    const body = bodyOf(seen.key);
    const choice = Number.parseInt(seen.key[0] as string, 16);
    if (choice < 6) {
      response.writeHead(201);
      response.write(body.slice(0, 10));
      response.end(body.slice(10));
    } else if (choice < 11) {
      response.writeHead(201, { 'content-length': String(body.length) });
      response.write(body.slice(0, 20));
      void pause(5).then(() => response.end(body.slice(20)));
    } else response.writeHead(201, { 'content-length': String(body.length), connection: 'close' }).end(body);
  });
  const report = await run(target, { connections: 8 });
  expect(report).toMatchObject({ differing: 0, unknown: 0, failures: 0 });
});

it('the bench client leaves the time after each fault out of its calm latencies', async () => {
  const { target } = await serve(good);
  const whole = await run(target);
  expect(whole.calm_ms).toEqual(whole.latency_ms);
  const ledger = join(dir, 'faults.jsonl');
  const faults = { everySeconds: 1, forSeconds: 10 };
  const first = await run(target, { seed: 6, seconds: 2, ledger, faults });
  const lines = readFileSync(ledger, 'utf8').trim().split('\n');
  const due = new Map<number, number>();
  const [firsts, all]: [number[], number[]] = [[], []];
  for (const one of lines.map((line) => JSON.parse(line))) {
    if (one.type === 'intent') due.set(one.intent, one.due_ms);
    // A repeat is due later than its intent.
    if (one.type !== 'reply' || (due.get(one.intent) as number) >= 1000) continue;
    if (one.kind === 'first') firsts.push(one.latency_ms);
    all.push(one.latency_ms);
  }
  expect(firsts.length).toBeGreaterThan(100);
  expect(first.calm_ms.max).toBeGreaterThanOrEqual(Math.max(...firsts));
  expect(first.calm_ms.max).toBeLessThanOrEqual(Math.max(...all));
  // The warm-up is not measured, and all that follows is within the time after a fault.
  const never = { everySeconds: 0.001, forSeconds: 1 };
  const none = await run(target, { seed: 7, seconds: 1, warmupSeconds: 0.501, faults: never });
  expect(none.calm_ms).toEqual({ p50: 0, p90: 0, p99: 0, p999: 0, max: 0 });
  expect(none.latency_ms.max).toBeGreaterThan(0);
});

it('the bench client reports a target without a listener', async () => {
  const { target } = await serve(good);
  const [server] = servers.splice(0);
  server?.close();
  await expect(run(target)).rejects.toThrow(`no connection to ${target}`);
});
