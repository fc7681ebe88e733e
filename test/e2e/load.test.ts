/** `millrace load` against the real orders service over HTTP and gRPC: the ledger equals the
 *  database, also after a restart of the service. */

import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { freePort } from '../../src/devstack/ports.ts';
import { readLedger, summarizeLedger } from '../../src/outbox/reconcile/client-ledger.ts';
import { openPool } from '../fixtures/database.ts';
import { startOrders } from '../fixtures/orders.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';
import { until } from '../wait.ts';

const { postgres } = await sharedStack();
const own = launcher();
const pool = await openPool(postgres, { connections: 1, name: 'load test' });

/** Enough requests for about nine seconds, so that the service stops and restarts among them, also
 *  on a machine that stalls. */
const INTENTS = 2000;
const ordersIn = async (at: string): Promise<number> =>
  Number((await pool.query(`SELECT count(*) FROM ${at}.orders`)).rows[0]?.['count']);

const schema = `load_${randomBytes(5).toString('hex')}`;

async function serve(port: number, grpcPort: number): Promise<Running> {
  const listen = [`-listen=127.0.0.1:${port}`, `-grpc-listen=127.0.0.1:${grpcPort}`];
  const flags = [`-schema=${schema}`, '-migrate', ...listen, '-log-level=error'];
  const service = startOrders(own, [`-postgres=${postgres}`, ...flags]);
  await service.ready();
  return service;
}

test('the ledger of both transports, the orders and the stored answers agree through a restart of the service', async () => {
  // A chosen port: the system could give a random port to another socket while the service is down.
  const port = await freePort();
  const grpcPort = await freePort(new Set([port]));
  const first = await serve(port, grpcPort);
  const ledger = join(own.dir, 'ledger.jsonl');
  const client = startTool(own, 'load', [
    `-target=http://127.0.0.1:${port}`,
    `-grpc-target=http://127.0.0.1:${grpcPort}`,
    '-grpc-share=0.4',
    '-rate=300',
    `-count=${INTENTS}`,
    '-duration=5m',
    '-retry-rate=0.15',
    '-keys=100',
    '-retry-within=300ms',
    `-ledger=${ledger}`,
    '-json',
    '-log-level=warn',
  ]);
  await until('orders of the first service', async () => (await ordersIn(schema)) > INTENTS / 20);
  await first.drain();
  const hasFailure = (error: string): boolean => readFileSync(ledger, 'utf8').includes(`"error":"${error}"`);
  await until('a failed request', () => hasFailure('ECONNREFUSED'));
  await until('a failed call', () => hasFailure('UNAVAILABLE'));
  const second = await serve(port, grpcPort);
  expect(await client.ended).toEqual({ code: 0, signal: null });
  await second.drain();

  const report = JSON.parse(client.stdout());
  expect(report).toMatchObject({ intents: INTENTS, unknown: 0, refused: 0 });
  expect(report.failures).toBeGreaterThan(0);
  expect(report.replayed).toBeGreaterThan(20);

  const { intents, end } = await summarizeLedger(readLedger(createReadStream(ledger)));
  expect(end).toMatchObject({ intents: INTENTS, unknown: 0 });
  const { rows } = await pool.query(
    `SELECT k.idem_key, k.response_code, k.response_body::text AS body, o.account_id, o.amount_cents
       FROM ${schema}.idempotency_keys k JOIN ${schema}.orders o USING (order_id)`,
  );
  expect(rows.length).toBe(INTENTS);
  for (const row of rows) {
    const record = intents.get(row['idem_key'] as string);
    expect(record).toMatchObject({
      accountId: Number(row['account_id']),
      amountCents: Number(row['amount_cents']),
      different: 0,
    });
    const hash = createHash('sha256')
      .update(row['body'] as string)
      .digest('hex');
    expect(record?.answer).toBe(`${row['response_code']} ${hash}`);
  }
  expect(await ordersIn(schema)).toBe(INTENTS);
});
