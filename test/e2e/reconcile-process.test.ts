/** `millrace reconcile` as a process: the metrics that it serves during a comparison, and the
 *  number of ids that it lists. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { silentGate } from '../contract/sql-gate.ts';
import { createTables, openPool } from '../fixtures/database.ts';
import { becomes } from '../fixtures/metrics.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';

const own = launcher();
const { postgres } = await sharedStack();
const schema = `reconcile_process_${own.suffix}`;
const pool = await openPool(withSettings(postgres, { schema }));
await createTables(pool, schema, 'orders', 'payments');
// Orders without a request, one of them old; charges and a message without an order.
await pool.query(
  `INSERT INTO orders (order_id, account_id, amount_cents, status, created_at)
   SELECT gen_random_uuid(), 1, 5, 'created', now() - (n / 3) * interval '2 hours' FROM generate_series(1, 3) AS n`,
);
await pool.query(
  'INSERT INTO charges (charge_id, order_id, amount_cents) SELECT gen_random_uuid(), gen_random_uuid(), 5 FROM generate_series(1, 2)',
);
await pool.query(
  `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $2::uuid, 'order.created.v1', '')`,
  [randomUUID(), randomUUID()],
);
const gate = await silentGate(postgres);
afterAll(() => gate.close());

const args = (address: string): readonly string[] => [
  `-postgres=${address}`,
  `-schema=${schema}`,
  '-settle=0',
  '-json',
];

it('reconcile serves the count of each class once the class is compared, and of no other class', async () => {
  // The query of one of the last classes gets no answer.
  gate.silenceOn('c.amount_cents IS DISTINCT FROM o.amount_cents');
  const run = startTool(own, 'reconcile', args(gate.url));
  const series = (name: string): string => `reconcile_deltas{class="${name}"}`;
  const page = await becomes(await run.address(), series('double_charge'), 0);
  expect(Object.fromEntries([...page].filter(([name]) => name.startsWith('reconcile_deltas')))).toEqual(
    Object.fromEntries(
      Object.entries({
        lost_order: 0,
        ghost_order: 3,
        shared_order: 0,
        order_without_outbox: 3,
        outbox_without_order: 1,
        pending_outbox: 1,
        order_without_charge: 3,
        order_parked: 0,
        charge_without_order: 2,
        double_charge: 0,
      }).map(([name, count]) => [series(name), count]),
    ),
  );
  await run.die();
});

it('reconcile lists as many ids as -ids and counts all, except orders whose key may have expired by -key-ttl', async () => {
  const { code, stdout } = await own.run(['reconcile', ...args(postgres), '-ids=1', '-key-ttl=1h']);
  expect(code).toBe(1);
  const { deltas, expired_keys } = JSON.parse(stdout) as {
    deltas: ReadonlyArray<{ class: string; count: number; ids: readonly string[] }>;
    expired_keys: number;
  };
  const found = deltas.map((delta) => [delta.class, delta.count, delta.ids.length]);
  expect(found).toContainEqual(['ghost_order', 2, 1]);
  expect(found).toContainEqual(['order_without_charge', 3, 1]);
  expect(expired_keys).toBe(1);
});

it('reconcile of pairs serves the count of each class once its pair is compared, and of no other pair', async () => {
  await pool.query(
    ['one', 'two'].map((name) => outboxTableSql(`${name}_outbox`) + inboxTableSql(`${name}_inbox`)).join(''),
  );
  await pool.query(
    `INSERT INTO one_outbox (aggregate_id, msg_id, event_type, payload) VALUES ($1::uuid, $1::uuid, 'a.b', '')`,
    [randomUUID()],
  );
  const path = join(own.dir, 'pairs.json');
  const pair = (name: string) => ({
    name,
    outbox: { table: `${name}_outbox` },
    inbox: { table: `${name}_inbox` },
  });
  writeFileSync(path, JSON.stringify({ pairs: [pair('one'), pair('two')] }));
  // The first statement that reads the rows of the second pair gets no answer.
  gate.speak();
  gate.silenceOn('FROM "two_outbox"');
  const run = startTool(own, 'reconcile', [...args(gate.url), `-pairs=${path}`]);
  const address = await run.address();
  const page = await becomes(address, 'reconcile_pair_deltas{pair="one",class="outbox_without_inbox"}', 1);
  expect(page.get('reconcile_pair_deltas{pair="one",class="pending_outbox"}')).toBe(1);
  expect([...page.keys()].some((series) => series.includes('pair="two"'))).toBe(false);
  run.kill('SIGKILL');
  await run.ended;
});
