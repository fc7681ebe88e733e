/** Payments behind a relay that is not ours: another client, another partitioner, other headers or
 *  none, other members in another order. What counts is the record's value; see
 *  docs/how-to/outbox.md. */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it } from 'vitest';
import { packageRoot } from '../../src/shell/package.ts';
import { clientsFolder } from '../clients/kit.ts';
import { launcher } from '../fixtures/process.ts';
import { sharedStack } from '../fixtures/stack.ts';
import { type Event, events, paymentsKit } from './payments-kit.ts';

const own = launcher();
const stack = await sharedStack();
const { world } = await paymentsKit(own, stack);

interface ForeignRecord {
  readonly key: string | null;
  readonly value: string;
  readonly headers: ReadonlyArray<readonly [name: string, value: string | null]>;
}

async function publish(
  topic: string,
  records: readonly ForeignRecord[],
): Promise<{ readonly delivered: number; readonly partitions: readonly number[] }> {
  const program = join(packageRoot(), 'test', 'clients', 'python', 'order_events.py');
  const python = join(await clientsFolder(), 'python', 'bin', 'python');
  const child = spawn(python, [program, stack.brokers, topic], { stdio: ['pipe', 'pipe', 'pipe'] });
  const said = Promise.all([text(child.stdout), text(child.stderr)]);
  child.stdin.end(records.map((record) => `${JSON.stringify(record)}\n`).join(''));
  const [out, err] = await said;
  expect(out, err).not.toBe('');
  return JSON.parse(out) as { delivered: number; partitions: number[] };
}

/** The same event in the forms that other relays give it. */
const FORMS: ReadonlyArray<(event: Event) => ForeignRecord> = [
  // Members in another order, numbers as numbers, blanks, no header at all.
  ({ msgId, orderId, cents }) => ({
    key: orderId,
    value: `{ "payload": {"amount_cents": ${cents}, "account_id": 7,\n "order_id": "${orderId}"} , "event_type":"order.created.v1", "msg_id":"${msgId}" }`,
    headers: [],
  }),
  // Extra members, upper case ids, a key that is not the order, headers in another order and with
  // names of others.
  ({ msgId, orderId, cents }) => ({
    key: `customer-${cents % 7}`,
    value: JSON.stringify({
      schema_version: 3,
      msg_id: msgId.toUpperCase(),
      event_type: 'order.created.v1',
      payload: {
        status: 'created',
        order_id: orderId.toUpperCase(),
        lines: [{ sku: 'ü', amount_cents: '1' }],
        account_id: '-9223372036854775808',
        amount_cents: String(cents),
        created_at: 'yesterday',
      },
      trace: null,
    }),
    headers: [
      ['content-type', 'application/json; charset=utf-8'],
      ['id', 'something else'],
      ['ce_id', randomUUID()],
      ['empty', null],
    ],
  }),
  // No key: any partition, and no time of creation.
  ({ msgId, orderId, cents }) => ({
    key: null,
    value: JSON.stringify({
      msg_id: msgId,
      event_type: 'order.created.v1',
      payload: { order_id: orderId, account_id: 1, amount_cents: cents },
    }),
    headers: [['__debezium.newkey', orderId]],
  }),
];

it('payments charges what another relay publishes once, however it formats and repeats the record', async () => {
  const at = world('foreign');
  await at.create();
  const orders = events(300);
  const form = (event: Event, i: number): ForeignRecord =>
    (FORMS[i % FORMS.length] as (event: Event) => ForeignRecord)(event);
  const first = await publish(at.topic, orders.map(form));
  expect(first.delivered).toBe(300);
  expect(first.partitions.length).toBeGreaterThan(1);
  expect(await at.run('a')).toMatchObject({ charged: 300, suppressed: 0, parked: 0, ignored: 0 });
  // It died before it had marked them: all come again, in another form and at other places, with
  // what else it knows.
  const again = orders.map((event, i) => form(event, i + 1));
  const other: ForeignRecord = {
    key: 'x',
    value: JSON.stringify({ msg_id: randomUUID(), event_type: 'order.cancelled.v1', payload: [1] }),
    headers: [],
  };
  await publish(at.topic, [...again, other]);
  expect(await at.run('a')).toMatchObject({ charged: 0, suppressed: 300, parked: 0, ignored: 1 });
  await at.expectCharged(orders);
});
