/** `millrace load` as a process against a service that the test controls: requests in flight, drawn
 *  accounts, and counted outcomes. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { afterAll, expect, it } from 'vitest';
import { Intents } from '../../src/load/intents.ts';
import { gate } from '../contract/http-harness.ts';
import { becomes } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { startTool } from '../fixtures/tool.ts';
import { pause } from '../wait.ts';

const own = launcher();
const INTENTS = 9;
const IN_FLIGHT_MAX = 3;

const accounts = new Map<string, number>();
const first = gate();
const last = gate();
const seen = { inFlight: 0, most: 0 };

/** Fails the first key once, refuses the second, and holds the last until the test releases it. */
async function statusOf(key: string, account: number): Promise<number> {
  const isNew = !accounts.has(key);
  accounts.set(key, account);
  const number = accounts.size;
  if (seen.inFlight === IN_FLIGHT_MAX) void pause(200).then(first.open);
  await first.opened;
  // Long enough for the next requests to become due.
  await pause(5);
  if (isNew && number === INTENTS) await last.opened;
  if (isNew && number === 1) return 503;
  return isNew && number === 2 ? 400 : 201;
}

const server = createServer((request, response) => {
  seen.inFlight++;
  seen.most = Math.max(seen.most, seen.inFlight);
  json(request)
    .then((body) =>
      statusOf(request.headers['idempotency-key'] as string, (body as { account_id: number }).account_id),
    )
    .then((status) => {
      seen.inFlight--;
      response.writeHead(status, { 'content-type': 'application/json' }).end('{}');
    });
});
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const accountsOf = (zipf: number): ReadonlyMap<string, number> => {
  const options = { seed: 5n, accounts: 1000, zipf, keys: 10_000, retryRate: 0, retryWithinMs: 2000 };
  const intents = new Intents(options);
  return new Map(
    Array.from({ length: INTENTS }, (_, i) => intents.intent(i)).map(({ key, accountId }) => [
      key,
      accountId,
    ]),
  );
};

const args = (...more: readonly string[]): readonly string[] => [
  `-target=http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  '-rate=1000',
  '-retry-rate=0',
  '-json',
  ...more,
];

it('load has no more requests in flight than -under-way-max, draws accounts by -zipf, and counts each answer once', async () => {
  const flags = [
    `-count=${INTENTS}`,
    `-under-way-max=${IN_FLIGHT_MAX}`,
    '-accounts=1000',
    '-zipf=4',
    '-seed=5',
  ];
  const load = startTool(own, 'load', args(...flags));
  const address = await load.address();
  const outcome = (name: string): string => `load_requests_total{outcome="${name}"}`;
  await becomes(address, outcome('acknowledged'), INTENTS - 2);
  const page = await becomes(address, outcome('refused'), 1);
  expect(page.get(outcome('failed'))).toBe(1);
  expect(page.get('load_latency_seconds_count')).toBe(INTENTS - 1);
  // All requests were due within 10 ms, and 200 ms passed before the first answer.
  expect(seen.most).toBe(IN_FLIGHT_MAX);
  last.open();
  expect(await load.ended).toEqual({ code: 0, signal: null });
  expect(JSON.parse(load.stdout())).toMatchObject({
    intents: INTENTS,
    requests: INTENTS + 1,
    acknowledged: INTENTS - 1,
    refused: 1,
    failures: 1,
    unknown: 1,
  });
  expect(accounts).toEqual(accountsOf(4));
  expect(accounts).not.toEqual(accountsOf(1.1));
});

it('load has at most one request on each of -connections, and the other due requests wait', async () => {
  seen.most = 0;
  const { code, stdout } = await own.run(['load', ...args('-count=40', '-connections=2', '-seed=6')]);
  expect([code, JSON.parse(stdout).acknowledged, seen.most]).toEqual([0, 40, 2]);
});
