/** A database that answers every query and refuses new rows, like one with a full disk. /ready of
 *  each writing service fails with the reason, nothing is lost, and writes resume when there is
 *  room. A trigger simulates the refusal with the SQLSTATE of a full disk. */
import { describe, expect, it } from 'vitest';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { startPayments } from '../fixtures/payments.ts';
import { launcher } from '../fixtures/process.ts';
import { startRelay } from '../fixtures/relay.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { until } from '../wait.ts';
import { createdOf, logOf, newKey, ordersKit, problemOf, rowCounts, stop } from './orders-kit.ts';
import { events, paymentsKit, recordOf } from './payments-kit.ts';
import { drained, inMode, pending, readTopic, Sent, worlds } from './relay-kit.ts';
import { dropSlots } from './wal-kit.ts';

const own = launcher();
const stack = await sharedStack();
const kit = ordersKit(own, stack.postgres);
const world = worlds(() => stack, own.suffix);
const payments = await paymentsKit(own, stack);

const DISK_FULL_MESSAGE = 'could not extend file "base/5/16384": No space left on device';

/** Makes the table refuse writes. Returns a function that ends the refusal. */
async function fill(
  pool: SqlPool,
  table: string,
  event: 'INSERT' | 'UPDATE' | 'INSERT OR UPDATE',
): Promise<() => Promise<void>> {
  await pool.query(
    `CREATE OR REPLACE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
     $$ BEGIN RAISE EXCEPTION '${DISK_FULL_MESSAGE}' USING ERRCODE = 'disk_full'; END $$`,
  );
  await pool.query(
    `CREATE TRIGGER full_disk BEFORE ${event} ON ${table} FOR EACH ROW EXECUTE FUNCTION full_disk()`,
  );
  return async () => {
    await pool.query(`DROP TRIGGER full_disk ON ${table}`);
  };
}

interface Ready {
  readonly ready: boolean;
  readonly checks: ReadonlyArray<{ readonly name: string; readonly ok: boolean; readonly why?: string }>;
}

const askReady = async (address: string): Promise<{ readonly status: number; readonly report: Ready }> => {
  const answer = await fetch(`http://${address}/ready`);
  return { status: answer.status, report: (await answer.json()) as Ready };
};

const isReady = (address: string): Promise<true> =>
  until('/ready with status 200', async () => ((await askReady(address)).status === 200 ? true : undefined));

/** Waits until this check alone fails, and for this reason. On a busy machine another check may
 *  fail for a moment. */
const untilCheckFails = (
  address: string,
  name: string,
  isExpected: (why: string) => boolean,
): Promise<true> =>
  until(`/ready with the failed check ${name}`, async () => {
    const { status, report } = await askReady(address);
    if (status !== 503) return undefined;
    expect(report.checks.filter((one) => !one.ok).map((one) => one.name)).toEqual([name]);
    return isExpected(report.checks.find((one) => one.name === name)?.why ?? '') ? true : undefined;
  });

describe('orders on a full disk', () => {
  it.each(['idempotency_keys', 'orders', 'outbox'])(
    'orders is not ready from the first refused order until the database accepts one again: %s is full',
    async (table) => {
      const { schema, pool } = await kit.schema();
      const service = await kit.serve(schema);
      const [first, second] = [newKey(), newKey()];
      createdOf(await service.order(first), false);
      const release = await fill(pool, table, 'INSERT');
      await isReady(service.address);
      problemOf(await service.order(second), 503, 'database-unavailable');
      await untilCheckFails(service.address, 'writes', (why) => why.includes(DISK_FULL_MESSAGE));
      // Stored responses are still replayed.
      createdOf(await service.order(first), true);
      const attemptedIds = async (): Promise<bigint> => {
        const { rows } = await pool.query<{ n: bigint }>(
          `SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('outbox', 'id')::regclass), 0) AS n`,
        );
        return rows[0]?.n ?? 0n;
      };
      const before = await attemptedIds();
      await release();
      // The service becomes ready again without any request of a client.
      await isReady(service.address);
      expect(await rowCounts(pool)).toEqual([1, 1, 1]);
      expect(await attemptedIds()).toBeGreaterThan(before);
      createdOf(await service.order(second), false);
      expect(await rowCounts(pool)).toEqual([2, 2, 2]);
      expect(logOf(service)).toContain('the database accepts writes again');
      await stop(service);
    },
  );
});

describe.each(['poll', 'wal'])('relay -relay=%s on a full disk', (mode) => {
  it.each([
    ['outbox', 'UPDATE', 'rows are not marked: '],
    ['relay_members', 'INSERT OR UPDATE', 'the leases are not renewed: '],
  ] as const)(
    'a relay is not ready while %s is full for %s, and resumes in order when there is room',
    async (table, event, prefix) => {
      const { pool, args, schema, ...rest } = await world();
      const relay = startRelay(own, [...inMode(args, mode), '-lease=2s'], `relay-${mode}`);
      const address = await relay.address();
      const sent = new Sent(pool, 5);
      for (let round = 0; round < 3; round++) await sent.round();
      await drained(pool);
      await isReady(address);
      const release = await fill(pool, table, event);
      await sent.round();
      const reason = `${prefix}PostgreSQL refused a statement: ${DISK_FULL_MESSAGE}`;
      await untilCheckFails(address, 'relay', (why) => why === reason);
      await sent.round();
      if (table === 'outbox') expect(await pending(pool)).toBe(10);
      await release();
      await drained(pool);
      await isReady(address);
      await sent.round();
      await drained(pool);
      await relay.drain();
      sent.expectOrdered(await readTopic({ ...rest }));
      await dropSlots(pool, schema);
    },
  );
});

describe('payments on a full disk', () => {
  it.each(['inbox', 'charges', 'payments_batches'])(
    'payments is not ready while %s is full, and charges each order once when there is room',
    async (table) => {
      const at = payments.world(`full_${table}`);
      await at.create();
      const one = startPayments(own, at.args('a', '-batch-every=0ms'));
      const address = await one.address();
      const orders = events(9);
      await at.publish(orders.slice(0, 3).map(recordOf));
      await until('the first charges', async () => ((await at.count('charges')) === 3 ? true : undefined));
      await isReady(address);
      const release = await fill(payments.pool, `${at.schema}.${table}`, 'INSERT');
      await at.publish(orders.slice(3).map(recordOf));
      await untilCheckFails(address, 'postgres', (why) => why.includes('does not take the batch'));
      expect(await at.count('charges')).toBe(3);
      await release();
      await isReady(address);
      await until('all charges', async () => ((await at.count('charges')) === 9 ? true : undefined));
      await at.expectCharged(orders);
      await one.drain();
    },
  );
});
