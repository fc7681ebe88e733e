/** Test kit for `millrace payments`: topics, schemas and groups, and assertions on the tables. */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { RecordInput } from '../../src/core/layout/record-batch.ts';
import { append } from '../../src/demo/contracts/topic.ts';
import type { SqlPool } from '../../src/io/postgres/sql/port.ts';
import { openPool } from '../fixtures/database.ts';
import { runPayments } from '../fixtures/payments.ts';
import { type Launcher, withDefaults } from '../fixtures/process.ts';
import type { SharedStack } from '../fixtures/stack.ts';
import { createTopic, deleteTopic } from '../fixtures/topic.ts';
import { until } from '../wait.ts';

const PARTITIONS = 3;
/** Retention that payments expects of the topic. */
const RETENTION_MS = 86_400_000;
/** A long session: a member keeps its partitions although a busy machine delays its heartbeats, so
 *  no record is read twice by accident. */
const LONG_SESSION = '-session-timeout=45s';
/** Flag for a member that is killed or suspended, so that the next member gets its partitions
 *  soon. */
export const SHORT_SESSION = '-session-timeout=6s';

export interface Event {
  readonly msgId: string;
  readonly orderId: string;
  readonly cents: number;
}

export const events = (count: number): Event[] =>
  Array.from({ length: count }, (_, i) => ({ msgId: randomUUID(), orderId: randomUUID(), cents: 100 + i }));

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

export function recordOf(event: Event, i: number): RecordInput {
  const payload = {
    order_id: event.orderId,
    account_id: '7',
    amount_cents: String(event.cents),
    status: 'created',
    created_at: new Date().toISOString(),
  };
  const value = JSON.stringify({ msg_id: event.msgId, event_type: 'order.created.v1', payload });
  return { key: bytes(event.orderId), value: bytes(value), partition: i % PARTITIONS };
}

/** Names, flags and helpers of one test: its topic, its schema and its groups. */
function worldOf(own: Launcher, stack: SharedStack, pool: SqlPool, part: string) {
  const topic = `payments-${own.suffix}-${part}`;
  const schema = `payments_${own.suffix}_${part}`;
  const args = (group: string, ...more: readonly string[]): readonly string[] =>
    withDefaults(
      [
        `-brokers=${stack.brokers}`,
        `-postgres=${stack.postgres}`,
        `-schema=${schema}`,
        `-topic=${topic}`,
        `-group=${topic}-${group}`,
        `-partitions=${PARTITIONS}`,
        '-migrate',
        LONG_SESSION,
      ],
      more,
    );
  const query = async <T>(sql: string): Promise<readonly T[]> =>
    (await pool.query(sql.replaceAll('SCHEMA', schema))).rows as readonly T[];
  const count = async (from: string): Promise<number> =>
    Number((await query<{ n: bigint }>(`SELECT count(*) AS n FROM SCHEMA.${from}`))[0]?.n);
  const create = async (): Promise<true> => {
    await createTopic(stack.brokers, topic, PARTITIONS, { 'retention.ms': String(RETENTION_MS) });
    return true;
  };
  return {
    topic,
    schema,
    args,
    query,
    count,
    create,
    /** Deletes the topic and creates it again, so that its offsets start at 0. */
    recreate: async (): Promise<void> => {
      await deleteTopic(stack, topic);
      await until('the recreated topic', create);
    },
    publish: (records: readonly RecordInput[]) => append(stack.brokers, topic, records),
    /** Runs a member of the group to the end of the topic.
     *  @throws unless it exits with 0 */
    run: async (group: string, ...more: readonly string[]) => {
      const ended = await runPayments(own, args(group, '-exit-at-end', '-json', ...more));
      expect({ code: ended.code, signal: ended.signal }, ended.stderr).toEqual({ code: 0, signal: null });
      return JSON.parse(ended.stdout) as {
        readonly charged: number;
        readonly suppressed: number;
        readonly parked: number;
        readonly ignored: number;
      };
    },
    /** Asserts that each of these orders has one charge with its amount, and that no other order
     *  has one. */
    expectCharged: async (wanted: readonly Event[]): Promise<void> => {
      const rows = await query<{ order_id: string; amount_cents: bigint }>(
        'SELECT order_id, amount_cents FROM SCHEMA.charges',
      );
      const found = rows.map((row) => `${row.order_id} ${row.amount_cents}`).sort();
      expect(found).toEqual(wanted.map((event) => `${event.orderId} ${event.cents}`).sort());
      expect(await count('inbox')).toBe(new Set(wanted.map((event) => event.msgId)).size);
    },
  };
}

export type World = ReturnType<typeof worldOf>;

/** Opens a pool on the shared database, and creates worlds with names of this file. */
export async function paymentsKit(
  own: Launcher,
  stack: SharedStack,
): Promise<{ readonly pool: SqlPool; world(part: string): World }> {
  const pool = await openPool(stack.postgres, { name: 'payments test' });
  return { pool, world: (part) => worldOf(own, stack, pool, part) };
}

/** Waits until the server has ended the sessions from these client ports: a late session may still
 *  execute statements that it received. */
export const untilSessionsEnd = (pool: SqlPool, ports: readonly number[]): Promise<true> =>
  until('the end of the sessions', async () => {
    const { rows } = await pool.query(
      "SELECT FROM pg_stat_activity WHERE application_name LIKE 'millrace payments%' AND client_port = ANY($1::int[])",
      [ports],
    );
    return rows.length === 0 ? true : undefined;
  });
