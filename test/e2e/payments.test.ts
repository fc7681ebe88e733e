/** `millrace payments` on a real broker and database; the tests read each result from the
 *  tables. */
import { randomUUID } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { gateBefore } from '../fixtures/gate.ts';
import { metric as metricAt, scrape } from '../fixtures/metrics.ts';
import { runPayments, startPayments } from '../fixtures/payments.ts';
import { launcher, withDefaults } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { settingsOf } from '../fixtures/topic.ts';
import { describeFull, itFull } from '../tier.ts';
import { until } from '../wait.ts';
import {
  bytes,
  type Event,
  events,
  paymentsKit,
  recordOf,
  SHORT_SESSION,
  untilSessionsEnd,
} from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { pool, world } = await paymentsKit(own, stack);

describe('one charge per order', () => {
  itFull.each([0.05, 0.3])(
    'payments charges each order once when a share of %d is delivered twice',
    async (rate) => {
      const at = world(`dup${rate * 100}`);
      const orders = events(2000);
      await at.create();
      await at.publish(orders.map(recordOf));
      await at.run('a', `-dup-rate=${rate}`, '-seed=7', '-batch-rows=150');
      await at.expectCharged(orders);
      const [sums] = await at.query<Record<string, number>>(
        `SELECT sum(delivered)::int AS delivered, sum(inserted)::int AS inserted, sum(suppressed)::int AS suppressed,
              sum(injected)::int AS injected, bool_and(delivered = inserted + suppressed) AS whole FROM SCHEMA.payments_batches`,
      );
      const injected = sums?.['injected'] as number;
      expect(injected).toBeGreaterThan(2000 * rate * 0.7);
      expect(injected).toBeLessThan(2000 * rate * 1.3);
      expect(sums).toMatchObject({
        delivered: 2000 + injected,
        inserted: 2000,
        suppressed: injected,
        whole: true,
      });
      expect(await at.count('payments_suppressed WHERE injected')).toBe(injected);
      expect(await at.count('payments_suppressed')).toBe(injected);
      // Copies arrived in the batch of their record, and in later batches.
      const kinds = await at.query<{ reason: string }>(
        'SELECT DISTINCT reason FROM SCHEMA.payments_suppressed',
      );
      expect(kinds.map((row) => row.reason).sort()).toEqual(['same_batch', 'seen']);
    },
  );

  itFull('a new group reads the whole topic again and charges nothing', async () => {
    const at = world('again');
    const orders = events(500);
    await at.create();
    await at.publish(orders.map(recordOf));
    expect(await at.run('first')).toMatchObject({ charged: 500, suppressed: 0 });
    expect(await at.run('first')).toMatchObject({ charged: 0, suppressed: 0 });
    expect(await at.run('second')).toMatchObject({ charged: 0, suppressed: 500, parked: 0 });
    await at.expectCharged(orders);
    const reasons = await at.query('SELECT DISTINCT reason, injected FROM SCHEMA.payments_suppressed');
    expect(reasons).toEqual([{ reason: 'seen', injected: false }]);
  });

  itFull('a repeated msg_id, and a new msg_id for a charged order, charge nothing', async () => {
    const at = world('twice');
    const [one, other] = events(2) as [Event, Event];
    await at.create();
    await at.publish([one, one, other].map(recordOf));
    await at.publish([recordOf({ ...other, msgId: randomUUID(), cents: 999_999 }, 2)]);
    expect(await at.run('a', '-batch-rows=1')).toMatchObject({ charged: 2, suppressed: 2 });
    const rows = await at.query<{ reason: string }>(
      'SELECT reason FROM SCHEMA.payments_suppressed ORDER BY reason',
    );
    expect(rows.map((row) => row.reason)).toEqual(['order_charged', 'seen']);
    const amounts = await at.query<{ amount_cents: bigint }>('SELECT amount_cents FROM SCHEMA.charges');
    expect(amounts.map((row) => Number(row.amount_cents)).sort()).toEqual([one.cents, other.cents].sort());
  });

  it('payments charges each order once through SIGKILL between the charges and their commit', async () => {
    const at = world('crash');
    const orders = events(1200);
    await at.create();
    await at.publish(orders.map(recordOf));
    const crash = ['-exit-at-end', '-batch-rows=100', '-crash-point=effect', '-crash-after=3'];
    const killed = await runPayments(own, at.args('a', SHORT_SESSION, ...crash));
    expect(killed).toMatchObject({ code: null, signal: 'SIGKILL' });
    expect(await at.count('payments_batches')).toBe(3);
    const before = await at.count('charges');
    expect(before).toBeGreaterThan(0);
    expect(before).toBeLessThan(1200);
    await at.run('a', '-batch-rows=100');
    await at.expectCharged(orders);
  });
});

describeFull('malformed records', () => {
  it('records that cannot become a charge are parked, and their partition continues', async () => {
    const at = world('poison');
    const orders = events(300);
    const bad: readonly (string | null)[] = [
      null,
      '',
      'not json',
      '[]',
      '{"msg_id":"x"}',
      JSON.stringify({ msg_id: randomUUID(), event_type: 'order.created.v1', payload: { order_id: 1 } }),
      `"${'x'.repeat(200_000)}"`,
    ];
    const unknown = JSON.stringify({ msg_id: randomUUID(), event_type: 'order.cancelled.v1', payload: {} });
    await at.create();
    await at.publish([
      ...orders.slice(0, 150).map(recordOf),
      ...bad.map((value) => ({ partition: 0, key: bytes('k'), value: value === null ? null : bytes(value) })),
      { partition: 0, key: bytes('u'), value: bytes(unknown) },
      ...orders.slice(150).map(recordOf),
    ]);
    const small = ['-batch-bytes=64KiB', '-batch-rows=40', '-dup-rate=0.3'];
    expect(await at.run('a', ...small)).toMatchObject({ charged: 300 });
    await at.expectCharged(orders);
    const parked = await at.query<{
      reason: string;
      value: Uint8Array | null;
      topic: string;
      detail: string;
    }>('SELECT topic, reason, detail, value FROM SCHEMA.payments_parked ORDER BY "offset"');
    expect(parked.map((row) => (row.value === null ? null : Buffer.from(row.value).toString()))).toEqual(bad);
    expect(new Set(parked.map((row) => `${row.topic} ${row.reason}`))).toEqual(
      new Set([`${at.topic} malformed_payload`]),
    );
    expect(parked.every((row) => row.detail.length > 0)).toBe(true);
  });

  it('a record that the database refuses is parked alone, and the rest of its batch is charged', async () => {
    const at = world('refused');
    const orders = events(200);
    await at.create();
    await at.run('a');
    const cents = (i: number): number => (orders[i] as Event).cents;
    await pool.query(
      `ALTER TABLE ${at.schema}.charges ADD CHECK (amount_cents NOT IN (${cents(17)}, ${cents(18)}, ${cents(160)}))`,
    );
    await at.publish(orders.map(recordOf));
    expect(await at.run('a')).toMatchObject({ charged: 197, parked: 3 });
    const refused = [17, 18, 160];
    await at.expectCharged(orders.filter((_, i) => !refused.includes(i)));
    const parked = await at.query<{ key: Uint8Array; reason: string; detail: string }>(
      'SELECT key, reason, detail FROM SCHEMA.payments_parked',
    );
    expect(parked.map((row) => Buffer.from(row.key).toString()).sort()).toEqual(
      refused.map((i) => (orders[i] as Event).orderId).sort(),
    );
    expect(parked.every((row) => row.reason === 'refused' && row.detail.startsWith('23514'))).toBe(true);
  });
});

describeFull('database outage', () => {
  it('payments waits for an unreachable database, resumes, and repeats nothing', async () => {
    const at = world('outage');
    const orders = events(1500);
    const gate = await gateBefore(stack.postgres);
    await at.create();
    await at.publish(orders.slice(0, 500).map(recordOf));
    const one = startPayments(
      own,
      withDefaults(at.args('a', '-batch-rows=20'), [`-postgres=${gate.url}`]),
      'outage',
    );
    const address = await one.address();
    const metric = (name: string): Promise<number> => metricAt(address, name);
    for (const round of [0, 1]) {
      const before = 500 * (round + 1);
      await until('some charges', async () =>
        (await at.count('charges')) > before - 480 ? true : undefined,
      );
      const ports = gate.close();
      // Ensures that there is work when the connection is cut, however far the service was.
      await at.publish(orders.slice(before, before + 500).map(recordOf));
      await until('the waiting gauge', async () =>
        (await metric('payments_database_waiting')) === 1 ? true : undefined,
      );
      await untilSessionsEnd(pool, ports);
      const charged = await at.count('charges');
      const { refused } = gate;
      await until('two more attempts to reach the database', () => gate.refused >= refused + 2);
      expect(await at.count('charges')).toBe(charged);
      gate.open();
    }
    await until('all charges', async () => ((await at.count('charges')) >= 1500 ? true : undefined));
    await one.drain();
    gate.close();
    await at.expectCharged(orders);
    expect(await at.count('payments_suppressed')).toBe(0);
    expect(await at.run('a')).toMatchObject({ charged: 0, suppressed: 0 });
  });

  it('a joining member takes over from a member whose database is unreachable, and a drain ends the latter', async () => {
    const at = world('takeover');
    const orders = events(900);
    const gate = await gateBefore(stack.postgres);
    await at.create();
    await at.publish(orders.slice(0, 300).map(recordOf));
    const one = startPayments(
      own,
      withDefaults(at.args('a', '-batch-rows=20'), [`-postgres=${gate.url}`]),
      'waits',
    );
    await until('some charges', async () => ((await at.count('charges')) > 20 ? true : undefined));
    gate.close();
    await at.publish(orders.slice(300).map(recordOf));
    const before = await at.count('charges');
    const two = startPayments(own, at.args('a', '-batch-rows=20'), 'joins');
    await until('charges of the second', async () =>
      (await at.count('charges')) > before + 100 ? true : undefined,
    );
    await one.drain();
    await until('all charges', async () => ((await at.count('charges')) >= 900 ? true : undefined));
    await two.drain();
    await at.expectCharged(orders);
  });
});

describe('payments process', () => {
  it('payments serves its counters, drains on SIGTERM with its offsets committed, and shares the work', async () => {
    const at = world('group');
    const orders = events(900);
    await at.create();
    const one = startPayments(own, at.args('a', '-batch-rows=50'), 'one');
    const address = await one.address();
    await at.publish(orders.slice(0, 300).map(recordOf));
    await until('the first charges', async () => ((await at.count('charges')) >= 300 ? true : undefined));
    const two = startPayments(own, at.args('a', '-batch-rows=50'), 'two');
    await at.publish(orders.slice(300, 600).map(recordOf));
    await until('more charges', async () => ((await at.count('charges')) >= 600 ? true : undefined));
    const metrics = await scrape(address);
    for (const name of [
      'payments_messages_total',
      'payments_charges_total',
      'payments_batch_seconds_count',
      'payments_commit_to_effect_seconds_count',
      'dedup_ttl_margin_seconds 0',
      'consumer_lag_records',
    ])
      expect(metrics).toContain(name);
    await one.drain();
    await at.publish(orders.slice(600).map(recordOf));
    await until('the last charges', async () => ((await at.count('charges')) >= 900 ? true : undefined));
    await two.drain();
    expect(await at.run('a')).toMatchObject({ charged: 0, suppressed: 0 });
    await at.expectCharged(orders);
  });

  itFull('each of two members with -exit-at-end waits until the other has read its partitions', async () => {
    const at = world('ends');
    const orders = events(3000);
    await at.create();
    await at.publish(orders.map(recordOf));
    const args = at.args('a', '-exit-at-end', '-batch-rows=50');
    const ended = await Promise.all([runPayments(own, args), runPayments(own, args)]);
    expect(ended.map(({ code, signal }) => ({ code, signal }))).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ]);
    await at.expectCharged(orders);
  });

  itFull(
    'payments refuses a TTL below the horizon, prints the sum, and starts with -unsafe-ttl',
    async () => {
      const at = world('ttl');
      const refused = await runPayments(own, at.args('a', '-dedup-ttl=1h', '-log-level=silent'));
      expect(refused.code).toBe(2);
      expect(refused.stderr).toContain(
        '-dedup-ttl=1h is shorter than the redelivery horizon: 1d topic retention + 12h relay outage + 12h consumer outage + 5m clock skew = 2885m; give -dedup-ttl=2885m or more',
      );
      expect(refused.stderr).toContain('[ttl_below_horizon]');
      // The sum uses the given flags.
      const parts = [
        '-topic-retention=2d',
        '-max-relay-outage=1h',
        '-max-consumer-outage=3h',
        '-clock-skew=0s',
      ];
      const other = await runPayments(own, at.args('a', ...parts, '-dedup-ttl=51h', '-log-level=silent'));
      expect(other.code).toBe(2);
      expect(other.stderr).toContain(
        '2d topic retention + 1h relay outage + 3h consumer outage + 0 clock skew = 52h',
      );
      await at.run('a', '-dedup-ttl=1h', '-unsafe-ttl');
      // The created topic keeps no record much longer than the horizon allows for.
      const settings = await settingsOf(stack.brokers, at.topic);
      expect(settings.get('retention.ms')).toBe('86400000');
      expect(settings.get('segment.ms')).toBe('3600000');
      expect(settings.get('message.timestamp.type')).toBe('LogAppendTime');
    },
  );

  itFull('payments names a missing server, table or topic in one line', async () => {
    const at = world('away');
    const quiet = '-log-level=silent';
    const args = at.args('a', quiet);
    const replaced = (flag: string, value: string): readonly string[] =>
      args.map((arg) => (arg.startsWith(`${flag}=`) ? `${flag}=${value}` : arg));
    const cases: ReadonlyArray<readonly [readonly string[], RegExp]> = [
      [replaced('-brokers', '127.0.0.1:1'), /\[unreachable\]/],
      [replaced('-postgres', 'postgres://me@127.0.0.1:1/shop'), /\[unreachable\]/],
      [[...args, '-create-topics=false'], /\[topic_missing\]/],
      [
        replaced('-schema', `${at.schema}_none`).filter((arg) => arg !== '-migrate'),
        /millrace payments -migrate.*\[tables_missing\]/,
      ],
    ];
    const answers = cases.map(async ([argv, line]) => {
      const { code, stderr } = await runPayments(own, argv);
      expect(code, stderr).toBe(3);
      const lines = stderr.split('\n').filter((text) => text.startsWith('error:'));
      expect(lines).toHaveLength(1);
      expect(lines[0]).toMatch(line);
    });
    await Promise.all(answers);
  });
});
