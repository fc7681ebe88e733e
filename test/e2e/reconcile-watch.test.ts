/** `millrace reconcile -watch` as a process: deltas appear and disappear in its metrics, and its
 *  exit code says whether one stands at the end. */
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { outboxTableSql } from '../../src/outbox/append/table.ts';
import { withSettings } from '../../src/outbox/database/connection.ts';
import { inboxTableSql } from '../../src/outbox/inbox/table.ts';
import { silentGate } from '../contract/sql-gate.ts';
import { createTables, openPool, ownDatabase } from '../fixtures/database.ts';
import { becomes, pageOf } from '../fixtures/metrics.ts';
import { launcher, type Running } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { startTool } from '../fixtures/tool.ts';
import { realClock } from '../wait.ts';
import { idAt } from './reconcile-kit.ts';

const own = launcher();
const { postgres } = await sharedStack();
const admin = await openPool(postgres);
/** Short, so that a bucket is compared soon after its rows exist. */
const FAST = ['-watch', '-bucket=3s', '-settle=1s', '-pass-share=100', '-pass-every=2s', '-json'];
const MINUTE_MS = 60_000;

const watching = (flags: readonly string[]): Running =>
  startTool(own, 'reconcile', [...FAST, ...flags, '-listen=127.0.0.1:0']);

/** Ends the watch and returns its exit code and document. */
async function stopped(run: Running) {
  run.kill('SIGTERM');
  const { code } = await run.ended;
  return {
    code,
    document: JSON.parse(run.stdout()) as { holds: boolean; pairs: ReadonlyArray<Record<string, unknown>> },
  };
}

const deltas = (pair: string, name: string): string =>
  `reconcile_watch_deltas{pair="${pair}",class="${name}"}`;
const passes = (pair: string): string => `reconcile_last_complete_pass_timestamp_seconds{pair="${pair}"}`;

describe('reconcile -watch of orders and payments', () => {
  const schema = `reconcile_watch_${own.suffix}`;
  const pair = 'outbox_inbox';
  let pool: SqlPool;
  const flags = [`-postgres=${postgres}`, `-schema=${schema}`];
  afterAll(() => admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`));

  /** Inserts an order that was charged. @returns its ids */
  async function insert(ms: number, faults: { readonly lost?: boolean } = {}) {
    const [orderId, msgId, at] = [idAt(ms), idAt(ms), new Date(ms)];
    await pool.query(`INSERT INTO orders VALUES ($1::uuid, 1, 5, 'created', $2)`, [orderId, at]);
    await pool.query(`INSERT INTO idempotency_keys VALUES ($1, '\\x00', $2::uuid, 201, '{}', $3)`, [
      randomUUID(),
      orderId,
      at,
    ]);
    await pool.query(
      `INSERT INTO outbox (aggregate_id, msg_id, event_type, payload, published_at, created_at)
       VALUES ($1::uuid, $2::uuid, 'order.created.v1', '{}', $3, $3)`,
      [orderId, msgId, at],
    );
    if (faults.lost !== true) await charge(orderId, msgId, at);
    return { orderId, msgId, at };
  }
  async function charge(orderId: string, msgId: string, at: Date): Promise<void> {
    await pool.query('INSERT INTO inbox VALUES ($1::uuid, $2)', [msgId, at]);
    await pool.query('INSERT INTO charges VALUES (gen_random_uuid(), $1::uuid, 5, $2)', [orderId, at]);
  }

  it('each class of delta appears, and disappears when its rows agree; the effect is then late', async () => {
    pool = await openPool(withSettings(postgres, { schema }));
    await createTables(pool, schema, 'orders', 'payments');
    const now = realClock.wallNowMs();
    for (let n = 10; n > 0; n--) await insert(now - n * MINUTE_MS);
    const run = watching([...flags, '-late-after=1s']);
    const address = await run.address();
    for (const name of [pair, 'orders_charges', 'keys_orders', 'payments_suppressed'])
      await becomes(address, passes(name), (at) => at > 0);
    const page = await pageOf(address);
    expect(page.get(deltas(pair, 'outbox_without_inbox'))).toBe(0);
    expect(page.get('reconcile_lag_seconds{pair="outbox_inbox"}')).toBeGreaterThanOrEqual(1);

    // A message of now, which the tail finds, and old rows, which a pass finds.
    const lost = await insert(realClock.wallNowMs(), { lost: true });
    await becomes(address, deltas(pair, 'outbox_without_inbox'), 1);
    await becomes(address, deltas('orders_charges', 'order_without_charge'), 1);
    await pool.query("UPDATE charges SET amount_cents = 6 WHERE created_at < now() - interval '9 minutes'");
    await pool.query(
      "DELETE FROM idempotency_keys WHERE created_at BETWEEN now() - interval '6 minutes' AND now() - interval '5 minutes'",
    );
    await becomes(address, deltas('orders_charges', 'charge_amount_differs'), 2);
    await becomes(address, deltas('keys_orders', 'ghost_order'), (count) => count > 0);
    expect((await pageOf(address)).get('reconcile_differing_buckets{pair="orders_charges"}')).toBeGreaterThan(
      0,
    );

    await charge(lost.orderId, lost.msgId, new Date(lost.at.getTime() + 3000));
    await becomes(address, deltas(pair, 'outbox_without_inbox'), 0);
    await becomes(address, 'reconcile_late_total{pair="outbox_inbox"}', 1);
    const last = await pageOf(address);
    expect(last.get('reconcile_buckets_total{pair="outbox_inbox",result="differs"}')).toBeGreaterThan(0);
    expect(last.get('reconcile_buckets_total{pair="outbox_inbox",result="equal"}')).toBeGreaterThan(0);
    expect(last.get('reconcile_rows_total{pair="outbox_inbox",side="left"}')).toBeGreaterThanOrEqual(11);
    const { code, document } = await stopped(run);
    expect(code).toBe(1);
    expect(document.holds).toBe(false);
    expect(document.pairs[1]).toMatchObject({
      pair: 'orders_charges',
      deltas: [{ class: 'charge_amount_differs', count: 2 }],
    });
  });

  it('a second charge that only the unique key prevented is a delta until its row is deleted', async () => {
    const suppress = (reason: string, ms: number) =>
      pool.query(
        `INSERT INTO payments_suppressed (msg_id, order_id, reason, injected, topic, partition, "offset", seen_at)
         VALUES (gen_random_uuid(), $1::uuid, $2, false, 'order.events', 0, 0, $3)`,
        [idAt(ms), reason, new Date(ms)],
      );
    const again = deltas('payments_suppressed', 'charge_attempted_again');
    const now = realClock.wallNowMs();
    for (const reason of ['seen', 'order_charged', 'same_batch']) await suppress(reason, now - 9 * MINUTE_MS);
    const run = watching(flags);
    const address = await run.address();
    // A pass finds the old row, and the tail that of now.
    await becomes(address, again, 1);
    await suppress('seen', realClock.wallNowMs());
    await suppress('order_charged', realClock.wallNowMs());
    await becomes(address, again, 2);
    await pool.query(`DELETE FROM payments_suppressed WHERE reason = 'order_charged'`);
    await becomes(address, again, 0);
    const page = await pageOf(address);
    expect(page.get('reconcile_rows_total{pair="payments_suppressed",side="left"}')).toBeGreaterThanOrEqual(
      5,
    );
    const { document } = await stopped(run);
    expect(document.pairs.find((one) => one['pair'] === 'payments_suppressed')).toMatchObject({ deltas: [] });
  });

  it('a watch that loses its database is not ready, and tries again until it is stopped', async () => {
    const gate = await silentGate(postgres);
    const run = watching([`-postgres=${gate.url}`, `-schema=${schema}`]);
    const address = await run.ready();
    await becomes(address, passes(pair), (at) => at > 0);
    await gate.close();
    await becomes(address, 'reconcile_watch_errors_total{pair="outbox_inbox"}', (count) => count > 1);
    expect((await fetch(`http://${address}/ready`)).status).toBe(503);
    const { code } = await stopped(run);
    expect(code).toBe(1);
  });
});

describe('reconcile -watch of the tables of a user', () => {
  const schema = `reconcile_own_${own.suffix}`;
  const tables = [`-outbox-table=${schema}.outbox`, `-inbox-table=${schema}.inbox`];
  afterAll(() => admin.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`));

  it('a watch over two databases ends with 0 on SIGTERM, if no bucket differs', async () => {
    const url = await ownDatabase(postgres, `reconcile_watched_${own.suffix}`);
    const other = await openPool(url);
    await admin.query(`CREATE SCHEMA ${schema}`);
    await other.query(`CREATE SCHEMA ${schema}`);
    await admin.query(outboxTableSql(`${schema}.outbox`));
    await other.query(inboxTableSql(`${schema}.inbox`));
    const now = realClock.wallNowMs();
    const send = async (ms: number): Promise<string> => {
      const id = idAt(ms);
      await admin.query(
        `INSERT INTO ${schema}.outbox (aggregate_id, msg_id, event_type, payload, published_at, created_at)
         VALUES ($1::uuid, $1::uuid, 'a.b', '{}', now(), $2)`,
        [id, new Date(ms)],
      );
      return id;
    };
    const process = (id: string, ms: number) =>
      other.query(`INSERT INTO ${schema}.inbox VALUES ($1::uuid, $2)`, [id, new Date(ms)]);
    for (let n = 20; n > 1; n--) await process(await send(now - n * 1000), now - n * 1000);
    const run = watching([`-postgres=${postgres}`, `-inbox-postgres=${url}`, ...tables]);
    const address = await run.address();
    await becomes(address, passes('outbox_inbox'), (at) => at > 0);
    const ghost = idAt(now - 10_000);
    await process(ghost, now - 10_000);
    await becomes(address, deltas('outbox_inbox', 'inbox_without_outbox'), 1);
    await other.query(`DELETE FROM ${schema}.inbox WHERE msg_id = $1::uuid`, [ghost]);
    await becomes(address, deltas('outbox_inbox', 'inbox_without_outbox'), 0);
    const { code, document } = await stopped(run);
    expect(code).toBe(0);
    expect(document).toMatchObject({ holds: true, pairs: [{ pair: 'outbox_inbox', deltas: [] }] });
  });

  it('a watch finds a message that stands twice on both sides', async () => {
    const now = realClock.wallNowMs();
    const tables = [`${schema}.twice_out`, `${schema}.twice_in`] as const;
    const [first, second] = [idAt(now - 30_000), idAt(now - 20_000)];
    for (const table of tables) {
      await admin.query(`CREATE TABLE ${table} (msg_id uuid, at timestamptz)`);
      await admin.query(`CREATE INDEX ON ${table} (msg_id)`);
      for (const [n, id] of [first, second, first].entries())
        await admin.query(`INSERT INTO ${table} VALUES ($1::uuid, $2)`, [
          id,
          new Date(now - (n === 1 ? 20_000 : 30_000)),
        ]);
    }
    const path = join(own.dir, 'twice.json');
    const side = (table: string) => ({ table, id: 'msg_id', time: 'at' });
    writeFileSync(
      path,
      JSON.stringify({
        pairs: [{ name: 'twice', outbox: side(tables[0]), inbox: side(tables[1]), keep: '24h' }],
      }),
    );
    const run = watching([`-postgres=${postgres}`, `-pairs=${path}`]);
    const address = await run.address();
    await becomes(address, deltas('twice', 'double_outbox'), 1);
    await becomes(address, deltas('twice', 'double_inbox'), 1);
    const { code } = await stopped(run);
    expect(code).toBe(1);
  });

  it('ids without a time are refused, because their rows are not found by time', async () => {
    await admin.query(inboxTableSql(`${schema}.inbox`));
    await admin.query(
      `INSERT INTO ${schema}.outbox (aggregate_id, msg_id, event_type, payload) VALUES (gen_random_uuid(), gen_random_uuid(), 'a.b', '{}')`,
    );
    const run = watching([`-postgres=${postgres}`, ...tables]);
    const { code } = await run.ended;
    expect(code).toBe(2);
    expect(run.log()).toContain('is not of version 7');
  });
});
