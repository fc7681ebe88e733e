/** Payments with a foreign relay: another client, another partitioner, other headers or none, other
 *  JSON members in another order. Only the value of a record matters; see docs/how-to/outbox.md. */
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
  const output = Promise.all([text(child.stdout), text(child.stderr)]);
  child.stdin.end(records.map((record) => `${JSON.stringify(record)}\n`).join(''));
  const [out, err] = await output;
  expect(out, err).not.toBe('');
  return JSON.parse(out) as { delivered: number; partitions: number[] };
}

/** Forms that other relays give to the same event. */
const FORMS: ReadonlyArray<(event: Event) => ForeignRecord> = [
  // Members in another order, numbers as numbers, extra whitespace, no headers.
  ({ msgId, orderId, cents }) => ({
    key: orderId,
    value: `{ "payload": {"amount_cents": ${cents}, "account_id": 7,\n "order_id": "${orderId}"} , "event_type":"order.created.v1", "msg_id":"${msgId}" }`,
    headers: [],
  }),
  // Extra members, upper-case ids, a key other than the order id, foreign headers in another order.
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
  // No key, so any partition; no creation time.
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

it('payments charges each order of a foreign relay once, however the relay formats and repeats its records', async () => {
  const at = world('foreign');
  await at.create();
  const orders = events(300);
  const form = (event: Event, i: number): ForeignRecord =>
    (FORMS[i % FORMS.length] as (event: Event) => ForeignRecord)(event);
  const first = await publish(at.topic, orders.map(form));
  expect(first.delivered).toBe(300);
  expect(first.partitions.length).toBeGreaterThan(1);
  expect(await at.run('a')).toMatchObject({ charged: 300, suppressed: 0, parked: 0, ignored: 0 });
  // The relay died before it marked the rows. It publishes them again in other forms and at other
  // offsets, together with another type of event.
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
