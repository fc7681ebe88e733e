/** `millrace load` against the real orders service: what the ledger says is what the database has, through a restart. */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { command as load } from '../../src/bin/load.ts';
import { command as orders } from '../../src/bin/orders.ts';
import { freePort } from '../../src/devstack/ports.ts';
import { pgDriver } from '../../src/io/postgres/sql/pg.ts';
import { readLedger, summarizeLedger } from '../../src/outbox/reconcile/client-ledger.ts';
import { start } from '../unit/shell/fake-world.ts';
import { until } from '../wait.ts';
import { sharedStack } from './stack.ts';

const { postgres } = await sharedStack();
const dir = mkdtempSync(join(tmpdir(), 'millrace-load-'));
const pool = await pgDriver.connect({
  url: postgres,
  connectionsMax: 1,
  applicationName: 'load test',
  connectTimeoutMs: 60_000,
});
afterAll(async () => {
  await pool.close();
  rmSync(dir, { recursive: true, force: true });
});

/** Nine seconds of requests: enough for the service to go away and come back among them, also on a machine that stalls. */
const INTENTS = 2000;
const ordersIn = async (at: string): Promise<number> =>
  Number((await pool.query(`SELECT count(*) FROM ${at}.orders`)).rows[0]?.['count']);

const schema = `load_${randomBytes(5).toString('hex')}`;

async function serve(port: number) {
  const service = start(orders, [
    `-postgres=${postgres}`,
    `-schema=${schema}`,
    '-migrate',
    `-listen=127.0.0.1:${port}`,
    '-log-level=error',
  ]);
  const address = await service.address();
  await expect
    .poll(
      () =>
        fetch(`${address}/ready`).then(
          (answer) => answer.status,
          () => 0,
        ),
      { interval: 50 },
    )
    .toBe(200);
  return { service, address };
}

test('the ledger, the orders and the stored answers agree through a restart of the service', async () => {
  // Not one of the system's own choice: another socket might be given it while the service is away.
  const port = await freePort();
  const first = await serve(port);
  const ledger = join(dir, 'ledger.jsonl');
  const client = start(load, [
    `-target=${first.address}`,
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
  first.service.world.signal('SIGTERM');
  expect(await first.service.code).toBe(0);
  await until('a request that found no service', () => readFileSync(ledger, 'utf8').includes('"failure"'));
  const second = await serve(port);
  expect(await client.code).toBe(0);
  second.service.world.signal('SIGTERM');
  expect(await second.service.code).toBe(0);

  const report = JSON.parse(client.world.stdout());
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
